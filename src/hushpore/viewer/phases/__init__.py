"""Phases in the window: thresholds, names, colours and measurements."""
