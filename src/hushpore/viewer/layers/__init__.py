"""Between files, volumes and napari layers: readers, writers, conversion."""
