"""Crop to the sample, or to the largest upright cylinder inside it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.fill_value import stated_fill_value
from hushpore.base.rescaled import Scaled, held
from hushpore.io.parts import Masked, cropped
from hushpore.pores.settings import PoreSettings
from hushpore.scan.exterior import Thumbnail, find_exterior, make_thumbnail, rolled, void_of

if TYPE_CHECKING:
    from hushpore.base.arrays import Mask
    from hushpore.base.volume import Volume

#: Connected components with a smaller share of the sample are noise in the air.
_SPECK = 0.01

#: Slices with less than this share of the typical cross-section are the ends of the sample.
_END = 0.5

#: Words that `crop_to` takes in place of a box.
SAMPLE, CYLINDER = "sample", "cylinder"


def crop_to(volume: Volume, crop: str) -> Volume:
    """Return a part of a volume, with a note on it; a lazy volume stays on disk.

    Parameters
    ----------
    volume : Volume
        2D or 3D; time and channel axes are kept whole.
    crop : str
        A box, as for `hushpore.io.parts.cropped`; ``"sample"``: the box around the sample, without
        air and padding beyond it; or ``"cylinder"``: the largest upright cylinder (in 2D: circle)
        inside the sample. Voxels outside the cylinder get a fill value, which jobs exclude.

    Returns
    -------
    Volume
        Its origin is the place of the part.

    Raises
    ------
    InputError
        If the box is invalid, the sample cannot hold a cylinder, or no fill value is free.

    Examples
    --------
    >>> from hushpore.sample_data import core_phantom
    >>> crop_to(core_phantom().volume, "sample").shape
    (64, 162, 164)
    """
    word = crop.strip().lower()
    if word == SAMPLE:
        return _to_sample(volume)
    if word == CYLINDER:
        return cropped_to_cylinder(volume, find_cylinder(volume))
    return cropped(volume, crop)


def sample_box(volume: Volume) -> str:
    """Return the box around the sample as `hushpore.io.parts.cropped` takes it.

    The sample is found in a thumbnail of the volume, as for the exclusion of surrounding air, so
    the box has a margin of one step of the thumbnail. Without air or padding it is the whole
    volume.
    """
    view = _View.of(volume)
    present = [view.sample.any(axis=tuple({0, 1, 2} - {axis})) for axis in range(3)]
    places = [np.flatnonzero(each) for each in present]
    if not places[0].size:
        return ",".join(":" for _ in volume.spatial_shape)
    ends = [(max(at[0] - 1, 0), at[-1] + 2) for at in places]
    borders = [[*each, n] for each, n in zip(view.starts, view.shape, strict=True)]
    ranges = [
        f"{border[low]}:{border[min(high, len(border) - 1)]}"
        for border, (low, high) in zip(borders, ends, strict=True)
    ]
    return ",".join(ranges[-volume.n_spatial :])


def box_of(volume: Volume, crop: str) -> str:
    """Return the box that `crop_to` reads of a volume."""
    word = crop.strip().lower()
    if word == CYLINDER:
        return find_cylinder(volume).box
    return sample_box(volume) if word == SAMPLE else crop


def _to_sample(volume: Volume) -> Volume:
    box = sample_box(volume)
    part = cropped(volume, box)
    if part.shape == volume.shape:
        note = "No air or padding was found around the sample, so nothing was cropped."
        return volume.replace(volume.data, notes=[*volume.notes, note])
    return part


@dataclasses.dataclass(frozen=True, eq=False)
class Cylinder:
    """An upright cylinder of a volume; in 2D, a circle."""

    box: str  # as `hushpore.io.parts.cropped` takes it
    outside: Mask  # (y, x) of the box
    radius: float  # in the unit of the volume
    fill: float  # stored value of the voxels outside it


def find_cylinder(volume: Volume) -> Cylinder:
    """Return the largest upright cylinder inside the sample.

    Raises InputError if there is none, or no fill value is free.
    """
    from scipy import ndimage

    view = _View.of(volume)
    areas = view.sample.sum(axis=(1, 2))
    typical = float(np.median(areas[areas > 0])) if areas.any() else 0.0
    kept = np.flatnonzero(areas >= _END * typical)
    # pores open to the outside of a slice are part of its cross-section
    common = np.logical_and.reduce([ndimage.binary_fill_holes(view.sample[at]) for at in kept])
    steps = view.steps[1:]
    # the border of the image is outside, too
    depth = ndimage.distance_transform_edt(np.pad(common, 1), sampling=steps)[1:-1, 1:-1]
    # the edge of the sample is known to one step
    radius = float(depth.max()) - max(steps)
    sizes = volume.spacing[-2:]
    if not typical or radius < 2 * max(steps):
        raise InputError(
            f"No upright cylinder fits into the sample of {volume.name}. Crop to a box, or to the "
            "sample."
        )
    deepest = np.argwhere(depth >= depth.max() - 0.5 * min(steps)).mean(0)
    lengths = volume.spatial_shape[-2:]
    at = [int(place) for place in (deepest + 0.5) * view.pixels]
    half = [int(radius / size) for size in sizes]
    ranges = [
        f"{max(centre - far, 0)}:{min(centre + far + 1, n)}"
        for centre, far, n in zip(at, half, lengths, strict=True)
    ]
    if volume.n_spatial == 3:
        ranges.insert(0, f"{view.starts[0][kept[0]]}:{view.starts[0][kept[-1]] + 1}")
    parts = [
        (np.arange(max(centre - far, 0), min(centre + far + 1, n)) - centre) * size / radius
        for n, centre, far, size in zip(lengths, at, half, sizes, strict=True)
    ]
    outside = parts[0][:, None] ** 2 + parts[1] ** 2 > 1
    return Cylinder(",".join(ranges), outside, radius, _free_value(volume, view.small))


def cropped_to_cylinder(volume: Volume, cylinder: Cylinder) -> Volume:
    """Return the box of a cylinder with its fill value outside, and a note; lazy if on disk."""
    part, fill = cropped(volume, cylinder.box), cylinder.fill
    data = part.data
    stored = Masked(held(data), cylinder.outside, fill)
    value = fill
    if isinstance(data, Scaled):
        value = fill * float(data.slope) + float(data.intercept)
    unit = "voxels" if volume.unit == "pixel" else volume.unit
    note = (
        f"Only the upright cylinder with radius {cylinder.radius:.4g} {unit} inside the sample was "
        f"kept; voxels outside it have the fill value {value:g}."
    )
    return dataclasses.replace(
        part,
        data=data.with_stored(stored) if isinstance(data, Scaled) else stored,
        notes=[*part.notes, note],
        metadata={**part.metadata, "padding_value": value},
    )


def _free_value(volume: Volume, small: Thumbnail) -> float:
    """Return a fill value that the stored values do not have.

    Raises InputError if all values of the data type are in use.
    """
    data = volume.data
    slope, intercept = 1.0, 0.0
    if isinstance(data, Scaled):
        if data.slope.ndim or data.intercept.ndim:
            raise InputError(
                f"The slices of {volume.name} are rescaled differently, so no common fill value "
                "can mark voxels outside the cylinder. Save it as TIFF first."
            )
        slope, intercept = float(data.slope), float(data.intercept)
    stated = stated_fill_value(volume.metadata)
    if stated is not None:
        return round((stated - intercept) / slope, 6)
    ends = (np.array([small.values.min(), small.values.max()], np.float64) - intercept) / slope
    low, high = ends.min(), ends.max()
    dtype = np.dtype(held(data).dtype)
    if dtype.kind == "f":
        return float(dtype.type(low - max(high - low, 1.0)))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        for value in (max(info.min, 2 * low - high), min(info.max, 2 * high - low)):
            if not low <= value <= high:
                return float(round(value))
    raise InputError(
        f"{volume.name} uses all values of {dtype.name}, so none is left to mark voxels outside "
        "the cylinder. Crop to a box instead, or to the sample."
    )


@dataclasses.dataclass(frozen=True)
class _View:
    """The sample in a thumbnail of a volume, and where the thumbnail lies in it."""

    small: Thumbnail
    sample: Mask  # (z, y, x) of the thumbnail
    starts: list[list[int]]  # along each axis the voxel that each place of the thumbnail starts at
    shape: tuple[int, ...]  # z, y, x of the volume
    steps: tuple[float, ...]  # of the thumbnail, in the unit of the volume
    pixels: int  # step of the thumbnail along y and x, in voxels

    @classmethod
    def of(cls, volume: Volume) -> _View:
        from scipy import ndimage

        for axis in volume.axes[: volume.ndim - volume.n_spatial]:
            volume = volume.at(**{axis: 0})
        small = make_thumbnail(volume)
        settings = PoreSettings()
        around = find_exterior(volume, settings, small)
        sample = ~small.padded
        if around.treatment != "keep":
            void = void_of(small, around.apply(settings))
            assert void is not None, "there is air"
            sample &= ~rolled(void | small.padded, small, around.radius)
            parts, _ = ndimage.label(sample, np.ones((3, 3, 3), np.bool_))
            sizes = np.bincount(parts.ravel())
            sizes[0] = 0
            sample = (sizes >= _SPECK * sizes.sum())[parts] & sample
        shape: tuple[int, ...] = (1,) * (3 - volume.n_spatial) + volume.shape
        unit = min(volume.spacing)
        pixels = round(small.spacing[2] * unit / volume.spacing[-1])
        slices = np.linspace(0, shape[0] - 1, len(sample)).round().astype(int)
        plane: list[Any] = [list(range(0, n, pixels)) for n in shape[1:]]
        steps = tuple(step * unit for step in small.spacing)
        return cls(small, sample, [slices.tolist(), *plane], shape, steps, pixels)
