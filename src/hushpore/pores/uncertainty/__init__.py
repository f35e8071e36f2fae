"""Uncertainty of a segmentation: plausible thresholds, merge heights and sub-volumes."""
