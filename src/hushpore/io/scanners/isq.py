"""Scanco volumes (``.isq``): µCT scans in attenuation coefficients."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.rescaled import Scaled
from hushpore.io.raw import Layout, volume_of_layout

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.volume import Volume

#: Signature of ISQ files.
SIGNATURE = b"CTDATA-HEADER_V1"
_BLOCK = 512


def open_isq(path: Path) -> Volume:
    """Open a Scanco ISQ volume as a lazy array.

    The header has 512 bytes, little-endian: voxels along x, y, z at byte 44, lengths in µm at 56,
    ``mu_scaling`` at 88, tube voltage in V at 168, current in µA at 172, blocks before the values
    at 508. The name of the patient, at 128, is not read. Source: the fields that BoneJ
    (``ISQReader``) and ITK (``ScancoImageIO``) read.

    Parameters
    ----------
    path : Path
        The ``.isq`` file.

    Returns
    -------
    Volume
        Linear attenuation coefficients in 1/cm: stored int16 over ``mu_scaling``, as `Scaled`.
        Axes zyx, voxel size in mm.

    Raises
    ------
    InputError
        If the header is damaged or the file ends before its values do.
    """
    with path.open("rb") as file:
        header = file.read(_BLOCK)
    if len(header) < _BLOCK:
        raise InputError(f"{path.name} is incomplete: its header has {len(header)} of 512 bytes.")
    x, y, z, *lengths = struct.unpack_from("<6i", header, 44)
    (scaling,) = struct.unpack_from("<i", header, 88)
    volts, current = struct.unpack_from("<2i", header, 168)
    (blocks,) = struct.unpack_from("<i", header, _BLOCK - 4)
    sizes = (z, y, x)
    if min(sizes) < 1 or blocks < 0:
        raise InputError(
            f"{path.name} is damaged: its header gives {x} x {y} x {z} voxels from block {blocks}."
        )
    known: dict[str, Any] = {}
    if min(lengths) > 0:
        steps = zip(reversed(lengths), sizes, strict=True)
        known = {"spacing": tuple(length / count / 1000 for length, count in steps), "unit": "mm"}
    else:
        known = {"notes": ["The header gives no voxel size; the voxel size is not known."]}
    layout = Layout(path, (blocks + 1) * _BLOCK, np.dtype("<i2"), sizes)
    volume = volume_of_layout(layout, path, **known)
    scanner = {"voltage_kv": volts / 1000, "current_ua": float(current)}
    metadata: dict[str, Any] = {
        "scanner": {name: value for name, value in scanner.items() if value > 0}
    }
    if scaling < 1:
        return volume.replace(volume.data, metadata=metadata)
    metadata["value_unit"] = "1/cm"
    return volume.replace(Scaled(volume.data, 1 / scaling, 0.0), metadata=metadata)
