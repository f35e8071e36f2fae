"""Slabs of host stacks that are copied to a GPU, and the results, which are copied back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.engine import Engine
from hushpore.pores.geometry.contacts import Edges, span
from hushpore.pores.gpu.engine import Scan
from hushpore.pores.watershed.basins import SlabWatershed, require_numbers
from hushpore.pores.watershed.graph import Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s, UInt8s
    from hushpore.device.timing import StageTimer
    from hushpore.pores.geometry.contacts import Piece
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.parallel import KernelThreads


class GpuSlabs(Engine):
    """Distances, basins and their measures on a GPU, all else on the CPU.

    `timer`: times the copies.
    """

    def __init__(self, gpu: Gpu, threads: KernelThreads, timer: StageTimer) -> None:
        super().__init__(threads)
        self._gpu = gpu
        self._timer = timer

    def fill_distance(
        self,
        phase: UInt8s,
        room: Float32s,
        before: Float32s | None,
        after: Float32s | None,
        spacing: Sequence[float],
        solid_outside: Sequence[bool],
        highest: int = 1,
        within: float = np.inf,
    ) -> Float32s:
        """Do as `Engine.fill_distance`, without `within`."""
        edge = np.float32(0.0 if solid_outside[0] else np.inf)
        planes = [each for each in (before, after) if each is not None]
        on_gpu, *crossed = self._put(phase, *planes)
        nothing = self._gpu.xp.full(phase.shape[1:], edge, np.float32)
        carried = tuple(nothing if each is None else crossed.pop(0) for each in (before, after))
        how = spacing, solid_outside, highest, carried
        self._get(self._gpu.squared_distance(on_gpu, *how), room)
        return room

    def watershed_slab(
        self,
        distance: Float32s,
        pointers: Int32s,
        first: int,
        last: int,
        count: int = 0,
        *,
        faces_only: bool = False,
    ) -> SlabWatershed:
        """Do as `Engine.watershed_slab`, which raises `InputError` too."""
        (heights,) = self._put(distance)
        found = self._gpu.watershed(heights, first, last, count, faces_only=faces_only)
        require_numbers(count + int(found.peaks.size))
        self._get(found.basins, pointers[first:last])
        peaks, is_exit = self._gpu.get_all([found.peaks, found.is_exit])
        plane = math.prod(distance.shape[1:])
        flags = np.unpackbits(is_exit.view(np.uint8), bitorder="little")
        back, ahead = (np.flatnonzero(flags[part:][:plane]) for part in (0, plane))
        return SlabWatershed(peaks, back, ahead, pointers[first:last])

    def tables(self, shape: Sequence[int], peaks: Int64s, *, faces_only: bool = False) -> Tables:
        """Return tables that this GPU fills."""
        return Tables(shape, peaks, faces_only=faces_only, scan=self.scan_slices)

    def scan_slices(
        self,
        basins: Int32s,
        distance: Float32s,
        grey: Int32s | None,
        shape: tuple[int, int, int],
        faces_only: bool,
        offset: int,
        own: int,
    ) -> Piece:
        """Do as `hushpore.pores.geometry.contacts.scan_rows` of the `own` first slices."""
        low, high = span(basins.reshape(-1, basins.shape[2]), 0, own * basins.shape[1])
        labels, heights, *values = self._put(basins, distance, *([] if grey is None else [grey]))
        where = (shape, (low, high), offset, own)
        found = self._gpu.scan(labels, heights, *where, *values, faces_only=faces_only)
        scan = Scan(*self._gpu.get_all(found))
        edges = Edges(
            np.zeros(0, np.int32),
            scan.keys.view(np.int64),
            scan.saddle.view(np.float32),
            scan.place,
            scan.contacts,
        )
        sums, crossings, border_crossings = (
            each.view(np.int64) for each in (scan.sums, scan.crossings, scan.border_crossings)
        )
        return low, sums, scan.bounds, crossings, border_crossings, edges

    def _put(self, *arrays: Array) -> list[Any]:
        with self._timer.stage("upload", nbytes=sum(values.nbytes for values in arrays)):
            return [self._gpu.put(values) for values in arrays]

    def _get(self, values: Any, out: Array) -> None:
        with self._timer.stage("download", nbytes=out.nbytes, syncs=1):
            self._gpu.get(values, out)
