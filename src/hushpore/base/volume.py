"""Volume: an image stack with named axes, voxel size and metadata of its source."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from hushpore.base.display import Displayed
from hushpore.base.errors import InputError
from hushpore.base.formatting import (
    METRES,
    on_one_line,
    readable_bytes,
    readable_percent,
    readable_unit,
    unit_of,
)
from hushpore.base.rescaled import Scaled, held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array

SPATIAL_AXES = ("zyx", "yx")

#: Types accepted as a volume.
VolumeLike: TypeAlias = "Volume | npt.ArrayLike"

# metadata of grey values, which do not apply to derived labels or lengths
_OF_GREY = ("value_unit", "padding_value", "contrast_limits", "windows", "denoised")

# limit that keeps the volume of a voxel within floating-point range
_SMALLEST_STEP = 1e-60
#: Largest length of a unit, in characters.
LONGEST_UNIT = 40
# metadata keys that mark a volume as labels or as denoised, also in files
_LABELS, _DENOISED = "labels", "denoised"
_UNKNOWN_UNIT = (
    f"The unit {{!r}} is unknown (known units: {', '.join(METRES)} and pixel), so lengths are not "
    "converted to other units."
)


@dataclass(frozen=True, eq=False, repr=False)
class Volume(Displayed):
    """An image stack, 2D or 3D, with optional leading time and channel axes.

    Parameters
    ----------
    data : array_like
        Boolean, integer or floating-point values in any byte order: NumPy, dask, `Scaled` integers
        of a scanner, or a lazy array.
    spacing : float or sequence of float, optional
        Size of a voxel along each spatial axis, in z, y, x order (y, x in 2D), in `unit`.
    unit : str, optional
        Unit of `spacing`: ``"mm"``, ``"um"``, ... or ``"pixel"`` if it is unknown.
    axes : str, optional
        One letter per axis: ``t``, ``c``, ``z``, ``y``, ``x``; the last are ``zyx`` or ``yx``.
        By default from the number of axes: ``"yx"``, ``"zyx"``, ``"tzyx"``, ``"tczyx"``.
    name : str, optional
        Short name for layers and files.
    source : str, optional
        File or folder of the data.
    origin : sequence of float, optional
        Position of the centre of the first voxel along each spatial axis, in `unit`.
    notes : sequence of str, optional
        Notes of the reader for the user.
    metadata : dict, optional
        Further properties of the data, as JSON values.
    auxiliary : dict of str to array_like or Volume, optional
        Auxiliary data by name: labels, masks and images of the same spatial shape, points as voxel
        coordinates (n, ndim), and volumes of other scans of the same sample. Settings of jobs refer
        to them by name.

    Raises
    ------
    InputError
        If the array, its axes or its spacing are invalid.

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
                f"An image needs real numbers (boolean, integer or floating point); got {dtype}."
            )
        if not isinstance(self.axes, str):
            raise InputError(
                f"axes must be a string with one letter per axis, for example 'zyx'; got "
                f"{self.axes!r}."
            )
        axes = self.axes or _default_axes(data.shape)
        spatial, shape = axes.endswith("yx"), tuple(data.shape)
        if not spatial or len(axes) != len(shape) or len(set(axes)) != len(axes):
            raise InputError(
                f"axes={axes!r} does not match shape {shape}: expected one letter per axis, ending "
                "in 'zyx' or 'yx', for example 'tzyx'."
            )
        n_spatial = _n_spatial(axes)
        if not set(axes[:-n_spatial]) <= set("tc"):
            raise InputError(
                f"axes={axes!r}: only 't' and 'c' are supported before 'zyx' or 'yx'. Rename the "
                "others."
            )
        known = self.spacing is not None and np.size(self.spacing) > 0
        spacing = _per_axis(self.spacing, 1.0, n_spatial, "spacing")
        if not all(_SMALLEST_STEP < step < 1 / _SMALLEST_STEP for step in spacing):
            raise InputError(
                f"The spacing must be positive on every axis, from {_SMALLEST_STEP:g} to "
                f"{1 / _SMALLEST_STEP:g}; got {spacing}."
            )
        unit = on_one_line(str(self.unit), LONGEST_UNIT) or "pixel"
        # one spelling for each unit, for all writers
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
            values["notes"].append("The spacing has no unit, so it is given in pixels.")
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
        """Data type of the values."""
        dtype: np.dtype[Any] = np.dtype(self.data.dtype)
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes, including leading axes."""
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
        """Size of the stored values, in bytes."""
        return math.prod(self.shape) * int(np.dtype(held(self.data).dtype).itemsize)

    @property
    def voxel_size(self) -> float:
        """Volume (3D) or area (2D) of one voxel, in `unit` to the third or second power."""
        return math.prod(self.spacing)

    def array(self) -> Array:
        """Return the values as a C-contiguous NumPy array in native byte order."""
        values = np.asarray(self.data)
        return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))

    def replace(self, data: Any, **changes: Any) -> Self:
        """Return a volume with other values and the same geometry."""
        return dataclasses.replace(self, data=data, **changes)

    def derived(self, data: Any, name: str) -> Self:
        """Return a volume of labels or lengths with the same geometry.

        `data`: array of the same shape. Metadata of grey values are dropped.
        """
        kept = {key: value for key, value in self.metadata.items() if key not in _OF_GREY}
        return self.replace(data, name=name, metadata=kept)

    def as_denoised(self, data: Any) -> Self:
        """Return the denoised volume, with its name and its mark; `data`: of the same shape."""
        metadata = self.metadata | {_DENOISED: True}
        return self.replace(data, name=f"{self.name} denoised", metadata=metadata)

    def as_labels(self, labels: Any, name: str) -> Volume:
        """Return a volume of labels with the same geometry, marked as labels.

        `labels`: integers of the same shape. `name`: name of the new volume.
        """
        volume = self.derived(labels, name)
        return volume.replace(labels, metadata=volume.metadata | {_LABELS: True})

    @property
    def holds_labels(self) -> bool:
        """Whether the volume is marked as labels of pores or phases."""
        return bool(self.metadata.get(_LABELS)) and self.dtype.kind in "iub"

    @property
    def is_denoised(self) -> bool:
        """Whether the volume is marked as denoised by hushpore, also in files."""
        return self.metadata.get(_DENOISED) is True

    def auxiliary_of(self, settings: object, setting: str) -> Any:
        """Return the auxiliary data named by a setting.

        `settings`: settings of a job. `setting`: name of one of them; see
        `hushpore.base.settings.Option`.
        Returns: an array of the spatial shape of this volume; or points, float64 of shape
        (n, `n_spatial`) or (n, `ndim`); or the values of another scan of the same shape. None if
        the setting is empty.
        Raises InputError if the data do not exist or do not match this volume.
        """
        name = getattr(settings, setting)
        if not name:
            return None
        if name not in self.auxiliary:
            known = ", ".join(repr(key) for key in self.auxiliary) or "none"
            raise InputError(
                f"{setting}: the data {name!r} do not exist for {self.name} (available: {known}). "
                "Give an array, a file or a layer."
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
            f"{setting}: {name} has shape {shape}, which does not match {self.name}. Give an array "
            f"of shape {self.spatial_shape}, or points of shape (n, {self.n_spatial}) if the "
            "setting takes points."
        )

    def _require_same_grid(self, other: Volume, setting: str) -> None:
        """Raise InputError unless another scan has the same axes, shape and voxel size."""
        if (other.axes, other.shape) != (self.axes, self.shape):
            raise InputError(
                f"{setting}: {other.name} has shape {other.shape} ({other.axes}), but {self.name} "
                f"has {self.shape} ({self.axes}). Reconstruct or crop both scans to the same shape."
            )
        # in pixels the size is unknown
        is_known = self.unit == other.unit != "pixel"
        if is_known and not np.allclose(other.spacing, self.spacing, rtol=1e-3, atol=0):
            raise InputError(
                f"{setting}: the voxels of {other.name} are {other.size_in_words}, those of "
                f"{self.name} {self.size_in_words}. Reconstruct both scans with the same voxel "
                "size, or correct it."
            )

    def at(self, /, **index: int) -> Volume:
        """Return the volume at one position on leading axes, for example ``scan.at(t=0)``.

        Raises
        ------
        InputError
            If an axis is not a leading axis of this volume, or the index is out of range.
        """
        key: list[int | slice] = [slice(None)] * self.ndim
        leading = list(self.axes[: -self.n_spatial])
        for axis, position in index.items():
            size = self.shape[leading.index(axis)] if axis in leading else 0
            if not -size <= position < size:
                raise InputError(
                    f"The position {axis}={position} does not exist: the axes are {self.axes} with "
                    f"shape {self.shape}. Choose a position on a time or channel axis."
                )
            key[leading.index(axis)] = position
        axes = "".join(axis for axis in self.axes if axis not in index)
        # a lazy array that can select positions stays on disk
        select = getattr(self.data, "at_positions", self.data.__getitem__)
        return self.replace(select(tuple(key)), axes=axes)

    @property
    def size_in_words(self) -> str:
        """Formatted voxel size, or that it is unknown."""
        if self.unit == "pixel":
            return "voxel size unknown"
        spacing = " x ".join(f"{step:.4g}" for step in self.spacing)
        return f"{spacing} {readable_unit(self.unit)}"

    @property
    def facts(self) -> str:
        """One-line summary: shape, voxel size, data type and size in bytes."""
        shape = " x ".join(str(n) for n in self.shape)
        if self.axes not in SPATIAL_AXES:
            shape += f" ({self.axes})"
        kind = self.dtype.name
        if isinstance(self.data, Scaled):
            kind = f"{held(self.data).dtype} → {self.metadata.get('value_unit', kind)}"
        return f"{shape} · {self.size_in_words} · {kind} · {readable_bytes(self.nbytes)}"


def as_array(values: Any, what: str) -> Any:
    """Return an array-like object with shape and dtype unchanged, anything else as an array.

    `what`: subject of the message.
    Raises InputError if it cannot be an array, or has masked values.
    """
    # numpy.ma takes 0.06 s to import; if it is not imported, the array is not masked
    if "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise InputError(
                f"{what} is a masked array with {np.count_nonzero(values.mask)} masked values, and "
                "its mask would be lost. Fill the values (.filled), and pass the mask as a setting "
                "(sample_mask or leave_out)."
            )
        return values.data
    if hasattr(values, "shape") and hasattr(values, "dtype"):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} needs rows of equal length: {error}.") from None


def as_volume(image: VolumeLike, **known: Any) -> Volume:
    """Return `image` itself if it is a volume, otherwise a volume of the array.

    `image`: an image stack, axes in z, y, x order. ``**known``: properties for `Volume`:
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
    slices = slices if volume.n_spatial == 2 else ""
    return f"Choose one with volume.at({index}).{_classes(volume) or slices}"


def _classes(volume: Volume) -> str:
    """Return the shares of classes in the middle slice, if the channels are their probabilities."""
    if volume.axes not in ("cyx", "czyx") or 0 in volume.shape:
        return ""
    middle = (slice(None), volume.shape[1] // 2) if volume.n_spatial == 3 else ...
    values = np.asarray(volume.data[middle], np.float64)
    total = values.sum(axis=0)
    if not (values.min() >= 0 and 0 < total.max() <= 1.02 * total.min()):
        return ""
    shares = (values.mean(axis=(1, 2)) / total.mean()).tolist()
    named = ", ".join(f"{readable_percent(share)} for c={c}" for c, share in enumerate(shares))
    where = " in the middle slice" if volume.n_spatial == 3 else ""
    return f" The channels are probabilities of {len(shares)} classes: {named}{where}."


def require_values(volume: Volume) -> Array:
    """Return the array of a volume after checking its values.

    Raises InputError if it is empty, constant, or contains NaN or infinite values.
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
    """Raise InputError if a volume is marked as labels, which would be used as grey values.

    `otherwise`: another use of labels, as the end of a sentence. Boolean labels count as a mask and
    are accepted.
    """
    if volume.holds_labels and volume.dtype != np.bool_:
        raise InputError(
            f"{volume.name} contains labels of pores or phases, but grey values are needed. Give "
            f"the scan itself{otherwise}."
        )


def require_range(volume: Volume, lowest: Any, highest: Any, bad: int) -> None:
    """Check the range of the values of a volume, as `require_values` does.

    `lowest`, `highest`: range of all values. `bad`: number of NaN or infinite values.
    Raises InputError if `bad` is not 0, or all values are equal.
    """
    size = math.prod(volume.shape)
    if bad:
        raise not_finite(volume, bad)
    if volume.dtype != np.bool_ and size > 1 and lowest == highest:
        mask = " A mask without pores is measured by 'hushpore measure'." if lowest == 0 else ""
        raise InputError(
            f"{volume.name} is constant: every value is {lowest}, so there is nothing to denoise "
            f"or segment. Check the scan.{mask}"
        )


def not_finite(volume: Volume, bad: int) -> InputError:
    """Return the error for a volume with NaN or infinite values."""
    count = math.prod(volume.shape)
    found = f"{volume.name} contains {bad} NaN or infinite values of {count}"
    if bad == count:
        return InputError(f"{found}: it has no grey values. Check the scan.")
    return InputError(
        f"{found}, often outside the reconstructed region. They are excluded if the scan is opened "
        "from its file: save it and open the file, or crop to a region without them."
    )


def _default_axes(shape: tuple[int, ...]) -> str:
    n = len(shape)
    if n < 2 or n > 5:
        raise InputError(
            f"An image stack needs 2 to 5 axes (y x, z y x, and time or channels before them); "
            f"got {n}, shape {tuple(shape)}."
        )
    # otherwise a colour photograph would be accepted as a stack 3 pixels wide
    if n > 2 and shape[-1] in (3, 4) and min(shape[-3:-1]) > 16:
        raise InputError(
            f"Shape {tuple(shape)} looks like a colour photograph (RGB), but grey values are "
            "needed. Convert it first, for example with skimage.color.rgb2gray. If it is a stack "
            f"{shape[-1]} voxels wide, move that axis to the front: numpy.moveaxis(data, -1, 0)."
        )
    return "tczyx"[-n:] if n != 4 else "tzyx"


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
