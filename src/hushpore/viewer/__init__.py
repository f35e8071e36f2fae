"""The napari plugin: readers, samples and widgets. The only place that imports napari or Qt."""
