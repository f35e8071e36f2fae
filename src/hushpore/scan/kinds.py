"""Recognise labels, masks and probability maps by their values.

Labels are whole numbers in regions of one value: two neighbouring voxels with the label 7 are
common, whereas noise and blur make neighbouring grey values differ. A few slices show this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume

    #: Kind of values; empty for grey values.
    Kind: TypeAlias = Literal["", "labels", "mask", "probability"]


#: Slices that are read at most, and pixels of each along an axis.
_SLICES, _PIXELS = 5, 1024

#: Median share of right and lower neighbours with the same value, over all values. Labels of
#: pores 3 voxels wide have 0.67; in 8-bit scans without noise, values at blurred edges have less
#: than 0.3.
_UNIFORM = 0.55

#: Share of the boundaries between two values above 0 at which they differ by 1, from which they
#: are steps of a smooth scan.
_STEPPED = 0.5

#: Number of values up to which labels may be phases, which differ by 1.
_PHASES = 8

#: Distinct values in a few slices from which regions of one value are labels; with fewer, the
#: highest number must not exceed this many times the number of values in the whole volume.
_MANY, _GAPS = 20, 3

#: Share of the voxels of a probability map that are nearly certain, and how far from 0 or 1.
_CERTAIN, _NEARLY = 0.8, 0.1


def kind_of_values(volume: Volume) -> Kind:
    """Return whether values are labels, a mask of two values, probabilities, or grey values ("").

    `volume`: 2D or 3D. Reads a few slices, and all of the volume only if those have few values
    that look like labels.
    """
    if volume.dtype == np.bool_:
        return "mask"
    sample = _some_slices(volume)
    if not sample.size or not np.isfinite(sample).all() or sample.min() < 0:
        return ""
    if volume.dtype.kind == "f" and (sample != np.rint(sample)).any():
        return "probability" if _are_probabilities(sample) else ""
    # some programs save labels and masks as floating-point values
    values = np.unique(sample)
    if values.size <= 2:
        return "mask" if _has_two_values(volume) else ""
    is_certain = np.count_nonzero(values) >= _MANY
    return "labels" if _is_in_regions(sample, values) and (is_certain or _is_dense(volume)) else ""


def _some_slices(volume: Volume) -> Array:
    """Return the middle of some slices (slices, y, x)."""
    data: Any = volume.data if volume.n_spatial == 3 else np.asarray(volume.data)[None]
    depth = volume.shape[0] if volume.n_spatial == 3 else 1
    at = np.unique(np.linspace(0, depth - 1, _SLICES + 2).astype(int)[1:-1])
    middle = tuple(
        slice(max(0, (n - _PIXELS) // 2), max(0, (n - _PIXELS) // 2) + _PIXELS)
        for n in volume.shape[-2:]
    )
    return np.stack([np.asarray(data[int(z)])[middle] for z in at])


def _are_probabilities(sample: Array) -> bool:
    """Whether values are from 0 to 1, most of them near either end."""
    certain = np.count_nonzero((sample < _NEARLY) | (sample > 1 - _NEARLY)) / sample.size
    both = sample.min() < _NEARLY and sample.max() > 1 - _NEARLY
    return bool(sample.max() <= 1 and both and certain >= _CERTAIN)


def _is_in_regions(sample: Array, values: Array) -> bool:
    """Whether most values above 0 fill regions of one value."""
    ranks = np.searchsorted(values, sample)
    count, same = np.zeros(values.size, np.int64), np.zeros(values.size, np.int64)
    edges = steps = 0
    for first, second in ((ranks[:, :, :-1], ranks[:, :, 1:]), (ranks[:, :-1], ranks[:, 1:])):
        equal = first == second
        count += np.bincount(first.ravel(), minlength=values.size)
        same += np.bincount(first[equal], minlength=values.size)
        differ = ~equal & (values[first] > 0) & (values[second] > 0)
        edges += int(np.count_nonzero(differ))
        low, high = np.minimum(first, second)[differ], np.maximum(first, second)[differ]
        steps += int(np.count_nonzero(values[high] - values[low] == 1))
    own = (values > 0) & (count > 0)
    if not own.any() or np.median(same[own] / count[own]) < _UNIFORM:
        return False
    return bool(values.size <= _PHASES or steps <= _STEPPED * max(edges, 1))


def _parts(volume: Volume) -> Any:
    """Yield the slices of a volume in small groups."""
    if volume.n_spatial == 2:
        yield np.asarray(volume.data)
        return
    for first in range(0, volume.shape[0], 16):
        yield np.asarray(volume.data[first : first + 16])


def _is_dense(volume: Volume) -> bool:
    """Whether a volume has nearly as many values as its highest one, as labels have."""
    found: Array = np.zeros(0, volume.dtype)
    for part in _parts(volume):
        found = np.union1d(found, part)
    return bool(found[-1] <= _GAPS * np.count_nonzero(found))


def _has_two_values(volume: Volume) -> bool:
    """Whether a volume has two values, of which one is 0."""
    found: set[Any] = set()
    for part in _parts(volume):
        low, high = part.min(), part.max()
        if np.count_nonzero((part != low) & (part != high)):
            return False
        found |= {low.item(), high.item()}
        if len(found) > 2:
            return False
    return len(found) == 2 and 0 in found
