"""Readers, writers and conversion between files, volumes and napari layers."""
