"""Jobs on clusters: OME-Zarr images are processed in blocks on workers of dask.distributed."""
