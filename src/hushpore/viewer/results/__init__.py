"""Widgets for results: tables, filter, colours, plots, comparison and record."""
