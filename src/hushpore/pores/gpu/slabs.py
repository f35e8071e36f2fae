"""What the passes over slabs do on a GPU instead of on the CPU, slab by slab.

Each of the three takes what its CPU's counterpart takes, and returns the same: what is put together
of the slabs, and how, is the same code.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.basins import ClimbedSlab, require_numbers
from hushpore.pores.contacts import Edges, span
from hushpore.pores.gpu.engine import Scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.device.timing import StageTimer
    from hushpore.pores.contacts import Piece
    from hushpore.pores.gpu.engine import Gpu


class GpuSlabs:
    """Slabs of a stack on a GPU.

    Parameters
    ----------
    gpu : Gpu
        Where to.
    timer : StageTimer
        Times how long slabs take to cross.
    """

    def __init__(self, gpu: Gpu, timer: StageTimer) -> None:
        self._gpu = gpu
        self._timer = timer

    def fill_distance(
        self,
        codes: npt.NDArray[np.uint8],
        distance: npt.NDArray[np.float32],
        before: npt.NDArray[np.float32],
        after: npt.NDArray[np.float32],
        spacing: Sequence[float],
        solid_outside: Sequence[bool],
        workers: object,
        highest: int = 1,
    ) -> None:
        """Do as `hushpore.pores.distance.fill_distance`."""
        there, *beside = self._put(codes, before, after)
        how = (spacing, solid_outside, highest, (beside[0], beside[1]))
        self._get(self._gpu.squared_distance(there, *how), distance)

    def climb_slab(
        self,
        distance: npt.NDArray[np.float32],
        pointers: npt.NDArray[np.int32],
        workers: object,
        first: int,
        last: int,
        count: int = 0,
        *,
        faces_only: bool = False,
    ) -> ClimbedSlab:
        """Do as `hushpore.pores.basins.climb_slab`; raises `InputError` as that does."""
        (heights,) = self._put(distance)
        found = self._gpu.climb(heights, first, last, count, faces_only=faces_only)
        require_numbers(count + int(found.summits.size))
        self._get(found.basins, pointers[first:last])
        summits, is_exit = self._gpu.get_all([found.summits, found.is_exit])
        plane = math.prod(distance.shape[1:])
        back, ahead = (np.flatnonzero(is_exit[part:][:plane]) for part in (0, plane))
        return ClimbedSlab(summits, back, ahead)

    def scan_slices(
        self,
        basins: npt.NDArray[np.int32],
        distance: npt.NDArray[np.float32],
        shape: tuple[int, int, int],
        faces_only: bool,
        offset: int,
        own: int,
    ) -> Piece:
        """Do as `hushpore.pores.contacts.scan_slices` of the `own` first slices."""
        low, high = span(basins, 0, own)
        labels, heights = self._put(basins, distance)
        where = (shape, (low, high), offset, own)
        found = self._gpu.scan(labels, heights, *where, faces_only=faces_only)
        scan = Scan(*self._gpu.get_all(found))
        edges = Edges(
            np.zeros(0, np.int32),
            scan.keys.view(np.int64),
            scan.saddle.view(np.float32),
            scan.place,
            scan.contacts,
        )
        sums, ends, cuts = (each.view(np.int64) for each in (scan.sums, scan.ends, scan.cuts))
        return low, sums, scan.bounds, ends, cuts, edges

    def _put(self, *arrays: npt.NDArray[Any]) -> list[Any]:
        with self._timer.stage("upload", nbytes=sum(each.nbytes for each in arrays)):
            return [self._gpu.put(each) for each in arrays]

    def _get(self, values: Any, out: npt.NDArray[Any]) -> None:
        with self._timer.stage("download", nbytes=out.nbytes, syncs=1):
            self._gpu.get(values, out)
