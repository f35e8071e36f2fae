"""Jobs on many machines: the same work cut into blocks, on dask.distributed, over OME-Zarr."""
