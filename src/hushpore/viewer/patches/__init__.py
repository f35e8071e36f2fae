"""The widget that shows patches."""
