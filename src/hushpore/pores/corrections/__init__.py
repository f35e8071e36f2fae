"""Corrections of a pore segmentation by hand."""
