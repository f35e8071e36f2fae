"""Alignment of two scans of one sample by a rigid motion, with sub-voxel accuracy.

Phase correlation gives the first shift. Rotation and shift are then refined from coarse to fine by
Gauss-Newton steps on the grey values, with a gain and an offset between the scans (B. D. Lucas and
T. Kanade (1981), An iterative image registration technique, IJCAI, 674-679).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_unit
from hushpore.base.volume import require_grey
from hushpore.io.lazy_arrays import Derived
from hushpore.io.parts import binned, needed_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Mask
    from hushpore.base.volume import Volume

    Vector = Float64s

_FINEST, _COARSEST = 256, 48  # longest side of the images that are compared
_POINTS = 120_000  # voxels that are compared
_SMOOTH = 1.0  # Gaussian filter of both images, in voxels of the level
_STEPS = 40
_SETTLED = 1e-3  # last change of the motion at a corner, in voxels of the level
#: Correlation of the smoothed grey values, and overlap, below which two scans do not match.
_LEAST_CORRELATION, _LEAST_OVERLAP = 0.3, 0.1


@dataclass(frozen=True, eq=False)
class Alignment:
    """Rigid motion from a fixed scan to a moving one, both with axes z, y, x.

    A point at distance ``p`` from the centre of the fixed scan lies at ``rotation @ p + shift``
    from the same place in the moving scan; both in the unit of the volumes, from the first voxel.
    """

    rotation: Vector  # (3, 3)
    shift: Vector  # (3,)
    centre: Vector  # (3,), of the fixed scan
    overlap: float  # fraction of the fixed scan that the moving one covers
    correlation: float  # of the smoothed grey values within the overlap

    @property
    def angles(self) -> tuple[float, float, float]:
        """Rotation vector in degrees: the axis times the angle, along z, y, x."""
        from scipy.spatial.transform import Rotation

        x, y, z = Rotation.from_matrix(self.rotation[::-1, ::-1]).as_rotvec(degrees=True)
        return float(z), float(y), float(x)

    def of_moving(self, points: Vector) -> Vector:
        """Return the places (n, 3) in the moving scan of places in the fixed scan."""
        found: Vector = (points - self.centre) @ self.rotation.T + self.centre + self.shift
        return found


class Moved(Derived):
    """Lazy array of a moving scan on the grid of a fixed one, interpolated linearly, in float32.

    `moving`: the scan. `alignment`: its motion. `shape`, `spacing`: of the fixed scan. `fill`:
    value outside the moving scan.
    """

    def __init__(
        self,
        moving: Volume,
        alignment: Alignment,
        shape: tuple[int, ...],
        spacing: Sequence[float],
        fill: float,
    ) -> None:
        super().__init__(moving.data, shape, np.float32)
        self._chunk = 1  # a slab of the fixed scan takes oblique parts of the moving one
        self._fill = fill
        to_voxels = np.diag(1 / np.array(moving.spacing))
        self._matrix = to_voxels @ alignment.rotation @ np.diag(spacing)
        self._start = to_voxels @ alignment.of_moving(np.zeros((1, 3)))[0]

    def _read_part(self, keys: list[Any]) -> Array:
        from scipy import ndimage

        ranges, within = needed_ranges(keys, self.shape)
        values = np.full([high - low for low, high in ranges], self._fill, np.float32)
        if values.size:
            first = self._matrix @ [low for low, _ in ranges] + self._start
            ends = np.array(list(itertools.product(*((low, high - 1) for low, high in ranges))))
            corners = ends @ self._matrix.T + self._start
            lowest = np.maximum(np.floor(corners.min(0)).astype(int), 0)
            highest = np.minimum(np.ceil(corners.max(0)).astype(int) + 2, self._base.shape)
            if (lowest < highest).all():
                box = tuple(slice(*each) for each in zip(lowest, highest, strict=True))
                part = np.asarray(self._base[box], np.float32)
                ndimage.affine_transform(
                    part, self._matrix, first - lowest, values.shape, values, 1, "constant",
                    self._fill, prefilter=False,
                )  # fmt: skip
        found: Array = values[within]
        return found


def aligned(moving: Volume, fixed: Volume) -> tuple[Volume, Alignment]:
    """Return a scan on the grid of another scan of the same sample.

    Parameters
    ----------
    moving : Volume
        3D, in memory or on disk; shifted and rotated by some degrees against `fixed`.
    fixed : Volume
        3D; its grid stays. The grey values may differ by a gain and an offset.

    Returns
    -------
    Volume
        A lazy volume in float32 with the shape, voxel size and origin of `fixed`, interpolated
        linearly. Voxels outside `moving` have a fill value below all others.
    Alignment
        Rotation, shift, overlap and correlation.

    Raises
    ------
    InputError
        If the volumes are not 3D grey values of the same unit, or do not match.

    Examples
    --------
    >>> from scipy import ndimage
    >>> from hushpore.base.volume import Volume
    >>> noise = np.random.default_rng(0).normal(size=(40, 40, 40))
    >>> sample = ndimage.gaussian_filter(noise, 2)
    >>> moved, found = aligned(Volume(sample[:, 3:]), Volume(sample[:, :-3]))
    >>> round(float(found.shift[1]), 1), round(found.overlap, 2)
    (-3.0, 0.92)
    """
    alignment = find_alignment(moving, fixed)
    plane = np.asarray(moving.data[moving.shape[0] // 2], np.float64)
    low, high = float(np.nanmin(plane)), float(np.nanmax(plane))
    fill = float(np.float32(low - max(high - low, 1.0)))
    data = Moved(moving, alignment, fixed.shape, fixed.spacing, fill)
    turned = max(map(abs, alignment.angles))
    shift = ", ".join(f"{each:.4g}" for each in alignment.shift)
    unit = "voxels" if fixed.unit == "pixel" else readable_unit(fixed.unit)
    note = (
        f"Aligned with {fixed.name}: {100 * alignment.overlap:.0f} % of its volume overlaps; "
        f"shifted by {shift} {unit} (z, y, x) and rotated by up to {turned:.2g} degrees about an "
        f"axis; correlation {alignment.correlation:.2f}."
    )
    metadata = {key: value for key, value in moving.metadata.items() if key != "slice_positions"}
    volume = moving.replace(
        data,
        spacing=fixed.spacing,
        unit=fixed.unit,
        origin=fixed.origin,
        notes=[*moving.notes, note],
        metadata={**metadata, "padding_value": fill},
    )
    return volume, alignment


def find_alignment(moving: Volume, fixed: Volume) -> Alignment:
    """Return the rigid motion between two scans; see `aligned`."""
    for each in (moving, fixed):
        if each.axes != "zyx" or min(each.shape) < 8:
            raise InputError(
                f"{each.name} has axes {each.axes!r} and shape {each.shape}, but volumes of at "
                "least 8 voxels along z, y and x are aligned."
            )
        require_grey(each)
    if moving.unit != fixed.unit:
        raise InputError(
            f"The voxel size of {moving.name} is in {moving.unit}, that of {fixed.name} in "
            f"{fixed.unit}. Give both scans a voxel size in the same unit."
        )
    longest = max(fixed.shape)
    factor = math.ceil(longest / _FINEST)
    levels = [factor]
    while longest / (2 * levels[-1]) >= _COARSEST:
        levels.append(2 * levels[-1])
    centre = (np.array(fixed.shape) - 1) / 2 * np.array(fixed.spacing)
    # on disk every level would be read again
    finest = _Images.of(moving, fixed, factor)
    motions: list[Alignment] = []
    for level in reversed(levels):
        images = finest.coarser(level // factor)
        starts = motions or [
            Alignment(np.eye(3), shift, centre, 0.0, 0.0) for shift in images.shifts()
        ]
        found = [images.refined(start) for start in starts]
        motions = [max(found, key=lambda each: each.correlation * each.overlap**0.5)]
    (best,) = motions
    if best.correlation < _LEAST_CORRELATION or best.overlap < _LEAST_OVERLAP:
        raise InputError(
            f"{moving.name} and {fixed.name} do not match: correlation {best.correlation:.2f}, "
            f"overlap {100 * best.overlap:.0f} %. Check that both show the same sample, turned by "
            "less than about 10 degrees and shifted by less than half of its size."
        )
    return best


class _Image(NamedTuple):
    values: Float32s
    spacing: Vector
    first: Vector  # place of the first voxel


class _Images(NamedTuple):
    """Both scans at one resolution."""

    moving: _Image
    fixed: _Image

    @classmethod
    def of(cls, moving: Volume, fixed: Volume, factor: int) -> _Images:
        """Read both scans, binned."""
        found = []
        for volume in (moving, fixed):
            small = binned(volume, ",".join(str(min(factor, n)) for n in volume.shape))
            values = np.asarray(small.data, np.float32)
            finite = np.isfinite(values)
            if not finite.all():
                values = np.where(finite, values, np.median(values[finite]) if finite.any() else 0)
            first = np.array(small.origin) - np.array(volume.origin)
            found.append(_Image(values, np.array(small.spacing), first))
        return cls(*found)

    def coarser(self, factor: int) -> _Images:
        """Return means over blocks."""
        found = []
        for image in self:
            own = [min(factor, n) for n in image.values.shape]
            whole = (n // f * f for n, f in zip(image.values.shape, own, strict=True))
            cut = image.values[tuple(map(slice, whole))]
            blocks = [each for n, f in zip(cut.shape, own, strict=True) for each in (n // f, f)]
            spacing = image.spacing * own
            first = image.first + (spacing - image.spacing) / 2
            found.append(_Image(cut.reshape(blocks).mean((1, 3, 5)), spacing, first))
        return _Images(*found)

    def shifts(self) -> list[Vector]:
        """Return possible shifts: none, and those of phase and of cross correlation."""
        from scipy import ndimage
        from skimage.registration import phase_cross_correlation

        correlate: Any = phase_cross_correlation  # has no types

        # the grid of the fixed image
        step = self.fixed.spacing
        sides = np.array(self.moving.values.shape) * self.moving.spacing / step
        size = np.maximum(self.fixed.values.shape, np.rint(sides).astype(int))
        padded = []
        for image in self:
            values = image.values
            if not np.allclose(image.spacing, step, atol=0):
                values = ndimage.zoom(values, image.spacing / step, order=1)
            values = ndimage.gaussian_filter(values, _SMOOTH) - values.mean()
            room = np.zeros(size, np.float32)
            cut = tuple(slice(min(n, m)) for n, m in zip(size, values.shape, strict=True))
            room[cut] = values[cut]
            padded.append(room)
        found = [np.zeros(3)]
        for way in ("phase", None):
            shift, *_ = correlate(padded[1], padded[0], normalization=way)
            found.append(-np.asarray(shift, np.float64) * step)
        return found

    def refined(self, start: Alignment) -> Alignment:
        """Return a motion that minimises the difference of the grey values."""
        from scipy import ndimage
        from scipy.spatial.transform import Rotation

        moving, fixed = (ndimage.gaussian_filter(each.values, _SMOOTH) for each in self)
        slopes = [np.gradient(moving, axis=axis) / self.moving.spacing[axis] for axis in range(3)]
        every = max(1, math.ceil((fixed.size / _POINTS) ** (1 / 3)))
        index = (
            np.stack(
                np.meshgrid(*(np.arange(every // 2, n, every) for n in fixed.shape), indexing="ij")
            )
            .reshape(3, -1)
            .T
        )
        wanted = fixed[tuple(index.T)].astype(np.float64)
        places = index * self.fixed.spacing + self.fixed.first
        reach = float(np.linalg.norm(np.array(fixed.shape) * self.fixed.spacing)) / 2
        now = start
        for _ in range(_STEPS):
            grey, inside, at = self._sampled(moving, now, places)
            if np.count_nonzero(inside) < 100:
                return Alignment(now.rotation, now.shift, now.centre, 0.0, -1.0)
            slope = np.stack(
                [
                    ndimage.map_coordinates(each, at[inside].T, order=1, mode="nearest")
                    for each in slopes
                ],
                1,
            )
            here = (places[inside] - now.centre) @ now.rotation.T
            gain = grey.std() and wanted[inside].std() / grey.std()
            turned = np.cross(here[:, ::-1], slope[:, ::-1])[:, ::-1]
            design = np.column_stack(
                [gain * slope, gain * turned / reach, grey, np.ones(len(grey))]
            )
            step, *_ = np.linalg.lstsq(design.T @ design, design.T @ wanted[inside], rcond=1e-12)
            turn = Rotation.from_rotvec(step[3:6][::-1] / reach).as_matrix()[::-1, ::-1]
            now = Alignment(turn @ now.rotation, now.shift + step[:3], now.centre, 0.0, 0.0)
            if np.abs(step[:6] / self.fixed.spacing.min()).max() < _SETTLED:
                break
        grey, inside, _ = self._sampled(moving, now, places)
        related = 0.0
        if np.count_nonzero(inside) > 100 and grey.std() and wanted[inside].std():
            related = float(np.corrcoef(grey, wanted[inside])[0, 1])
        return Alignment(now.rotation, now.shift, now.centre, float(inside.mean()), related)

    def _sampled(
        self, moving: Float32s, motion: Alignment, places: Vector
    ) -> tuple[Vector, Mask, Vector]:
        """Return grey values of the moving image, which places lie inside, and their indices."""
        from scipy import ndimage

        at = (motion.of_moving(places) - self.moving.first) / self.moving.spacing
        # voxels reach half of their size beyond their centres
        within = (at >= -0.5) & (at <= np.array(moving.shape) - 0.5)
        inside: Mask = np.asarray(within.all(axis=1))
        found = ndimage.map_coordinates(moving, at[inside].T, np.float64, 1, "nearest")
        return found, inside, at
