"""Results in the window: tables, filter, colours, plots, comparison, record."""
