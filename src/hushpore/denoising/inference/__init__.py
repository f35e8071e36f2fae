"""Prediction with a trained network: tiles, whole volumes, and blocks of volumes."""
