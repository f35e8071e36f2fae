"""TIFF stacks: read."""
