"""Jobs on clusters: work in blocks of OME-Zarr images on the workers of dask.distributed."""
