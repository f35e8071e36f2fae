"""Writing of volumes as OME-TIFF."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES
from hushpore.base.safe_text import harmless
from hushpore.io.lazy_arrays import slabs
from hushpore.io.undefined import value_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume

# OME names of the length units of a Volume
_OME_UNITS = {**{unit: unit for unit in METRES}, "um": "µm", "pixel": "pixel"}
_LABEL_TYPES = (np.uint8, np.int32, np.uint32)
_LARGE = 2**32 - 2**25  # size in bytes above which BigTIFF is needed


def write_tiff(path: Path, volume: Volume) -> None:
    """Write a volume as OME-TIFF; called by `hushpore.io.results.write_image`."""
    import tifffile

    dtype = _storable(volume)
    unit = _OME_UNITS.get(volume.unit, "pixel")
    # OME cannot store axes of length one, the origin of the stack and value metadata, and few
    # programs support its 1-bit type
    ours: dict[str, Any] = {
        "axes": volume.axes,
        "origin": list(volume.origin),
        **value_metadata(volume.metadata),
    }
    if volume.dtype.kind == "b":
        ours["type"] = "bool"
    description = {"hushpore": ours}
    metadata: dict[str, Any] = {
        "axes": volume.axes.upper(),
        # XML allows no control characters, not even escaped
        "Name": harmless(volume.name),
        "Description": json.dumps(description),
    }
    for axis, step in zip(reversed("ZYX"), reversed(volume.spacing), strict=False):
        metadata[f"PhysicalSize{axis}"] = step
        metadata[f"PhysicalSize{axis}Unit"] = unit
    tifffile.imwrite(
        path,
        _planes(volume, dtype),
        shape=volume.shape,
        dtype=dtype,
        ome=True,
        bigtiff=math.prod(volume.shape) * dtype.itemsize > _LARGE,
        photometric="minisblack",
        compression="zlib" if dtype in _LABEL_TYPES else None,
        metadata=metadata,
    )


def _planes(volume: Volume, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield the planes one by one; a lazy volume is read slab by slab."""
    for _, values in slabs(volume.data):
        yield from values.reshape(-1, *volume.shape[-2:]).astype(dtype, copy=False)


def _storable(volume: Volume) -> np.dtype[Any]:
    """Return a data type of OME-TIFF that can store the values."""
    if 0 in volume.shape:
        raise InputError(
            f"{volume.name} is empty (shape {volume.shape}); there is nothing to write."
        )
    dtype = volume.dtype.newbyteorder("=")
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "ui" and dtype.itemsize == 8:
        smaller = np.dtype(f"{dtype.kind}4")
        limits = np.iinfo(smaller)
        ends = [(values.min(), values.max()) for _, values in slabs(volume.data)]
        lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        if lowest < limits.min or highest > limits.max:
            raise InputError(
                f"{volume.name} has {dtype} values from {lowest} to {highest}, but TIFF stores "
                "integers of 32 bits. Rescale them first."
            )
        return smaller
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype
