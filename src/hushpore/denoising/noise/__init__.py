"""What the noise of a volume is like before, and what was removed after."""
