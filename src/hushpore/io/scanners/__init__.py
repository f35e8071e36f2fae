"""Readers for files of laboratory CT scanners and their reconstruction programs."""
