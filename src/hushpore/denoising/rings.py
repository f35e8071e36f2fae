"""Rings about the middle of the slices, found in the slices themselves and taken out of them.

A pixel of a detector that is off by a little in every view makes a ring about the axis of rotation;
where projections were taken over half a turn, a half of one. It is the same all along; the image is
not. So the differences of pixels that lie near each other are fitted, by weighted least squares,
with those of a profile over the radius: robustly, so that edges of the image do not count
(iteratively reweighted, Tukey's biweight). The slice is never resampled, as it is by methods that
unroll it about the middle. What varies slowly with the radius is no ring, and stays.

There is a profile of each quadrant. What is the same in all of them are whole rings; what differs
between above and below the middle, or between left and right of it, are halves. Each of the three
is found twice, from two quadrants or pairs of them, and taken out as far as the two agree (a Wiener
filter by the radius): where there are no rings, nothing is.

The idea of a ring as what a circle has in common is that of Sijbers and Postnov,
https://doi.org/10.1088/0031-9155/49/14/N06.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numba
import numpy as np
from scipy import linalg
from scipy.ndimage import gaussian_filter1d

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_number
from hushpore.denoising.noise.boxes import cut_boxes
from hushpore.device.backend import cpu_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import numpy.typing as npt

    from hushpore.base.volume import Volume

    Profile = npt.NDArray[np.float64]

#: Distances of the pixels that are compared: near ones tell narrow rings, others wider ones.
_LAGS = (1, 2, 4)

#: From how many deviations on a difference is an edge, in each of the reweighted fits; and in those
#: that look for the middle.
_EDGES, _FEW_EDGES = (4.0, 3.0, 2.0, 2.0, 2.0, 2.0), (4.0, 2.0)

#: Deviation of the Gaussian that tells a ring from what varies slowly with the radius, in pixels.
_SMOOTH = 8.0

#: Widths of the Gaussians, in pixels, over which the strength of rings and the error of the profile
#: are averaged; and by how much more than the error a ring must have.
_NARROW, _WIDE, _SURE = 1.5, 8.0, 1.0

#: Rows of a slice that are looked at, at most about this many, and values for a median.
_ROWS, _VALUES = 512, 200_000

#: Slices that tell the middle of the rings, rows of each, and how much better another middle than
#: that of the slices must be, as a correlation.
_SLICES, _FEW_ROWS, _BETTER = 5, 192, 0.1

#: Correlation of the two halves of the circles below which there are no rings; and the radius up to
#: which circles are too short to tell, in pixels.
_AGREEING, _SHORT = 0.35, 8

#: Voxels and slices that are read at once, at most.
_PIECE, _TOGETHER = 1 << 24, 32


def _compiled(function: Callable[..., None]) -> Any:
    """Compile a function on its first call, without the GIL, and keep it on disk if one can."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


@_compiled
def _add_differences(  # type: ignore[no-untyped-def]  # pragma: no cover (compiled)
    image, profiles, centre_y, centre_x, lag, limit, step, matrix, right
):
    """Add the equations of pixels some lag apart, along y and along x, to the normal equations.

    `image`: (y, x), float32. `profiles`: (4, radii): what is known of each quadrant. `limit`:
    difference from which on it does not count. `step`: rows from one that is looked at to the next.
    `matrix`: (4, lags + 2, radii), the lower band of each quadrant, and `right`: (4, radii): added
    to.
    """
    height, width = image.shape
    at = np.empty(4, np.int64)
    share = np.empty(4)
    for y in range(0, height, step):
        down = y - centre_y
        for x in range(width):
            across = x - centre_x
            radius = math.sqrt(down * down + across * across)
            k = int(radius)
            f = radius - k
            value = image[y, x]
            quadrant = 2 * (down >= 0) + (across >= 0)
            profile = profiles[quadrant]
            ring = (1 - f) * profile[k] + f * profile[k + 1]
            for along_x in range(2):
                v = y + lag * (1 - along_x)
                u = x + lag * along_x
                if v >= height or u >= width:
                    continue
                other = image[v, u]
                # where values are filled in there is no ring
                if other == value:
                    continue
                radius = math.sqrt((v - centre_y) ** 2 + (u - centre_x) ** 2)
                m = int(radius)
                g = radius - m
                difference = other - value - ((1 - g) * profile[m] + g * profile[m + 1] - ring)
                ratio = (difference / limit) ** 2
                # not a number: does not count either
                if not ratio < 1:
                    continue
                weight = (1 - ratio) ** 2
                at[0], at[1], at[2], at[3] = k, k + 1, m, m + 1
                share[0], share[1], share[2], share[3] = f - 1, -f, 1 - g, g
                for i in range(4):
                    right[quadrant, at[i]] += weight * share[i] * difference
                    for j in range(4):
                        if at[j] >= at[i]:
                            matrix[quadrant, at[j] - at[i], at[i]] += weight * share[i] * share[j]


def find_profile(
    image: npt.NDArray[Any], centre: tuple[float, float]
) -> tuple[Profile, npt.NDArray[np.float64]]:
    """Return the rings of a slice as grey values over the radius.

    `image`: (y, x), any real dtype; values that are not finite do not count. `centre`: of the
    rings, y and x in pixels.
    Returns: float64, shape (3, radii), at radii 0, 1, 2, ... pixels, as `rings_of` takes it: each
    as far as it is found twice; and for each what `agreement_of` takes.
    """
    profiles, halves, weight = _fit(image, centre, _LAGS, _EDGES, _ROWS)
    for number, (first, second) in enumerate(halves):
        # an error goes down with the length of the circle
        error = gaussian_filter1d((first - second) ** 2 / 4 * weight, _WIDE) / weight
        strength = gaussian_filter1d(profiles[number] ** 2, _NARROW)
        share = 1 - _SURE * error / np.maximum(strength, np.finfo(float).tiny)
        profiles[number] *= np.clip(share, 0, 1)
    return profiles, np.stack([_moments(each, weight, image.shape) for each in halves])


def _moments(
    halves: tuple[Profile, Profile], weight: Profile, shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    # close to the middle a circle is too short, and farther away than the sides it is not whole
    whole = slice(_SHORT, min(shape) // 2)
    first, second, weight = (each[whole] for each in (*halves, weight))
    return np.array(
        [(a * b * weight).sum() for a, b in ((first, second), (first, first), (second, second))]
    )


def agreement_of(moments: npt.NDArray[np.float64]) -> float:
    """Return the correlation of the rings that were found twice: 1 where all is rings.

    `moments`: the sum over slices of what `find_profile` returns.
    """
    both, first, second = moments
    return float(both / math.sqrt(first * second)) if first * second else 0.0


def _fit(
    image: npt.NDArray[Any],
    centre: tuple[float, float],
    lags: tuple[int, ...],
    edges: tuple[float, ...],
    rows: int,
) -> tuple[Profile, list[tuple[Profile, Profile]], Profile]:
    """Fit the profiles of a slice.

    Returns: shape (3, radii), as `rings_of` takes it; what each of the three was found to be twice;
    and the weight of each radius.
    """
    values = np.ascontiguousarray(image, np.float32)
    far = math.hypot(*(max(c, n - 1 - c) for c, n in zip(centre, image.shape, strict=True)))
    radii = int(far) + 2
    quadrants, step = np.zeros((4, radii)), max(1, image.shape[0] // rows)
    columns = np.arange(values.shape[1])
    # each quadrant by itself, or what one finds by chance would draw others along
    for edge in edges:
        matrix, right = np.zeros((4, max(lags) + 2, radii)), np.zeros((4, radii))
        known = rings_of(_components(quadrants), centre, np.arange(0, len(values), step), columns)
        rest = values[::step] - known
        for lag in lags:
            deviation = _deviation(rest, lag)
            if not deviation:
                continue
            own = np.zeros_like(matrix), np.zeros_like(right)
            _add_differences(values, quadrants, *centre, lag, edge * deviation, step, *own)
            matrix += own[0] / deviation**2
            right += own[1] / deviation**2
        changes = [_solved(*each) for each in zip(matrix, right, strict=True)]
        quadrants = quadrants + np.stack(changes)
    weight = matrix[:, 0] + 1e-6 * max(float(matrix[:, 0].max()), np.finfo(float).tiny)
    total = weight.sum(0)
    # whole rings: the equations of all quadrants together
    sides = [_times(*each) for each in zip(matrix, quadrants, strict=True)]
    whole = _without_trend(_solved(matrix.sum(0), np.sum(sides, axis=0)), total)
    a, b, c, d = (_without_trend(*each) for each in zip(quadrants, weight, strict=True))
    # a and b lie above c and d
    halves = [((a + d) / 2, (b + c) / 2), ((c - a) / 2, (d - b) / 2), ((b - a) / 2, (d - c) / 2)]
    below, beside = (sum(each) / 2 for each in halves[1:])
    return np.stack([whole, below, beside]), halves, total


def _components(quadrants: Profile) -> Profile:
    """Return what four quadrants have in common, and how they differ along y and along x."""
    a, b, c, d = quadrants
    return np.stack([a + b + c + d, c + d - a - b, b + d - a - c]) / 4


def _deviation(rest: npt.NDArray[np.float32], lag: int) -> float:
    """Return a robust deviation of differences along x; zero where there are none."""
    differences = np.abs(rest[:, lag:] - rest[:, :-lag]).ravel()
    differences = differences[:: max(1, differences.size // _VALUES)]
    differences = differences[np.isfinite(differences) & (differences > 0)]
    return 1.4826 * float(np.median(differences)) if differences.size else 0.0


def _solved(matrix: Profile, right: Profile) -> Profile:
    # differences leave the mean open, and radii without any
    largest = float(matrix[0].max())
    if not largest:
        return np.zeros_like(right)
    banded = matrix.copy()
    banded[0] += 1e-3 * matrix[0].mean() + 1e-9 * largest
    solution: Profile = linalg.solveh_banded(banded, right, lower=True)
    return solution


def _times(matrix: Profile, profile: Profile) -> Profile:
    """Return the product of a symmetric matrix, of which the lower band is given, and a profile."""
    product: Profile = matrix[0] * profile
    for below in range(1, len(matrix)):
        product[below:] += matrix[below, :-below] * profile[:-below]
        product[:-below] += matrix[below, :-below] * profile[below:]
    return product


def _without_trend(profile: Profile, weight: Profile) -> Profile:
    """Return a profile without what varies slowly with the radius."""
    trend = gaussian_filter1d(profile * weight, _SMOOTH) / gaussian_filter1d(weight, _SMOOTH)
    rings: Profile = profile - trend
    return rings


def rings_of(
    profiles: npt.NDArray[Any],
    centre: tuple[float, float],
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    """Return what rings are in some pixels of a slice.

    `profiles`: shape (..., 3, radii): of whole rings, what is added to them below the middle and
    taken off above it, and what is added to the right and taken off to the left. `rows`, `columns`:
    y and x of the pixels; any number of axes.
    Returns: float32, shape (..., *rows, *columns).
    """
    down = (rows - centre[0]).reshape(rows.shape + (1,) * columns.ndim)
    across = columns - centre[1]

    def values_at(known: npt.NDArray[np.float32], k: npt.NDArray[np.int64]) -> Any:
        return known[..., k]

    return _sum_of_sides(profiles, down, across, values_at)


def _sum_of_sides(
    profiles: npt.NDArray[Any],
    down: npt.NDArray[Any],
    across: npt.NDArray[Any],
    values_at: Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], npt.NDArray[np.float32]],
) -> npt.NDArray[np.float32]:
    """Add up whole rings and halves, of pixels at places about the middle.

    `values_at`: returns those of profiles (..., radii) at whole radii, in the shape of the result.
    """
    radius = np.hypot(down, across)
    k = radius.astype(np.int64)
    f = (radius - k).astype(np.float32)
    sides = (
        np.float32(1),
        *(np.where(each >= 0, 1, -1).astype(np.float32) for each in (down, across)),
    )
    found = np.zeros_like(values_at(profiles[..., 0, :].astype(np.float32), k))
    for number, side in enumerate(sides):
        known = profiles[..., number, :].astype(np.float32)
        if known.any():
            found += side * ((1 - f) * values_at(known, k) + f * values_at(known, k + 1))
    return found


def find_centre(slices: list[npt.NDArray[Any]]) -> tuple[float, float]:
    """Return the middle of the rings in some slices: within 2.5 pixels of that of the slices.

    It is where the rings of opposite quadrants agree most.
    """
    middle = tuple((n - 1) / 2 for n in slices[0].shape)

    def agreement(offset: tuple[float, float]) -> float:
        centre = (middle[0] + offset[0], middle[1] + offset[1])
        moments = np.zeros(3)
        for image in slices:
            _, halves, weight = _fit(image, centre, (1, 2), _FEW_EDGES, _FEW_ROWS)
            moments += _moments(halves[0], weight, image.shape)
        return agreement_of(moments)

    def best(candidates: list[tuple[float, float]]) -> tuple[tuple[float, float], float]:
        with ThreadPoolExecutor(cpu_threads()) as threads:
            found = list(threads.map(agreement, candidates))
        number = int(np.argmax(found))
        return candidates[number], found[number]

    at_middle = agreement((0.0, 0.0))
    whole, _ = best([(float(y), float(x)) for y in range(-2, 3) for x in range(-2, 3)])
    near = (-0.5, 0.0, 0.5)
    offset, found = best([(whole[0] + y, whole[1] + x) for y in near for x in near])
    if found < max(at_middle + _BETTER, _AGREEING):
        offset = (0.0, 0.0)
    return (middle[0] + offset[0], middle[1] + offset[1])


@dataclass(frozen=True, eq=False)
class RingFree:
    """An array without its rings, which are taken out of what is read.

    `data`: (..., y, x), NumPy or on disk. `profiles`: float32, shape (..., 3, radii): of each
    slice, as `rings_of` takes them. `centre`: of the rings, y and x in pixels.
    """

    data: Any
    profiles: npt.NDArray[np.float32]
    centre: tuple[float, float]

    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(int(n) for n in self.data.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def chunks(self) -> Any:
        """How it lies on disk, where it lies there in chunks."""
        return getattr(self.data, "chunks", None)

    @property
    def deviation(self) -> float:
        """Standard deviation of the rings over all voxels, in grey values."""
        y, x = (np.arange(n) - c for n, c in zip(self.shape[-2:], self.centre, strict=True))
        radius = np.hypot(y[:, None], x).ravel()
        k = radius.astype(np.int64)
        f, count = radius - k, self.profiles.shape[-1]
        near, far, both = (np.bincount(k, w, count) for w in ((1 - f) ** 2, f**2, 2 * f * (1 - f)))
        p = self.profiles.astype(np.float64)
        beyond = np.roll(p, -1, -1)
        power = (near * p**2 + far * beyond**2 + both * p * beyond).sum((-1, -2)) / radius.size
        return float(np.sqrt(power.mean()))

    def __getitem__(self, key: Any) -> npt.NDArray[np.float32]:
        """Return what a basic index gives: whole numbers, slices and Ellipsis."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(each is Ellipsis for each in keys):
            at = next(number for number, each in enumerate(keys) if each is Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        keys += [slice(None)] * (self.ndim - len(keys))
        values = np.asarray(self.data[tuple(keys)], np.float32)
        y, x = (np.arange(n)[each] for n, each in zip(self.shape[-2:], keys[-2:], strict=True))
        return values - rings_of(self.profiles[tuple(keys[:-2])], self.centre, y, x)

    def boxes(
        self, corners: npt.NDArray[np.int64], size: Sequence[int]
    ) -> npt.NDArray[np.float32] | None:
        """Return the boxes at some corners, (n, *size), all at once; None where it lies on disk."""
        values = cut_boxes(self.data, corners, size)
        if values is None:
            return None
        # which slice each part of a box is of, and where its pixels lie
        slices = np.zeros((len(corners),) + (1,) * len(size), np.int64)
        for axis, n in enumerate(size[:-2]):
            place = (corners[:, axis, None] + np.arange(n)).reshape(
                -1, *(n if each == axis else 1 for each in range(len(size)))
            )
            slices = slices * self.shape[axis] + place
        lead = (len(corners),) + (1,) * len(size[:-2])
        down, across = (
            (corners[:, axis, None] + np.arange(size[axis]) - self.centre[axis]).reshape(shape)
            for axis, shape in ((-2, (*lead, size[-2], 1)), (-1, (*lead, 1, size[-1])))
        )
        flat = self.profiles.reshape(-1, *self.profiles.shape[-2:])
        rings = _sum_of_sides(flat, down, across, lambda known, k: known[slices, k])
        return np.asarray(values, np.float32) - rings

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return all values."""
        values = self[...]
        return values if dtype is None else values.astype(dtype)


def without_rings(volume: Volume) -> Generator[float, None, Volume]:
    """Find the rings in every slice of a volume, and take them out of what is read of it.

    `volume`: its values may lie on disk; every slice is read once.
    Yields: the share that is done.
    Returns: the volume, whose data is `RingFree`; as it was where there are no rings.
    """
    centre = centre_of(volume)
    count = math.prod(volume.shape[:-2])
    parts: list[Found] = []
    for first, last in parts_of(volume):
        parts.append(find_profiles(volume, centre, first, last))
        yield last / count
    return ring_free(volume, centre, parts)


#: Profiles of some slices, and how two halves of their circles agree: the sum of `find_profile`.
Found: TypeAlias = "tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]"


def parts_of(volume: Volume) -> list[tuple[int, int]]:
    """Return which slices are looked at together: the first, and that after the last."""
    count = math.prod(volume.shape[:-2])
    step = max(1, min(_PIECE // math.prod(volume.shape[-2:]), _TOGETHER))
    return [(first, min(first + step, count)) for first in range(0, count, step)]


def centre_of(volume: Volume) -> tuple[float, float]:
    """Return the middle of the rings of a volume, of which a few slices are read."""
    count = math.prod(volume.shape[:-2])
    some = np.unique(np.linspace(0, count - 1, min(_SLICES, count)).round().astype(int))
    return find_centre([_slice(volume, number) for number in some.tolist()])


def find_profiles(volume: Volume, centre: tuple[float, float], first: int, last: int) -> Found:
    """Find the rings in the slices from `first` on, before `last`, counted over leading axes."""
    images = [_slice(volume, number) for number in range(first, last)]
    with ThreadPoolExecutor(cpu_threads()) as threads:
        found = list(threads.map(lambda image: find_profile(image, centre), images))
    profiles, moments = zip(*found, strict=True)
    return np.stack(profiles).astype(np.float32), np.sum(moments, axis=0)


def ring_free(volume: Volume, centre: tuple[float, float], parts: Sequence[Found]) -> Volume:
    """Return a volume without the rings that were found in all of its slices, in their order."""
    profiles, moments = zip(*parts, strict=True)
    there = _are_there(moments)
    if not there.any():
        return volume
    known = np.concatenate(profiles) * there[:, None].astype(np.float32)
    known = known.reshape(*volume.shape[:-2], *known.shape[1:])
    return volume.replace(RingFree(volume.data, known, centre))


def _are_there(moments: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.bool_]:
    """Return which of the three kinds of rings there are, by the moments of slices."""
    agreements = [agreement_of(each) for each in np.sum(moments, axis=0)]
    return np.array(agreements) >= _AGREEING


class SliceRings:
    """Takes rings out of single slices of a volume, about the middle that a few slices tell.

    Raises InputError if these show no rings.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        count = math.prod(volume.shape[:-2])
        self._centre = centre_of(volume)
        some = np.unique(np.linspace(0, count - 1, min(_SLICES, count)).round().astype(int))
        parts = [find_profiles(volume, self._centre, n, n + 1) for n in some.tolist()]
        self._there = _are_there([moments for _, moments in parts])
        if not self._there.any():
            raise InputError("No ring artefacts were found around the centre of the slices.")

    def corrected(self, index: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Return the slice at a position on the leading axes, float32, (y, x)."""
        values = np.asarray(self._volume.data[index] if index else self._volume.data[...])
        profile, _ = find_profile(values, self._centre)
        y, x = (np.arange(n) for n in values.shape)
        corrected: npt.NDArray[np.float32] = values.astype(np.float32) - rings_of(
            profile * self._there[:, None], self._centre, y, x
        )
        return corrected


def ring_facts(volume: Volume) -> tuple[dict[str, Any], str]:
    """Return what was taken out of a volume, for its record, and the same in a sentence."""
    if not isinstance(volume.data, RingFree):
        return {"deviation": 0.0}, f"No ring artefacts were found in {volume.name}."
    deviation, centre = volume.data.deviation, volume.data.centre
    unit = volume.metadata.get("value_unit", "")
    strength = f"{readable_number(deviation)} {unit}".strip()
    return {"deviation": deviation, "centre": list(centre)}, (
        f"Ring artefacts around x = {centre[1]:g}, y = {centre[0]:g} px were removed from "
        f"{volume.name}: SD {strength}."
    )


def _slice(volume: Volume, number: int) -> npt.NDArray[Any]:
    leading = volume.shape[:-2]
    index = tuple(int(n) for n in np.unravel_index(number, (1, *leading))[1:])
    return np.asarray(volume.data[index] if index else volume.data[...])
