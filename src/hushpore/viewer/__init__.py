"""The napari plugin: readers, sample data and widgets. The only place that imports napari or Qt."""
