"""Measurement of labels, masks and probability maps of another program."""
