"""Phases in the window: their thresholds, names and colours, and what was measured of them."""
