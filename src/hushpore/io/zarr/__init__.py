"""OME-Zarr images: read, written whole or block by block."""
