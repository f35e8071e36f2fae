"""Volume: an image stack with named axes, voxel size and a memory of where it came from."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES, readable_bytes, readable_unit, unit_of
from hushpore.base.rescaled import Scaled, held
from hushpore.base.safe_text import on_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

SPATIAL_AXES = ("zyx", "yx")

#: What is accepted wherever a volume is.
VolumeLike: TypeAlias = "Volume | npt.ArrayLike"

# metadata that say something of grey values, and nothing of what is measured from them
_OF_GREY = ("value_unit", "padding_value", "contrast_limits", "windows")

# so that the volume of a voxel is a number too
_SMALLEST_STEP = 1e-60
#: Characters of a unit at most.
LONGEST_UNIT = 40
# says in the metadata of a volume, and so in files, that it holds labels
_LABELS = "labels"
_UNKNOWN_UNIT = (
    f"The unit {{!r}} is not known ({', '.join(METRES)} are, or pixel): lengths are stated in it, "
    "and never converted."
)


@dataclass(frozen=True, eq=False)
class Volume:
    """An image stack, 2D or 3D, with optional leading time and channel axes.

    Parameters
    ----------
    data : array_like
        Boolean, integer or floating-point values; NumPy, dask, `Scaled` integers of a scanner, or
        what lies on disk; any byte order.
    spacing : float or sequence of float, optional
        Size of a voxel along each spatial axis, in z, y, x order (y, x in 2D), in `unit`.
    unit : str, optional
        Unit of `spacing`: ``"mm"``, ``"um"``, ... or ``"pixel"`` where it is not known.
    axes : str, optional
        One letter an axis: ``t``, ``c``, ``z``, ``y``, ``x``; the last are ``zyx`` or ``yx``.
        By default taken from the number of axes: ``"yx"``, ``"zyx"``, ``"tzyx"``, ``"tczyx"``.
    name : str, optional
        A short name for layers and files.
    source : str, optional
        The file or folder that it was read from.
    origin : sequence of float, optional
        Position of the first voxel's centre, per spatial axis, in `unit`.
    notes : sequence of str, optional
        What the reader met that the user should know.
    metadata : dict, optional
        Further facts of the source, JSON values only.
    auxiliary : dict of str to array_like or Volume, optional
        What lies in the same place, by name: labels, masks and images of the same spatial shape,
        points, (n, ndim) voxel coordinates, and other scans of the same thing, which are volumes. A
        setting of a job may name one.

    Raises
    ------
    InputError
        If the array, its axes or its spacing cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> scan = Volume(np.zeros((4, 8, 8), np.uint16), spacing=(5.0, 0.5, 0.5), unit="mm")
    >>> scan.axes, scan.spacing
    ('zyx', (5.0, 0.5, 0.5))
    """

    data: Any
    spacing: tuple[float, ...] = ()
    unit: str = ""
    axes: str = ""
    name: str = "volume"
    source: str = ""
    origin: tuple[float, ...] = ()
    notes: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    auxiliary: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = as_array(self.data, "An image")
        dtype = np.dtype(data.dtype)
        if dtype.kind not in "buif":
            raise InputError(
                f"An image needs numbers (boolean, integer or floating point); got {dtype}."
            )
        if not isinstance(self.axes, str):
            raise InputError(
                f"axes are letters, one for each, for example 'zyx'; got {self.axes!r}."
            )
        axes = self.axes or _default_axes(data.shape)
        _check_axes(axes, data.shape)
        n_spatial = _n_spatial(axes)
        known = self.spacing is not None and np.size(self.spacing) > 0
        spacing = _per_axis(self.spacing, 1.0, n_spatial, "spacing")
        if not all(_SMALLEST_STEP < step < 1 / _SMALLEST_STEP for step in spacing):
            raise InputError(
                f"The spacing must be above zero on every axis, and from {_SMALLEST_STEP:g} to "
                f"{1 / _SMALLEST_STEP:g}; got {spacing}."
            )
        unit = on_one_line(str(self.unit), LONGEST_UNIT) or "pixel"
        # one name for each unit, so that every writer knows it
        named = unit_of(unit)
        name, factor = named or (unit, 1.0)
        origin = _per_axis(self.origin, 0.0, n_spatial, "origin")
        values = {
            "data": data,
            "axes": axes,
            "spacing": tuple(step * factor for step in spacing),
            "unit": name,
            "origin": tuple(place * factor for place in origin),
            "notes": list(self.notes),
        }
        if known and not self.unit:
            values["notes"].append("The unit of the spacing is not stated; shown as pixels.")
        unknown = _UNKNOWN_UNIT.format(unit)
        if named is None and unknown not in values["notes"]:
            values["notes"].append(unknown)
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(int(n) for n in self.data.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        dtype: np.dtype[Any] = np.dtype(self.data.dtype)
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes, leading ones included."""
        return len(self.shape)

    @property
    def n_spatial(self) -> int:
        """Number of spatial axes, 2 or 3."""
        return _n_spatial(self.axes)

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """Length of the spatial axes."""
        return self.shape[-self.n_spatial :]

    @property
    def leading_shape(self) -> tuple[int, ...]:
        """Length of the time and channel axes."""
        return self.shape[: -self.n_spatial]

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes, as they are kept."""
        return math.prod(self.shape) * int(np.dtype(held(self.data).dtype).itemsize)

    @property
    def voxel_size(self) -> float:
        """Volume (3D) or area (2D) of one voxel, in `unit` to the third or second power."""
        return math.prod(self.spacing)

    def array(self) -> npt.NDArray[Any]:
        """Return the values as a C-contiguous NumPy array in native byte order."""
        values = np.asarray(self.data)
        return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))

    def replace(self, data: Any, **changes: Any) -> Self:
        """Return a volume of the same place in space with other values."""
        return dataclasses.replace(self, data=data, **changes)

    def derived(self, data: Any, name: str) -> Self:
        """Return a volume of the same place whose values are no grey values: labels, or lengths.

        `data`: of the shape of this volume. Nothing that is known of the grey values is kept.
        """
        kept = {key: value for key, value in self.metadata.items() if key not in _OF_GREY}
        return self.replace(data, name=name, metadata=kept)

    def as_labels(self, labels: Any, name: str) -> Volume:
        """Return labels of what is in this volume, in the same place, which are known as such.

        `labels`: integers of its shape. `name`: of the labels.
        """
        volume = self.derived(labels, name)
        return volume.replace(labels, metadata=volume.metadata | {_LABELS: True})

    @property
    def holds_labels(self) -> bool:
        """Whether values are known to be numbers of pores or phases, and no grey values."""
        return bool(self.metadata.get(_LABELS)) and self.dtype.kind in "iub"

    def auxiliary_of(self, settings: object, setting: str) -> Any:
        """Return what a setting names of the things beside this volume.

        `settings`: of a job. `setting`: which of them; see `hushpore.base.settings.Option`.
        Returns: an array of the spatial shape of this volume; or points, float64 of shape
        (n, `n_spatial`) or (n, `ndim`); or the values of another scan, of the shape of this one.
        None where the setting names nothing.
        Raises InputError if there is nothing of that name, or it does not fit.
        """
        name = getattr(settings, setting)
        if not name:
            return None
        if name not in self.auxiliary:
            known = ", ".join(repr(key) for key in self.auxiliary) or "nothing"
            raise InputError(
                f"{setting} names {name!r}, but beside {self.name} there is {known}. "
                "Pass the array itself, a file on the command line, or choose a layer."
            )
        found = self.auxiliary[name]
        if isinstance(found, Volume):
            self._require_same_grid(found, setting)
            return found.data
        found = as_array(found, f"{setting}: {name}")
        shape, dtype = tuple(found.shape), np.dtype(found.dtype)
        if dtype.kind in "buif" and shape == self.spatial_shape:
            return found
        if len(shape) == 2 and shape[1] in (self.n_spatial, self.ndim) and dtype.kind in "uif":
            return np.asarray(found, np.float64)
        raise InputError(
            f"{setting}: {name} has shape {shape}, which does not fit {self.name}. Expected "
            f"{self.spatial_shape}, or points of shape (n, {self.n_spatial}) where it takes points."
        )

    def _require_same_grid(self, other: Volume, setting: str) -> None:
        """Check that another scan has the axes and the voxels of this one."""
        if (other.axes, other.shape) != (self.axes, self.shape):
            raise InputError(
                f"{setting}: {other.name} has shape {other.shape} ({other.axes}), but {self.name} "
                f"has {self.shape} ({self.axes}). Two scans of the same thing need the same "
                "voxels: reconstruct or crop both alike."
            )
        # in pixels it is not known
        is_known = self.unit == other.unit != "pixel"
        if is_known and not np.allclose(other.spacing, self.spacing, rtol=1e-3):
            raise InputError(
                f"{setting}: the voxels of {other.name} are {other.size_in_words}, those of "
                f"{self.name} {self.size_in_words}. Two scans of the same thing need the same "
                "voxels: reconstruct both alike, or correct the voxel size."
            )

    def at(self, /, **index: int) -> Volume:
        """Return the volume at one position of leading axes, for example ``scan.at(t=0)``.

        Raises
        ------
        InputError
            If an axis is not a leading one of this volume, or the index is outside it.
        """
        key: list[int | slice] = [slice(None)] * self.ndim
        leading = list(self.axes[: -self.n_spatial])
        for axis, position in index.items():
            size = self.shape[leading.index(axis)] if axis in leading else 0
            if not -size <= position < size:
                raise InputError(
                    f"{axis}={position} is not in this volume: its axes are {self.axes} "
                    f"with shape {self.shape}."
                )
            key[leading.index(axis)] = position
        axes = "".join(axis for axis in self.axes if axis not in index)
        # what lies on disk stays there where it can tell of its positions
        select = getattr(self.data, "at_positions", self.data.__getitem__)
        return self.replace(select(tuple(key)), axes=axes)

    @property
    def size_in_words(self) -> str:
        """The voxel size as people write it, or that it is unknown."""
        if self.unit == "pixel":
            return "voxel size unknown"
        spacing = " x ".join(f"{step:.4g}" for step in self.spacing)
        return f"{spacing} {readable_unit(self.unit)}"

    @property
    def facts(self) -> str:
        """One line that says what this is: shape, voxel size, type and memory."""
        shape = " x ".join(str(n) for n in self.shape)
        if self.axes not in SPATIAL_AXES:
            shape += f" ({self.axes})"
        kind = self.dtype.name
        if isinstance(self.data, Scaled):
            kind = f"{held(self.data).dtype} → {self.metadata.get('value_unit', kind)}"
        return f"{shape} · {self.size_in_words} · {kind} · {readable_bytes(self.nbytes)}"


def as_array(values: Any, what: str) -> Any:
    """Return what has a shape and a type as it is, and anything else as an array.

    `what`: what it is, as a message begins.
    Raises InputError if it is none, or some of it is masked.
    """
    # to load it takes 0.06 s, and where it is not loaded there is no such array
    if "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise InputError(
                f"{what} is a masked array, whose mask would be lost: "
                f"{np.count_nonzero(values.mask)} of its values are masked. Fill them (.filled), "
                "and hand over the mask as one of the sample (sample_mask) or of what is left out."
            )
        return values.data
    if hasattr(values, "shape") and hasattr(values, "dtype"):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} needs rows of one length; {error}.") from None


def as_volume(image: VolumeLike, **known: Any) -> Volume:
    """Return `image` itself if it is a volume, else a volume around the array.

    `image`: an image stack, axes in z, y, x order. ``**known``: passed on to `Volume` for an array:
    ``spacing``, ``unit``, ``axes``, ``name``.
    """
    if isinstance(image, Volume):
        return dataclasses.replace(image, **known) if known else image
    return Volume(image, **known)


def how_to_choose(volume: Volume) -> str:
    """Return the sentence that says how one image is chosen of a volume with leading axes."""
    leading = volume.axes[: -volume.n_spatial]
    index = ", ".join(f"{axis}=0" for axis in leading)
    slices = " If its images are slices, read it with axes='zyx'." if len(leading) == 1 else ""
    return f"Choose one with volume.at({index}).{slices if volume.n_spatial == 2 else ''}"


def require_values(volume: Volume) -> npt.NDArray[Any]:
    """Return the array of a volume after checking that it can be worked on.

    Raises InputError if it is empty, constant, or holds NaN or infinite values.
    """
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")
    values = volume.array()
    bad = 0
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int(values.size - np.isfinite(values).sum())
    require_range(volume, values.min(), values.max(), bad)
    return values


def require_grey(volume: Volume, otherwise: str = "") -> None:
    """Check that a volume is not known to hold labels, for which grey values would be taken.

    `otherwise`: what else can be done with labels, as the end of a sentence. Labels that were made
    boolean are a mask, and none any more.
    Raises InputError if it holds labels.
    """
    if volume.holds_labels and volume.dtype != np.bool_:
        raise InputError(
            f"{volume.name} holds labels, a number for each pore or phase, but grey values are "
            f"needed. Give the scan that they are of{otherwise}."
        )


def require_range(volume: Volume, lowest: Any, highest: Any, bad: int) -> None:
    """Check the range of the values of a volume, as `require_values` does.

    `lowest`, `highest`: of all values. `bad`: how many are NaN or infinite.
    Raises InputError if there are any, or all values are the same.
    """
    size = math.prod(volume.shape)
    if bad:
        raise not_finite(volume, bad)
    if volume.dtype != np.bool_ and size > 1 and lowest == highest:
        raise InputError(
            f"{volume.name} is constant: every value is {lowest}. "
            "There is nothing to denoise or to segment."
        )


def not_finite(volume: Volume, bad: int) -> InputError:
    """Return the error that so many values of a volume are NaN or infinite."""
    return InputError(
        f"{volume.name} holds {bad} NaN or infinite values of {math.prod(volume.shape)}: voxels "
        "without a grey value, often those outside of a reconstruction. Give them one first, for "
        "example that of air; in Python with numpy.nan_to_num."
    )


def _default_axes(shape: tuple[int, ...]) -> str:
    n = len(shape)
    if n < 2 or n > 5:
        raise InputError(
            f"An image stack needs 2 to 5 axes (y x, z y x, and time or channels before them); "
            f"got {n}, shape {tuple(shape)}."
        )
    # a photograph with its colours last would otherwise pass as a stack 3 pixels wide
    if n == 3 and shape[-1] in (3, 4) and min(shape[:2]) > 16:
        raise InputError(
            f"Shape {tuple(shape)} looks like a colour photograph (RGB), but grey values are "
            "needed. Convert it first, for example with skimage.color.rgb2gray; if it is a stack, "
            "say so with axes='zyx'."
        )
    return "tczyx"[-n:] if n != 4 else "tzyx"


def _check_axes(axes: str, shape: tuple[int, ...]) -> None:
    spatial = axes.endswith("yx")
    if not spatial or len(axes) != len(shape) or len(set(axes)) != len(axes):
        raise InputError(
            f"axes={axes!r} does not fit shape {tuple(shape)}: expected one letter an axis, "
            "the last ones 'zyx' or 'yx', for example 'tzyx'."
        )
    leading = axes[: -_n_spatial(axes)]
    if not set(leading) <= set("tc"):
        raise InputError(f"axes={axes!r}: before 'zyx' or 'yx' only 't' and 'c' are known.")


def _n_spatial(axes: str) -> int:
    return 3 if axes.endswith("zyx") else 2


def _per_axis(
    values: float | Sequence[float] | None, default: float, count: int, what: str
) -> tuple[float, ...]:
    if values is None or np.size(values) == 0:
        return (default,) * count
    try:
        given = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError, OverflowError):
        given = np.empty(0)
    if given.size == 1:
        given = np.repeat(given, count)
    if given.shape != (count,) or not np.isfinite(given).all():
        raise InputError(
            f"The {what} needs {count} finite numbers, in {'zyx'[-count:]} order; got {values}."
        )
    return tuple(float(value) for value in given)
