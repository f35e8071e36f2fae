"""Voxels that were never measured: around many scans they are filled in with one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: How far values beside what is filled in are from that value at the least, as a share of how far
#: those are that lie a voxel farther.
_SHARP = 0.8

#: Share of a slice that may lie inside and have that value all the same, in blobs.
_BLOBS = 1e-5

#: The largest number that grey values are compared with.
_LARGEST = float(np.finfo(np.float32).max)


def stated_fill_value(known: Mapping[str, Any]) -> float | None:
    """Return the value that a scan is stated to be filled in with; None where nothing is stated.

    `known`: the metadata of a volume, or what a file says of itself, where it has the same name.
    Anything but a number that float32 can hold states nothing.
    """
    value = known.get("padding_value")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def possible_fill_values(
    planes: npt.NDArray[Any], known: Mapping[str, Any], *, ends: bool = False
) -> list[float]:
    """Return the values that a scan may be filled in with, the likeliest first.

    What it is stated to be, and the most frequent at the rim.

    `planes`: some slices, (y, x) or (z, y, x). `known`: metadata of the volume. `ends`: whether the
    lowest and the highest value at the rim may be it, too. Where the edges of pores are sharp, one
    that is cut by the rim, and its grey values by an end of the type, cannot be told from that.
    """
    rim = np.concatenate([planes[..., [0, -1], :].ravel(), planes[..., [0, -1]].ravel()])
    levels, counts = np.unique(rim, return_counts=True)
    found = [stated_fill_value(known), float(levels[np.argmax(counts)])]
    if ends:
        found += [float(levels[0]), float(levels[-1])]
    return [value for value in dict.fromkeys(found) if value is not None]


def is_fill_value(volume: Volume, value: float) -> bool:
    """Whether voxels of one value were never measured, and are not air that was cut off there.

    Air is dark in pores, too, and grey values rise to those of the sample over some voxels. Beside
    what is filled in they are what they are farther away, and it is nowhere else.

    `volume`: 2D or 3D, of which three slices at most are read.
    """
    from scipy import ndimage

    depth = volume.shape[0] if volume.n_spatial == 3 else 1
    beside, farther, others = [], [], []
    for place in sorted({round(share * (depth - 1)) for share in (0.25, 0.5, 0.75)}):
        plane = np.asarray(volume.data[place] if volume.n_spatial == 3 else volume.data)
        padded = plane == value
        solid_blobs = ndimage.binary_erosion(padded, np.ones((2, 2), np.bool_))
        parts, _ = ndimage.label(padded)
        at_rim = np.unique(np.concatenate([parts[[0, -1]].ravel(), parts[:, [0, -1]].ravel()]))
        if np.count_nonzero(solid_blobs & ~np.isin(parts, at_rim)) > _BLOBS * padded.size:
            return False
        rings = [np.isin(parts, at_rim[at_rim > 0])]
        for _ in range(2):
            rings.append(ndimage.binary_dilation(rings[-1], np.ones((3, 3), np.bool_)))
        apart = np.abs(plane.astype(np.float64) - value)
        beside.append(apart[rings[1] & ~rings[0]])
        farther.append(apart[rings[2] & ~rings[1]])
        others.append(apart[~padded])
    near, far, rest = (np.concatenate(each) for each in (beside, farther, others))
    # of an image of two values one is the void
    if near.size == 0 or far.size == 0 or rest.min() == rest.max():
        return False
    return bool(near.mean() >= _SHARP * far.mean())
