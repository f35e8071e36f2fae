"""TIFF stacks: read and written."""
