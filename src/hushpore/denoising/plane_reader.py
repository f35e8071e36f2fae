"""Reading of a volume for the denoiser, plane by plane and in pieces, and its grey scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import not_finite, require_grey

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.device.backend import Backend

#: Number of voxels in one piece for the statistics: 16 MB in float64, a twentieth of a second.
_PIECE = 1 << 21

#: Rounding steps of float32, in standard deviations of the grey values: from the first on, values
#: are normalised in float64; from the second on, a note says so; from the third on, float32 can
#: hardly distinguish the values.
_FINE, _COARSE, _TOO_COARSE = 1e-3, 1e-2, 0.5


class PlaneReader:
    """Reader of the planes of a volume, from memory or from a lazy array.

    `volume`: of any real dtype except boolean; NumPy, a memory map, dask or Zarr. `dimensions`:
    number of axes of a plane, 2 or 3. `pair`: a second scan of the same object, with the same axes
    and shape. `count`: number of planes, over all leading axes. `dtype`: of the returned planes:
    that of the volume in native byte order. `scans`: the reader of each scan, starting with this
    one; two if there is a pair.
    Raises InputError if the volume is empty, a mask or labels.
    """

    def __init__(self, volume: Volume, dimensions: int, pair: Volume | None = None) -> None:
        if volume.dtype == np.bool_:
            raise InputError(
                f"{volume.name} is a mask (boolean), and a mask has no noise. Denoise the grey "
                "values, then segment."
            )
        require_grey(volume)
        if 0 in volume.shape:
            raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")
        self.volume = volume
        self._data = volume.data
        self._leading = volume.shape[:-dimensions]
        self.size = volume.shape[-dimensions:]
        self.count = math.prod(self._leading)
        self.dtype = volume.dtype.newbyteorder("=")
        channel = np.zeros(self._leading, np.int64)
        if "c" in volume.axes:
            axis = volume.axes.index("c")
            along = [1] * len(self._leading)
            along[axis] = -1
            channel += np.arange(volume.shape[axis]).reshape(along)
        #: Channel number of every plane.
        self.channels = channel.ravel()
        self.scans: tuple[PlaneReader, ...] = (self,)
        if pair is not None:
            self.scans = self, PlaneReader(pair, dimensions)

    def bytes_a_voxel(self, working: int) -> int:
        """Return the memory for a voxel of all scans: its stored value, and `working` bytes."""
        return sum(each.dtype.itemsize + working for each in self.scans)

    def read(self, planes: Sequence[int] | Int64s, rows: slice = slice(None)) -> Array:
        """Return planes, (len(planes), *size), or only `rows` of them along their first axis."""
        first, last = int(planes[0]), int(planes[-1])
        in_a_row = is_in_a_row(planes)
        if len(self._leading) == 1 and in_a_row:
            return self._native(self._data[first : last + 1, rows])
        if in_a_row and len(planes) == self.count and rows == slice(None):
            return self._native(self._data[...]).reshape(-1, *self.size)
        found = [self._data[self.index(int(k), rows)] for k in planes]
        return self._native(np.stack([np.asarray(plane) for plane in found]))

    def index(self, plane: int, rows: slice = slice(None)) -> tuple[int | slice, ...]:
        """Return the index of some rows of a plane in an array of the volume's shape."""
        # a 2D image has no leading axes
        leading = np.unravel_index(plane, (1, *self._leading))[1:]
        return (*(int(k) for k in leading), rows)

    def stored(self, planes: Sequence[int] | Int64s, rows: slice = slice(None)) -> Array | Scaled:
        """Return planes for `put`: stored integers if the planes are consecutive, else as `read`.

        Stored integers take half the memory of what `read` returns.
        """
        if not isinstance(self._data, Scaled) or not is_in_a_row(planes):
            return self.read(planes, rows)
        if len(self._leading) == 1:
            return self._data.part((slice(int(planes[0]), int(planes[-1]) + 1), rows))
        return self.read(planes, rows) if self._leading else self._data.part(rows)

    def put(
        self, raw: Array | Scaled, planes: Sequence[int] | Int64s,
        backend: Backend,
    ) -> torch.Tensor:  # fmt: skip
        """Copy planes from `stored` to a device, (len(planes), rows, ...), rescaled there."""
        return backend.put(raw).reshape(len(planes), -1, *self.size[1:])

    def _native(self, values: Any) -> Array:
        return np.ascontiguousarray(values, dtype=self.dtype)


def is_in_a_row(planes: Sequence[int] | Int64s) -> bool:
    """Whether the planes are consecutive."""
    return bool(np.all(np.diff(planes) == 1))


@dataclass(frozen=True)
class Scale:
    """Conversion between grey values and network values of zero mean and unit standard deviation.

    Each channel has its own mean and standard deviation, since channels measure different things.
    """

    # one for each channel
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, values: torch.Tensor, channels: Int64s) -> torch.Tensor:
        """Return planes in float32 for the network, on the same device.

        `values`: shape (n, *size). `channels`: int, shape (n,): the channel of each plane.
        """
        # a large offset is subtracted before values are rounded to float32
        is_exact = self.step < _FINE or values.dtype == torch.float32
        dtype = np.float32 if is_exact else np.float64
        mean, std = (
            torch.from_numpy(self._of(each, channels, values.ndim, dtype)).to(values.device)
            for each in (self.mean, self.std)
        )
        return ((values.to(mean.dtype) - mean) / std).float()

    def normalise_scans(self, scans: Sequence[torch.Tensor], channels: Int64s) -> torch.Tensor:
        """Return the planes of one scan after the other, normalised as by `normalise`."""
        if len(scans) == 1:
            return self.normalise(scans[0], channels)
        count = len(channels)
        shape = (len(scans) * count, *scans[0].shape[1:])
        together = torch.empty(shape, device=scans[0].device)
        for number, values in enumerate(scans):
            together[number * count : (number + 1) * count] = self.normalise(values, channels)
        return together

    def restore(self, planes: Float32s, channels: Int64s) -> Float32s:
        """Convert the network's output to grey values, in place."""
        planes *= self._of(self.std, channels, planes.ndim)
        planes += self._of(self.mean, channels, planes.ndim)
        return planes

    def restore_on_device(self, planes: torch.Tensor, channels: Int64s) -> torch.Tensor:
        """Do the same as `restore`, bit-identically, for planes on a device, in place."""
        std, mean = (
            torch.from_numpy(self._of(each, channels, planes.ndim)).to(planes.device)
            for each in (self.std, self.mean)
        )
        # two separate roundings, as on the host
        return planes.mul_(std).add_(mean)

    @property
    def step(self) -> float:
        """Rounding step of float32 at the mean, in standard deviations."""
        return max(_step(mean) / std for mean, std in zip(self.mean, self.std, strict=True))

    @property
    def coarseness(self) -> str:
        """A sentence on the rounding of results to float32; empty if it is negligible."""
        if self.step < _COARSE:
            return ""
        channels = zip(self.mean, self.std, strict=True)
        mean, std = max(channels, key=lambda each: _step(each[0]) / each[1])
        return (
            f"The mean grey value ({mean:.3g}) is large compared with the standard deviation "
            f"({std:.3g}): results are float32, which has steps of {_step(mean):.3g} there. "
            f"Subtract {mean:.3g} from the scan first."
        )

    def require_steps(self, volume: Volume) -> Self:
        """Return this scale if float32 can distinguish the grey values of the volume.

        Raises InputError if it cannot.
        """
        if self.step > _TOO_COARSE:
            raise InputError(f"{volume.name} cannot be denoised. {self.coarseness}")
        return self

    @staticmethod
    def _of(
        per_channel: tuple[float, ...],
        channels: Int64s,
        ndim: int,
        dtype: npt.DTypeLike = np.float32,
    ) -> Array:
        return np.array(per_channel, dtype)[channels].reshape(-1, *[1] * (ndim - 1))


def _step(value: float) -> float:
    """Return the distance from a value to the next float32 number; also beyond the largest."""
    return math.ldexp(1.0, math.frexp(value)[1] - 24) if value else 0.0


def measure_scale(source: PlaneReader) -> Scale:
    """Return the mean and standard deviation of each channel; see `measure_scale_in_pieces`."""
    return result_of(measure_scale_in_pieces(source))


def measure_scale_in_pieces(source: PlaneReader) -> Generator[float, None, Scale]:
    """Calculate the mean and standard deviation of each channel in one pass over all values.

    The volume is read in pieces, so that it need not fit into memory.

    Yields: the completed share.
    Raises InputError if there are NaN or infinite values, a channel is constant, or float32 does
    not tell its values apart.
    """
    volume = source.volume
    n_channels = int(source.channels.max()) + 1
    count, total, square, bad = (np.zeros(n_channels) for _ in range(4))
    # subtracting a typical value first keeps enough of the 16 digits for sums of squares
    pivot: Float64s | None = None
    parts = pieces(source)
    for done, (planes, rows) in enumerate(parts, start=1):
        values = source.read(planes, rows).astype(np.float64)
        for number, plane in zip(source.channels[planes], values, strict=True):
            finite = plane if np.isfinite(plane).all() else plane[np.isfinite(plane)]
            bad[number] += plane.size - finite.size
            if not finite.size:
                continue
            if pivot is None:
                pivot = np.full(n_channels, np.nan)
            if np.isnan(pivot[number]):
                pivot[number] = finite.mean()
            centred = finite - pivot[number]
            count[number] += finite.size
            total[number] += centred.sum()
            square[number] += np.vdot(centred, centred)
        yield done / len(parts)
    if bad.any():
        raise not_finite(volume, int(bad.sum()))
    assert pivot is not None
    mean = total / count
    std = np.sqrt(np.maximum(square / count - mean**2, 0))
    _require_variation(volume, pivot + mean, std)
    scale = Scale(tuple((pivot + mean).tolist()), tuple(std.tolist()))
    return scale.require_steps(volume)


def _require_variation(volume: Volume, mean: Float64s, std: Float64s) -> None:
    # rounding gives a constant value of 0.1 a standard deviation of about 1e-17
    constant = std <= 1e-12 * np.abs(mean)
    if not constant.any():
        return
    if len(std) == 1:
        raise InputError(
            f"{volume.name} is constant (every value is {mean[0]:g}): there is nothing to denoise."
        )
    raise InputError(
        f"Channel {int(np.flatnonzero(constant)[0])} of {volume.name} is constant (channels are "
        "counted from 0); leave it out."
    )


def pieces(source: PlaneReader) -> list[tuple[Int64s, slice]]:
    """Cut a volume into pieces (planes, rows) that are read one at a time."""
    depth, row = source.size[0], math.prod(source.size[1:])
    rows = max(1, min(depth, _PIECE // row))
    together = max(1, _PIECE // (row * depth)) if rows == depth else 1
    numbers = np.arange(source.count)
    return [
        (numbers[first : first + together], slice(start, min(start + rows, depth)))
        for first in range(0, source.count, together)
        for start in range(0, depth, rows)
    ]
