"""OME-Zarr images: read, written whole or block by block."""

from hushpore.io.zarr.image import write_zarr

__all__ = ["write_zarr"]
