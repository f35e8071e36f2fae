"""The grey values of a volume, as they are read slab by slab."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.device.prefetch import read_ahead
from hushpore.device.switches import Choices, Switches
from hushpore.device.timing import StageTimer
from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Int32s
    from hushpore.base.volume import Volume
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs

#: Voxels that a thread rounds at once, so that they stay in its cache.
_AT_ONCE = 1 << 16


#: Bits of a rounded grey value without its sign: the squares of 2**31 of them add up in int64.
_BITS = 16
_MOST = 1 << _BITS


class Rounding(NamedTuple):
    """Rounding of grey values to whole numbers: ``round((grey - offset) / step)``."""

    offset: float = 0.0
    step: float = 1.0

    @classmethod
    def of(cls, dtype: np.dtype[Any], low: float, high: float) -> Rounding:
        """Return the rounding of grey values of a range.

        Exact for integers of up to 16 bits; otherwise to 1/65,536 of the range or finer.
        """
        low, high = float(low), float(high)
        # frexp: a number is less than two to the power of this
        if dtype.kind in "biu" and math.frexp(max(abs(low), abs(high)))[1] <= _BITS:
            return AS_IS
        middle = low + (high - low) / 2
        step = 2.0 ** (math.frexp(high - middle)[1] - _BITS)
        if dtype.kind in "biu":
            step = max(step, 1.0)
        return cls(round(middle / step) * step, step)


#: Grey values as they are, in integers.
AS_IS = Rounding()


class RoundedGrey:
    """Grey values as whole numbers, so that sums are exact in any order."""

    def __init__(self, values: GreyValues, rounding: Rounding) -> None:
        self._values, self.rounding = values, rounding

    def read(self, first: int, last: int, threads: KernelThreads) -> Int32s:
        """Return some slices (z, y, x)."""
        values = self._values.read(first, last)
        rounded = np.empty(values.shape, np.int32)
        rows, own = (each.reshape(-1, values.shape[-1]) for each in (values, rounded))
        offset, step = self.rounding

        def fill(first: int, last: int) -> None:
            part: Array = rows[first:last].reshape(-1)
            room = own[first:last].reshape(-1)
            if self.rounding == AS_IS:
                room[:] = part
            else:
                # compiled for two types
                part = part if part.dtype == np.float32 else part.astype(np.float64)
                _round(part, offset, 1 / step, room)

        threads.over(len(rows), fill, largest=max(1, _AT_ONCE // values.shape[-1]))
        return rounded


@kernel
def _round(values: npt.NDArray[np.floating[Any]], offset: float, steps: float, out: Int32s) -> None:
    for i in range(values.size):
        rounded = np.rint((np.float64(values[i]) - offset) * steps)
        # padding may lie far out of the range
        out[i] = np.int32(min(max(rounded, -float(_MOST)), float(_MOST)))


class GreyValues:
    """The values of a volume as a stack; an image is a stack of one slice.

    `volume`: 2D or 3D, from any source: NumPy, a memory map, dask, zarr, planes of a file. `slabs`:
    how it is read: a slab at a time where stacks lie on disk, else once and for all. `choices`:
    whether slabs are read ahead; told what was decided. `timer`: told how long slabs of a file are
    waited for.
    """

    def __init__(
        self,
        volume: Volume,
        slabs: Slabs,
        choices: Choices | None = None,
        timer: StageTimer | None = None,
    ) -> None:
        self._choices = choices or Choices(Switches())
        self._timer = timer or StageTimer()
        self.volume = volume
        self.slabs = slabs
        self.dtype = volume.dtype.newbyteorder("=")
        self._whole = None if slabs.on_disk else self._stacked(volume.array())

    def read(self, first: int, last: int) -> Array:
        """Return some slices, (z, y, x), in native byte order and C order; not to be changed."""
        if self._whole is not None:
            return self._whole[first:last]
        data = self.volume.data
        part = np.asarray(data[first:last] if self.volume.n_spatial == 3 else data)
        return self._stacked(np.ascontiguousarray(part, self.dtype))

    def ahead(self, around: Callable[[int, int], tuple[int, int]] | None = None) -> Iterator[Array]:
        """Read all slabs in order; those of a file while the one before is worked on.

        `around`: gives the slices to read for those of a slab; by default the slab's own.
        """
        cuts = [around(*cut) if around else cut for cut in self.slabs]
        if self._whole is not None:
            yield from (self.read(*cut) for cut in cuts)
            return
        with read_ahead(lambda cut: self.read(*cut), cuts, self._choices) as parts:
            for _ in cuts:
                with self._timer.stage("reading") as run:
                    part = next(parts)
                    run.nbytes = part.nbytes
                yield part

    def _stacked(self, values: Array) -> Array:
        return values.reshape((1,) * (3 - values.ndim) + values.shape)
