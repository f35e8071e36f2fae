"""Distance, basins and their graph on a GPU: what the CPU computes, bit for bit.

One byte a voxel goes up, whether it is void; the basins come down once, and the tables of their
graph. In between everything stays on the GPU, in the kernels of ``kernels/*.cu``, and the host
waits three times: for the number of basins, for whether the table of edges had room, and for the
number of edges.

The array library is a parameter: on a GPU it is CuPy. With NumPy, and with the kernels compiled for
the CPU, the same lines run in a test.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import DeviceError
from hushpore.base.volume import readable_bytes
from hushpore.device.kernels import load_kernels
from hushpore.pores.contacts import DIRECTIONS, SUMS
from hushpore.pores.graph import BasinGraph
from hushpore.pores.passes import highest_void, solid_beyond
from hushpore.pores.void import AIR, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from hushpore.device.backend import Backend
    from hushpore.device.kernels import Kernels
    from hushpore.device.timing import StageTimer
    from hushpore.pores.passes import Pass, Work
    from hushpore.pores.slabs import Stack

#: Bytes a voxel that are in use on the GPU at once: distance, pointers, ranks and basins 4 each,
#: void and summits 1 each; before that distance, sums and keys 16 together. The rest is for tables.
BYTES_A_VOXEL = 20

_KERNELS = Path(__file__).with_name("kernels")
_EMPTY = np.uint64(2**64 - 1)
_ROOM = 32  # places in the table of edges for each basin, to begin with


class _Edges(NamedTuple):
    """An open-addressed table of edges."""

    keys: Any
    saddle: Any
    contacts: Any


class Gpu:
    """The arrays and the pore kernels of a GPU.

    Parameters
    ----------
    xp : module
        The array library: ``cupy``.
    load : callable
        Returns the kernels of a source file.
    """

    def __init__(self, xp: Any, load: Callable[[Path], Kernels]) -> None:
        self._xp = xp
        self._distance = load(_KERNELS / "distance.cu")
        self._basins = load(_KERNELS / "basins.cu")
        self._graph = load(_KERNELS / "graph.cu")

    @classmethod
    def of(cls, backend: Backend) -> Gpu:
        """Return the GPU of a backend, whose kernels are compiled now if they never were.

        Raises
        ------
        DeviceError
            If CuPy is not installed, or cannot use the GPU.
        """
        cupy = backend.cupy()
        return cls(cupy, lambda source: load_kernels(source, backend.device))

    def put(self, values: npt.NDArray[Any]) -> Any:
        """Copy an array to the GPU."""
        return self._xp.asarray(values)

    def get(self, values: Any) -> npt.NDArray[Any]:
        """Copy an array to the host; waits for the GPU."""
        array: npt.NDArray[Any] = values.get() if hasattr(values, "get") else values
        return array

    def squared_distance(
        self, codes: Any, spacing: Sequence[float], solid_outside: Sequence[bool], highest: int = 1
    ) -> Any:
        """Return the squared distance; see `hushpore.pores.distance.squared_distance`.

        Parameters
        ----------
        codes : array on the GPU
            (z, y, x), uint8: 1 to `highest` is void, all else is solid.
        spacing, solid_outside
            In z, y, x order.
        highest : int
            See `codes`.

        Returns
        -------
        array on the GPU
            float32.
        """
        xp, launch = self._xp, self._distance.launch
        depth, height, width = codes.shape
        count, plane = codes.size, height * width
        smallest = min(spacing)
        weights = [np.float64((step / smallest) ** 2) for step in spacing]
        edges = [np.float32(0.0 if solid else np.inf) for solid in solid_outside]
        distance = xp.empty(codes.shape, np.float32)
        beside = xp.full((height, width), edges[0], np.float32)
        size = (np.int64(plane), np.int64(depth), np.int32(highest))
        launch("scan_z", plane, codes, distance, beside, beside, *size)
        launch("square", count, distance, np.int64(count), np.float32(weights[0]))
        in_zy = xp.empty(codes.shape, np.float32)
        line = (np.int64(count), np.int32(height), np.int32(width), weights[1], edges[1])
        is_far = xp.zeros(depth, np.uint8)
        launch("near_y", count, distance, in_zy, is_far, *line)
        launch("far_y", count, distance, in_zy, is_far, *line)
        row = (np.int64(count), np.int32(width), weights[2], edges[2])
        is_far = xp.zeros(depth * height, np.uint8)
        launch("near_x", count, in_zy, distance, is_far, *row)
        launch("far_x", count, in_zy, distance, is_far, *row)
        return distance

    def find_basins(self, distance: Any) -> tuple[Any, Any]:
        """Return basins and summits; see `hushpore.pores.basins.find_basins`.

        Parameters
        ----------
        distance : array on the GPU
            (z, y, x), float32, fewer than 2**31 voxels.

        Returns
        -------
        basins, summits : arrays on the GPU
            (z, y, x), int32, and (n,), int64.
        """
        xp, launch = self._xp, self._basins.launch
        depth, height, width = distance.shape
        count = distance.size
        all_, size = np.int64(count), (np.int32(height), np.int32(width))
        sums = xp.empty(distance.shape, np.float32)
        launch("sum_slices", count, distance, sums, all_, *size)
        keys = xp.empty(distance.shape, np.int64)
        launch("make_keys", count, distance, sums, keys, all_, np.int64(height * width))
        # the sums have served
        pointers = sums.view(np.int32)
        launch("point", count, distance, keys, pointers, all_, np.int64(depth), *size)
        del keys
        launch("climb", count, pointers, all_)
        is_summit = xp.empty(count, np.uint8)
        launch("mark_summits", count, pointers, is_summit, all_)
        rank = xp.cumsum(is_summit, dtype=np.int32)
        basins = xp.empty(distance.shape, np.int32)
        launch("number", count, pointers, rank, basins, all_)
        return basins, xp.flatnonzero(is_summit)

    def build_graph(
        self, basins: Any, summits: Any, distance: Any, is_open_at: Callable[[Any], Any]
    ) -> BasinGraph:
        """Return the graph of the basins, on the host; see `hushpore.pores.graph.build_graph`.

        Parameters
        ----------
        basins, summits, distance : arrays on the GPU
            As `find_basins` and `squared_distance` give them.
        is_open_at : callable
            Says of flat indices, (n,) int64 on the host, whether the void there is open.
        """
        xp, launch = self._xp, self._graph.launch
        depth, height, width = basins.shape
        count, number = basins.size, int(summits.size)
        size = (np.int64(count), np.int64(depth), np.int32(height), np.int32(width))
        sums = xp.zeros((number + 1, len(SUMS)), np.uint64)
        bounds = xp.zeros((number + 1, 6), np.int32)
        bounds[:, :3] = np.iinfo(np.int32).max
        launch("sum_runs", count, basins, sums, bounds, *size)
        ends, cuts, table = self._find_edges(basins, distance, number, size)
        room = len(table.keys)
        place = xp.full(room, np.iinfo(np.int64).max, np.int64)
        known = (table.keys, table.saddle, place, np.int64(room))
        launch("place_saddles", count, basins, distance, *known, *size)
        used = xp.flatnonzero(table.keys != _EMPTY)
        used = used[xp.argsort(table.keys[used])]
        keys = self.get(table.keys[used])
        places = self.get(summits)
        return BasinGraph(
            summit=np.concatenate([[-1], places]),
            peak=np.concatenate([np.zeros(1, np.float32), self.get(distance.ravel()[summits])]),
            sums=self.get(sums).view(np.int64),
            ends=self.get(ends).view(np.int64),
            bounds=self.get(bounds),
            is_open=np.concatenate([[False], is_open_at(places)]),
            cuts=self.get(cuts).view(np.int64),
            a=(keys >> np.uint64(32)).astype(np.int32),
            b=(keys & np.uint64(0xFFFFFFFF)).astype(np.int32),
            saddle=self.get(table.saddle[used]).view(np.float32),
            saddle_at=self.get(place[used]),
            contacts=self.get(table.contacts[used]),
        )

    def _find_edges(
        self, basins: Any, distance: Any, number: int, size: tuple[Any, ...]
    ) -> tuple[Any, Any, _Edges]:
        """Return ends, cuts and edges; in a larger table where the first had no room."""
        xp = self._xp
        room = 1 << (_ROOM * number + 1024).bit_length()
        while True:
            ends = xp.zeros((number + 1, len(DIRECTIONS)), np.uint64)
            cuts = xp.zeros(len(DIRECTIONS), np.uint64)
            table = _Edges(
                xp.full(room, _EMPTY, np.uint64),
                xp.full(room, -1, np.int32),
                xp.zeros((room, len(DIRECTIONS)), np.int32),
            )
            is_full = xp.zeros(1, np.int32)
            to_fill = (ends, cuts, *table, is_full, np.int64(room))
            self._graph.launch("find_edges", basins.size, basins, distance, *to_fill, *size)
            if not int(is_full[0]):
                return ends, cuts, table
            room *= 2


def open_gpu(backend: Backend, work: Work) -> Gpu:
    """Return the GPU of a backend, ready for a segmentation.

    Raises
    ------
    DeviceError
        If it cannot be used for this one; says why.
    """
    if work.faces_only:
        raise DeviceError("pores that hang together over faces only are found on the CPU")
    if work.slabs.on_disk:
        raise DeviceError("a volume that does not fit into memory is segmented on the CPU")
    gpu = Gpu.of(backend)
    needed, free = math.prod(work.shape) * BYTES_A_VOXEL, backend.free_memory()
    if needed > free:
        raise DeviceError(
            f"that needs {readable_bytes(needed)} of the GPU's memory, where "
            f"{readable_bytes(free)} are free"
        )
    return gpu


def find_graph(
    gpu: Gpu, work: Work, codes: Stack, timer: StageTimer
) -> Pass[tuple[Stack, BasinGraph, Stack]]:
    """Find the basins and their graph; the work of three passes of the CPU in one.

    Parameters
    ----------
    gpu : Gpu
        Where to.
    work : Work
        What to.
    codes : Stack
        The void, in memory.
    timer : StageTimer
        Times the stages.

    Returns
    -------
    basins, graph, distance
        As `hushpore.pores.passes.climb`, `measure_basins` and `find_distance` have them.
    """
    voxels = math.prod(work.shape)
    void = codes.array()
    with timer.stage("upload", nbytes=void.nbytes):
        there = gpu.put(void)
    with timer.stage("distance", voxels=voxels):
        distance = gpu.squared_distance(there, work.spacing, solid_beyond(work), highest_void(work))
        if work.has_air:
            distance[there == AIR] = 0
        del there
    yield 0.3
    with timer.stage("basins", voxels=voxels, syncs=1):
        basins, summits = gpu.find_basins(distance)
    yield 0.6

    def is_open_at(places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.asarray(void.reshape(-1)[places] == OPEN)

    with timer.stage("measuring", voxels=voxels, syncs=2):
        graph = gpu.build_graph(basins, summits, distance, is_open_at)
    yield 0.9
    found = work.scratch.stack("basins", work.shape, np.int32)
    heights = work.scratch.stack("distance", work.shape, np.float32)
    with timer.stage("download", nbytes=4 * voxels, syncs=1):
        found.write(0, gpu.get(basins))
        if work.settings.merging == "snow":
            heights.write(0, gpu.get(distance))
    return found, graph, heights
