"""The sample of a scan: where noise is measured and training patches are drawn.

Air around a sample has other noise than the sample, and nothing to learn. If patches were drawn
evenly, a sample that fills an eighth of the image would get an eighth of the training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from hushpore.base.formatting import readable_percent
from hushpore.scan.exterior import find_exterior, grown, make_thumbnail, rolled, void_of
from hushpore.scan.settings import VoidSettings

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float64s, Int64s, Mask
    from hushpore.base.volume import Volume

    #: Kind of values; empty for grey values.
    Kind: TypeAlias = Literal["", "labels", "mask", "probability"]


#: Minimum share of the exterior from which the sample is treated separately. With a smaller one, as
#: the padding around a round field of view, it made no difference on average (12 simulated scans).
_LEAST_AIR = 0.5

#: Minimum share of a block inside the sample for the estimate of its noise.
_INSIDE = 0.98


@dataclass(frozen=True, eq=False)
class Sample:
    """The sample of a scan, at low resolution.

    Attributes
    ----------
    mask : numpy.ndarray
        bool, shape (z, y, x): which pixels of a few slices belong to the sample.
    shape : tuple of int
        The shape of the scan: (z, y, x), with one slice for a 2D image.
    mean, deviation : float
        Mean and standard deviation of the grey values of the sample and its surface.
    """

    mask: Mask
    shape: tuple[int, int, int]
    mean: float
    deviation: float

    @property
    def note(self) -> str:
        """A sentence on the sample."""
        return (
            f"The sample fills {readable_percent(self.share)} of the scan: its noise was measured, "
            "and most training patches were drawn there."
        )

    @property
    def share(self) -> float:
        """The share of the scan that is sample."""
        return float(self.mask.mean())

    def shares(self, corners: Int64s, size: tuple[int, ...]) -> Float64s:
        """Return which share of each of some boxes is inside the sample.

        `corners`: first voxels, shape (n, 2) or (n, 3). `size`: of a box.
        """
        corners, size = corners[:, -3:], size[-3:]
        if corners.shape[1] == 2:
            corners = np.column_stack([np.zeros(len(corners), np.int64), corners])
        size = (1,) * (3 - len(size)) + tuple(size)
        depth, height, width = self.mask.shape
        # the nearest slice of the mask
        middle = (corners[:, 0] + size[0] // 2) / max(self.shape[0] - 1, 1) * (depth - 1)
        z = np.clip(np.rint(middle), 0, depth - 1).astype(np.int64)
        sums = np.zeros((depth, height + 1, width + 1))
        sums[:, 1:, 1:] = self.mask.cumsum(1).cumsum(2)
        first, last = (
            [
                np.clip((corners[:, axis] + more * size[axis]) * n / self.shape[axis], 0, n)
                for axis, n in ((1, height), (2, width))
            ]
            for more in (0, 1)
        )
        inside = (
            _between(sums, z, last[0], last[1]) - _between(sums, z, first[0], last[1])
            - _between(sums, z, last[0], first[1]) + _between(sums, z, first[0], first[1])
        )  # fmt: skip
        area = (last[0] - first[0]) * (last[1] - first[1])
        share: Float64s = inside / area
        return share

    def hold(self, corners: Int64s, size: tuple[int, ...]) -> Mask:
        """Return which boxes lie inside the sample; `corners`, `size`: as for `shares`."""
        held: Mask = self.shares(corners, size) >= _INSIDE
        return held


def _between(sums: Float64s, z: Int64s, y: Float64s, x: Float64s) -> Float64s:
    """Interpolate cumulative sums linearly, which is exact for pixels of constant value."""
    top = np.minimum(y.astype(np.int64), sums.shape[1] - 2)
    left = np.minimum(x.astype(np.int64), sums.shape[2] - 2)
    v, u = y - top, x - left
    upper = (1 - u) * sums[z, top, left] + u * sums[z, top, left + 1]
    lower = (1 - u) * sums[z, top + 1, left] + u * sums[z, top + 1, left + 1]
    found: Float64s = (1 - v) * upper + v * lower
    return found


def find_sample(volume: Volume) -> Sample | None:
    """Find the sample of a scan in air or padding.

    `volume`: 2D or 3D; a few slices of it are read. With further axes nothing is found, since
    a sample may move or look different along them.
    Returns: None unless air and padding around the sample are at least half of the scan.
    """
    if len(volume.shape) > volume.n_spatial or min(volume.shape[-2:]) < 32:
        return None
    settings = VoidSettings()
    small = make_thumbnail(volume)
    around = find_exterior(volume, settings, small)
    outside = small.padded.copy()
    if around.treatment != "keep":
        void = void_of(small, around.apply(settings))
        assert void is not None, "air was found"
        outside |= rolled(void | small.padded, small, around.radius)
    if outside.mean() < _LEAST_AIR or outside.all():
        return None
    # pixels of a thumbnail at the surface are in part air
    values = small.values[grown(~outside) & ~small.padded].astype(np.float64)
    deviation = float(values.std()) if values.size else 0.0
    if not deviation or not math.isfinite(deviation):
        return None
    depth, height, width = (1,) * (3 - volume.n_spatial) + volume.shape
    return Sample(~outside, (depth, height, width), float(values.mean()), deviation)


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

#: Highest whole number for which a table holds the rank of each.
_IN_TABLE = (1 << 16) - 1

#: Values of which a volume consists that is an empty or a full mask.
_OF_MASKS = (0, 1, 255)

#: Share of the voxels of a probability map that are nearly certain, and how far from 0 or 1.
_CERTAIN, _NEARLY = 0.8, 0.1


def kind_of_values(volume: Volume) -> Kind:
    """Return whether values are labels, a mask of two values, probabilities, or grey values ("").

    `volume`: 2D or 3D. Reads a few slices, and all of the volume only if those have few values
    that look like labels.
    """
    if volume.dtype == np.bool_:
        return "mask"
    # the middle of some slices
    data: Any = volume.data if volume.n_spatial == 3 else np.asarray(volume.data)[None]
    at = np.unique(np.linspace(0, data.shape[0] - 1, _SLICES + 2).astype(int)[1:-1])
    starts = [max(0, (n - _PIXELS) // 2) for n in volume.shape[-2:]]
    middle = tuple(slice(start, start + _PIXELS) for start in starts)
    sample = np.stack([np.asarray(data[int(z)])[middle] for z in at])
    if not sample.size or not np.isfinite(sample).all() or sample.min() < 0:
        return ""
    if volume.dtype.kind == "f" and (sample != np.rint(sample)).any():
        return "probability" if _are_probabilities(sample) else ""
    # some programs save labels and masks as floating-point values
    values = np.unique(sample)
    if values.size <= 2:
        values, sample = _further_values(volume, sample)
        if values.size <= 2:
            return "mask" if _are_of_mask(values, sample) else ""
    is_certain = np.count_nonzero(values) >= _MANY
    return "labels" if _is_in_regions(sample, values) and (is_certain or _is_dense(volume)) else ""


def _are_probabilities(sample: Array) -> bool:
    """Whether values are from 0 to 1, most of them near either end."""
    certain = np.count_nonzero((sample < _NEARLY) | (sample > 1 - _NEARLY)) / sample.size
    both = sample.min() < _NEARLY and sample.max() > 1 - _NEARLY
    return bool(sample.max() <= 1 and both and certain >= _CERTAIN)


def _is_in_regions(sample: Array, values: Array) -> bool:
    """Whether most values above 0 fill regions of one value."""
    ranks = _ranks(sample, values)
    beside = ((ranks[:, :, :-1], ranks[:, :, 1:]), (ranks[:, :-1], ranks[:, 1:]))
    count, same = np.zeros(values.size, np.int64), np.zeros(values.size, np.int64)
    for first, second in beside:
        count += np.bincount(first.ravel(), minlength=values.size)
        same += np.bincount(first[first == second], minlength=values.size)
    own = (values > 0) & (count > 0)
    if not own.any() or np.median(same[own] / count[own]) < _UNIFORM:
        return False
    edges = steps = 0
    for first, second in beside:
        differ = (first != second) & (values[first] > 0) & (values[second] > 0)
        edges += int(np.count_nonzero(differ))
        low, high = np.minimum(first, second)[differ], np.maximum(first, second)[differ]
        steps += int(np.count_nonzero(values[high] - values[low] == 1))
    return bool(values.size <= _PHASES or steps <= _STEPPED * max(edges, 1))


def _ranks(sample: Array, values: Array) -> Array:
    """Return the places of what is in a sample among its distinct values, which are ascending."""
    if sample.dtype.kind not in "iu" or values[-1] > _IN_TABLE:
        return np.searchsorted(values, sample)
    # a table is read in a tenth of the time
    rank_of = np.zeros(int(values[-1]) + 1, np.intp)
    rank_of[values] = np.arange(values.size)
    return rank_of[sample]


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


def _further_values(volume: Volume, sample: Array) -> tuple[Array, Array]:
    """Return the values of a volume with few, and slices of it (slices, y, x).

    `sample`: returned if there are at most two values. Otherwise the first slices with more, as
    labels are sparse in some volumes.
    """
    found: Array = np.zeros(0, volume.dtype)
    for part in _parts(volume):
        low, high = part.min(), part.max()
        found = np.union1d(found, [low, high]).astype(volume.dtype)
        if found.size > 2 or ((part != low) & (part != high)).any():
            slices = part.reshape(-1, *volume.shape[-2:])
            return np.union1d(found, slices), slices
    return found, sample


def _are_of_mask(values: Array, sample: Array) -> bool:
    """Whether one or two values are those of a mask, which may be empty or full."""
    if values.size < 2:
        return int(values[0]) in _OF_MASKS
    return values[0] == 0 or _is_in_regions(sample, values)
