"""Uncertainty intervals from thresholds, merge heights and sub-volumes, and the REV edge length."""
