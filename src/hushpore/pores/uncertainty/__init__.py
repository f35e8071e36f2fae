"""How sure the figures of a segmentation are: thresholds, merge heights, and parts of the scan."""
