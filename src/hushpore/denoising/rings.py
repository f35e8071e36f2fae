"""Detection and removal of ring artefacts in reconstructed slices.

A detector pixel with a constant error makes a ring around the rotation axis, or half a ring if
projections cover half a turn. A ring has the same value along its whole length; the image does not.
The differences of neighbouring pixels are therefore fitted with those of a radial profile, by
iteratively reweighted least squares (Tukey's biweight), so that edges of the image do not count.
Unlike methods that transform to polar coordinates, this never resamples the slice. Slow variations
with the radius are not rings, and are kept.

A profile is fitted to each quadrant. Their mean gives whole rings; the differences between top and
bottom, and between left and right, give half rings. Each of these three profiles is estimated twice
from independent quadrants and subtracted as far as the two estimates agree (a Wiener filter over
the radius), so that nothing is subtracted if there are no rings.

The idea of a ring as the common value of a circle is by Sijbers and Postnov,
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
from hushpore.device.backend import cpu_threads
from hushpore.scan.flat_blocks import cut_boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s, Mask
    from hushpore.base.volume import Volume

    Profile = Float64s

#: Distances of the compared pixels: short ones detect narrow rings, longer ones wider rings.
_LAGS = (1, 2, 4)

#: Standard deviations from which a difference counts as an edge, in each of the reweighted fits;
#: and in the fits that search for the centre.
_EDGES, _FEW_EDGES = (4.0, 3.0, 2.0, 2.0, 2.0, 2.0), (4.0, 2.0)

#: Standard deviation of the Gaussian that defines slow variations with the radius, in pixels.
_SMOOTH = 8.0

#: Widths of the Gaussians, in pixels, that average the strength of rings and the error of the
#: profile; and the weight of the error.
_NARROW, _WIDE, _ERROR_WEIGHT = 1.5, 8.0, 1.0

#: Approximate maximum number of rows of a slice in a fit, and of values for a median.
_ROWS, _VALUES = 512, 200_000

#: Number of slices for the search of the centre, rows of each, and the minimum gain in correlation
#: over the centre of the slices.
_SLICES, _FEW_ROWS, _BETTER = 5, 192, 0.1

#: Minimum correlation of two estimates of the profile for rings to exist; and the radius, in
#: pixels, up to which circles are too short for it.
_AGREEING, _SHORT = 0.35, 8

#: Maximum number of voxels and slices that are read at once.
_PIECE, _TOGETHER = 1 << 24, 32


def _compiled(function: Callable[..., None]) -> Any:
    """Compile a function on its first call, without the GIL, and cache it on disk if possible."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


@_compiled
def _add_differences(  # type: ignore[no-untyped-def]  # pragma: no cover (compiled)
    image, profiles, centre_y, centre_x, lag, limit, step, matrix, right
):
    """Add the equations of pixel pairs at a lag, along y and along x, to the normal equations.

    `image`: (y, x), float32. `profiles`: (4, radii): current estimate for each quadrant. `limit`:
    difference from which a pair is ignored. `step`: row step. `matrix`: (4, lags + 2, radii), the
    lower band for each quadrant, and `right`: (4, radii): changed in place.
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
                # padding has no rings
                if other == value:
                    continue
                radius = math.sqrt((v - centre_y) ** 2 + (u - centre_x) ** 2)
                m = int(radius)
                g = radius - m
                difference = other - value - ((1 - g) * profile[m] + g * profile[m + 1] - ring)
                ratio = (difference / limit) ** 2
                # also ignores NaN
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


def find_profile(image: Array, centre: tuple[float, float]) -> tuple[Profile, Float64s]:
    """Return the ring profile of a slice: grey values over the radius.

    `image`: (y, x), any real dtype; non-finite values are ignored. `centre`: of the rings, y and x
    in pixels.
    Returns: float64, shape (3, radii), at radii 0, 1, 2, ... pixels, for `rings_of`, each weighted
    by the agreement of its two estimates; and the moments for `agreement_of`.
    """
    profiles, halves, weight = _fit(image, centre, _LAGS, _EDGES, _ROWS)
    for number, (first, second) in enumerate(halves):
        # the error decreases with the length of the circle
        error = gaussian_filter1d((first - second) ** 2 / 4 * weight, _WIDE) / weight
        strength = gaussian_filter1d(profiles[number] ** 2, _NARROW)
        share = 1 - _ERROR_WEIGHT * error / np.maximum(strength, np.finfo(float).tiny)
        profiles[number] *= np.clip(share, 0, 1)
    return profiles, np.stack([_moments(each, weight, image.shape) for each in halves])


def _moments(halves: tuple[Profile, Profile], weight: Profile, shape: tuple[int, ...]) -> Float64s:
    # circles near the centre are too short, and those beyond the sides are incomplete
    whole = slice(_SHORT, min(shape) // 2)
    first, second, weight = (each[whole] for each in (*halves, weight))
    return np.array(
        [(a * b * weight).sum() for a, b in ((first, second), (first, first), (second, second))]
    )


def agreement_of(moments: Float64s) -> float:
    """Return the correlation of the two estimates of a ring profile.

    `moments`: as of `find_profile`, summed over slices.
    """
    both, first, second = moments
    return float(both / math.sqrt(first * second)) if first * second else 0.0


def _fit(
    image: Array,
    centre: tuple[float, float],
    lags: tuple[int, ...],
    edges: tuple[float, ...],
    rows: int,
) -> tuple[Profile, list[tuple[Profile, Profile]], Profile]:
    """Fit the profiles of a slice.

    Returns: shape (3, radii), for `rings_of`; the two estimates of each of the three; and the
    weight of each radius.
    """
    values = np.ascontiguousarray(image, np.float32)
    far = math.hypot(*(max(c, n - 1 - c) for c, n in zip(centre, image.shape, strict=True)))
    radii = int(far) + 2
    quadrants, step = np.zeros((4, radii)), max(1, image.shape[0] // rows)
    columns = np.arange(values.shape[1])
    # separately for each quadrant, so that chance errors of one do not affect the others
    for edge in edges:
        matrix, right = np.zeros((4, max(lags) + 2, radii)), np.zeros((4, radii))
        rings = rings_of(_components(quadrants), centre, np.arange(0, len(values), step), columns)
        rest = values[::step] - rings
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
    """Return the mean of the profiles of four quadrants, and their differences along y and x."""
    a, b, c, d = quadrants
    return np.stack([a + b + c + d, c + d - a - b, b + d - a - c]) / 4


def _deviation(rest: Float32s, lag: int) -> float:
    """Return a robust standard deviation of differences along x; 0 if all are zero."""
    differences = np.abs(rest[:, lag:] - rest[:, :-lag]).ravel()
    differences = differences[:: max(1, differences.size // _VALUES)]
    differences = differences[np.isfinite(differences) & (differences > 0)]
    return 1.4826 * float(np.median(differences)) if differences.size else 0.0


def _solved(matrix: Profile, right: Profile) -> Profile:
    # differences do not determine the mean, nor radii without pixel pairs: regularise
    largest = float(matrix[0].max())
    if not largest:
        return np.zeros_like(right)
    banded = matrix.copy()
    banded[0] += 1e-3 * matrix[0].mean() + 1e-9 * largest
    solution: Profile = linalg.solveh_banded(banded, right, lower=True)
    return solution


def _times(matrix: Profile, profile: Profile) -> Profile:
    """Return the product of a symmetric matrix, given as its lower band, and a profile."""
    product: Profile = matrix[0] * profile
    for below in range(1, len(matrix)):
        product[below:] += matrix[below, :-below] * profile[:-below]
        product[:-below] += matrix[below, :-below] * profile[below:]
    return product


def _without_trend(profile: Profile, weight: Profile) -> Profile:
    """Return a profile without its slow variation with the radius."""
    trend = gaussian_filter1d(profile * weight, _SMOOTH) / gaussian_filter1d(weight, _SMOOTH)
    rings: Profile = profile - trend
    return rings


def rings_of(
    profiles: Array, centre: tuple[float, float], rows: Int64s, columns: Int64s
) -> Float32s:
    """Return the grey values of rings at pixels of a slice.

    `profiles`: shape (..., 3, radii): whole rings; values added below the centre and subtracted
    above it; values added to the right and subtracted to the left. `rows`, `columns`: y and x of
    the pixels; any number of axes.
    Returns: float32, shape (..., *rows, *columns).
    """
    down = (rows - centre[0]).reshape(rows.shape + (1,) * columns.ndim)
    across = columns - centre[1]

    def values_at(profile: Float32s, k: Int64s) -> Any:
        return profile[..., k]

    return _sum_of_sides(profiles, down, across, values_at)


def _sum_of_sides(
    profiles: Array, down: Array, across: Array, values_at: Callable[[Float32s, Int64s], Float32s]
) -> Float32s:
    """Return the sum of whole and half rings at pixel positions relative to the centre.

    `values_at`: returns a profile (..., radii) at integer radii, in the shape of the result.
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
        profile = profiles[..., number, :].astype(np.float32)
        if profile.any():
            found += side * ((1 - f) * values_at(profile, k) + f * values_at(profile, k + 1))
    return found


def find_centre(slices: list[Array]) -> tuple[float, float]:
    """Return the centre of the rings, within 2.5 pixels of the centre of the slices.

    There the ring profiles of opposite quadrants agree best.
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
    """A lazy array from which rings are subtracted on reading.

    `data`: (..., y, x), NumPy or lazy. `profiles`: float32, shape (..., 3, radii): of each slice,
    for `rings_of`. `centre`: of the rings, y and x in pixels.
    """

    data: Any
    profiles: Float32s
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
        """Chunks of the underlying array, or None."""
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

    def __getitem__(self, key: Any) -> Float32s:
        """Return the values at a basic index: integers, slices and Ellipsis."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(each is Ellipsis for each in keys):
            at = next(number for number, each in enumerate(keys) if each is Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        keys += [slice(None)] * (self.ndim - len(keys))
        values = np.asarray(self.data[tuple(keys)], np.float32)
        y, x = (np.arange(n)[each] for n, each in zip(self.shape[-2:], keys[-2:], strict=True))
        return values - rings_of(self.profiles[tuple(keys[:-2])], self.centre, y, x)

    def boxes(self, corners: Int64s, size: Sequence[int]) -> Float32s | None:
        """Return the boxes at some corners, (n, *size), all at once; None for a lazy array."""
        values = cut_boxes(self.data, corners, size)
        if values is None:
            return None
        # the slice of each part of a box, and the positions of its pixels
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
        rings = _sum_of_sides(flat, down, across, lambda profile, k: profile[slices, k])
        return np.asarray(values, np.float32) - rings

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return all values."""
        values = self[...]
        return values if dtype is None else values.astype(dtype)


def without_rings(volume: Volume) -> Generator[float, None, Volume]:
    """Find the rings in every slice of a volume, and subtract them on reading.

    `volume`: NumPy or lazy; every slice is read once.
    Yields: the completed share.
    Returns: the volume with `RingFree` data, or unchanged if there are no rings.
    """
    centre = centre_of(volume)
    count = math.prod(volume.shape[:-2])
    parts: list[SliceProfiles] = []
    for first, last in slice_ranges(volume):
        parts.append(find_profiles(volume, centre, first, last))
        yield last / count
    return subtract_rings(volume, centre, parts)


#: Ring profiles of some slices, and the summed moments of `find_profile`.
SliceProfiles: TypeAlias = "tuple[Float32s, Float64s]"


def slice_ranges(volume: Volume) -> list[tuple[int, int]]:
    """Return the ranges of slices that are processed together: first, and last + 1."""
    count = math.prod(volume.shape[:-2])
    step = max(1, min(_PIECE // math.prod(volume.shape[-2:]), _TOGETHER))
    return [(first, min(first + step, count)) for first in range(0, count, step)]


def centre_of(volume: Volume) -> tuple[float, float]:
    """Return the centre of the rings of a volume, from a few slices."""
    count = math.prod(volume.shape[:-2])
    some = np.unique(np.linspace(0, count - 1, min(_SLICES, count)).round().astype(int))
    return find_centre([_slice(volume, number) for number in some.tolist()])


def find_profiles(
    volume: Volume, centre: tuple[float, float], first: int, last: int
) -> SliceProfiles:
    """Return the ring profiles of the slices `first` to `last - 1`, counted over leading axes."""
    images = [_slice(volume, number) for number in range(first, last)]
    with ThreadPoolExecutor(cpu_threads()) as threads:
        found = list(threads.map(lambda image: find_profile(image, centre), images))
    profiles, moments = zip(*found, strict=True)
    return np.stack(profiles).astype(np.float32), np.sum(moments, axis=0)


def subtract_rings(
    volume: Volume, centre: tuple[float, float], parts: Sequence[SliceProfiles]
) -> Volume:
    """Return a volume with rings subtracted on reading. `parts`: profiles of all its slices."""
    profiles, moments = zip(*parts, strict=True)
    is_present = _kinds_present(moments)
    if not is_present.any():
        return volume
    rings = np.concatenate(profiles) * is_present[:, None].astype(np.float32)
    rings = rings.reshape(*volume.shape[:-2], *rings.shape[1:])
    return volume.replace(RingFree(volume.data, rings, centre))


def _kinds_present(moments: Sequence[Float64s]) -> Mask:
    """Return which of the three kinds of rings are present, from the moments of slices."""
    agreements = [agreement_of(each) for each in np.sum(moments, axis=0)]
    return np.array(agreements) >= _AGREEING


class SliceRings:
    """Removes rings from single slices of a volume, around a centre found in a few slices.

    Raises InputError if these slices have no rings.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        count = math.prod(volume.shape[:-2])
        self._centre = centre_of(volume)
        some = np.unique(np.linspace(0, count - 1, min(_SLICES, count)).round().astype(int))
        parts = [find_profiles(volume, self._centre, n, n + 1) for n in some.tolist()]
        self._is_present = _kinds_present([moments for _, moments in parts])
        if not self._is_present.any():
            raise InputError("No ring artefacts were found around the centre of the slices.")

    def corrected(self, index: tuple[int, ...]) -> Float32s:
        """Return the slice at a position on the leading axes, float32, (y, x)."""
        values = np.asarray(self._volume.data[index] if index else self._volume.data[...])
        profile, _ = find_profile(values, self._centre)
        y, x = (np.arange(n) for n in values.shape)
        corrected: Float32s = values.astype(np.float32) - rings_of(
            profile * self._is_present[:, None], self._centre, y, x
        )
        return corrected


def ring_facts(volume: Volume) -> tuple[dict[str, Any], str]:
    """Return the facts of a ring correction for the record, and a note on it."""
    if not isinstance(volume.data, RingFree):
        return {"deviation": 0.0}, f"No ring artefacts were found in {volume.name}."
    deviation, centre = volume.data.deviation, volume.data.centre
    unit = volume.metadata.get("value_unit", "")
    strength = f"{readable_number(deviation)} {unit}".strip()
    return {"deviation": deviation, "centre": list(centre)}, (
        f"Ring artefacts around x = {centre[1]:g}, y = {centre[0]:g} px were removed from "
        f"{volume.name}: SD {strength}."
    )


def _slice(volume: Volume, number: int) -> Array:
    leading = volume.shape[:-2]
    index = tuple(int(n) for n in np.unravel_index(number, (1, *leading))[1:])
    return np.asarray(volume.data[index] if index else volume.data[...])
