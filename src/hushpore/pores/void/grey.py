"""The grey values of a volume, as they are read slab by slab."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.device.prefetch import read_ahead
from hushpore.device.switches import Choices, Switches
from hushpore.device.timing import StageTimer
from hushpore.pores.geometry.sums import grey_power

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.slabs import Slabs


class RoundedGrey:
    """Grey values as whole numbers, of which sums are exact in any order.

    `low`, `high`: the lowest and the highest of them.
    `step`: the grey value that 1 stands for: 1 for integers, else a power of two, such that 24 bits
    (fewer where squares are summed) hold all values.
    """

    def __init__(self, values: GreyValues, low: float, high: float) -> None:
        self._values = values
        self.step = step_of(values.dtype, low, high)

    def read(self, first: int, last: int) -> npt.NDArray[np.int32]:
        """Return some slices (z, y, x)."""
        values = self._values.read(first, last)
        if self.step == 1:
            return values.astype(np.int32)
        rounded = np.empty(values.shape, np.int32)
        for plane, own in zip(values, rounded, strict=True):
            own[...] = np.rint(plane.astype(np.float64) / self.step)
        return rounded


def rounded_grey(values: GreyValues, low: float, high: float) -> RoundedGrey | None:
    """Return what sums take for grey values; None where none takes any."""
    return RoundedGrey(values, low, high) if grey_power() else None


def step_of(dtype: np.dtype[Any], low: float, high: float) -> float:
    """Return the step of `RoundedGrey`, such that sums over 2**31 voxels fit into int64."""
    # frexp: the largest is less than two to the power of this
    bits, largest = (
        31 // max(grey_power(), 1),
        math.frexp(max(abs(float(low)), abs(float(high))))[1],
    )
    if dtype.kind in "biu" and largest <= bits:
        return 1.0
    return 2.0 ** (largest - min(24, bits))


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

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        """Return some slices, (z, y, x), in native byte order and C order; not to be changed."""
        if self._whole is not None:
            return self._whole[first:last]
        data = self.volume.data
        part = np.asarray(data[first:last] if self.volume.n_spatial == 3 else data)
        return self._stacked(np.ascontiguousarray(part, self.dtype))

    def ahead(
        self, around: Callable[[int, int], tuple[int, int]] | None = None
    ) -> Iterator[npt.NDArray[Any]]:
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

    def _stacked(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values.reshape((1,) * (3 - values.ndim) + values.shape)
