"""Fill value (padding): voxels around many scans that were never measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume

#: Smallest ratio of the distances from the fill value to the grey values one voxel and two voxels
#: away from the padding: beside padding, the grey value changes abruptly.
_SHARP = 0.8

#: Largest fraction of a slice inside the sample that may have the fill value, in blobs.
_BLOBS = 1e-5

#: Largest value that grey values are compared with.
_LARGEST = float(np.finfo(np.float32).max)


def stated_fill_value(metadata: Mapping[str, Any]) -> float | None:
    """Return the padding value in the metadata, or None.

    `metadata`: of a volume or a file, with the same names. A value that is not a number in the
    range of float32 is ignored.
    """
    value = metadata.get("padding_value")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def possible_fill_values(
    planes: Array, metadata: Mapping[str, Any], *, ends: bool = False
) -> list[float]:
    """Return the possible fill values of a scan, the most likely first.

    Candidates are the value in the metadata and the most frequent value at the edge of the slices.

    `planes`: some slices, (y, x) or (z, y, x). `metadata`: of the volume. `ends`: whether the
    lowest and highest value at the edge are candidates, too. A pore with sharp edges that touches
    the edge of the image, with grey values clipped by the data type, cannot be distinguished from
    padding.
    """
    rim = np.concatenate([planes[..., [0, -1], :].ravel(), planes[..., [0, -1]].ravel()])
    levels, counts = np.unique(rim, return_counts=True)
    found = [stated_fill_value(metadata), float(levels[np.argmax(counts)])]
    if ends:
        found += [float(levels[0]), float(levels[-1])]
    return [value for value in dict.fromkeys(found) if value is not None]


def is_fill_value(volume: Volume, value: float) -> bool:
    """Return whether voxels of one value are padding, rather than air with clipped grey values.

    Air is also present in pores, and grey values rise from air to sample over several voxels. Next
    to padding, grey values change abruptly, and the value does not occur inside the sample.

    `volume`: 2D or 3D; at most three slices are read.
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
    # in an image with two values, one of them is the void
    if near.size == 0 or far.size == 0 or rest.min() == rest.max():
        return False
    return bool(near.mean() >= _SHARP * far.mean())
