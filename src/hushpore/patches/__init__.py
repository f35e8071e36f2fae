"""Patches: where they are sampled, and reading them out of a volume."""
