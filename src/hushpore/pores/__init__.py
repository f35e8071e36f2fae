"""Pore segmentation: threshold, void, distance, basins, merging, measurement."""
