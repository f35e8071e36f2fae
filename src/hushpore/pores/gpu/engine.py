"""Distance, basins and their graph on a GPU: what the CPU computes, bit for bit.

The kernels are in ``kernels/*.cu``. The array library is a parameter: on a GPU it is CuPy. With
NumPy, and with the kernels compiled for the CPU, the same lines run in a test.

The host waits for the GPU only where it must know numbers to go on, in `Gpu.numbers`, and for
results, in `Gpu.get`. An array is never read or set by a mask: CuPy would count it first, and wait.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.device.backend import Backend
from hushpore.pores.geometry.contacts import N_DIRECTIONS
from hushpore.pores.geometry.sums import DIRECTIONS, SUMS, counting, mark_grey_unknown, narrowest
from hushpore.pores.void.components import CLOSED
from hushpore.pores.watershed.graph import BasinGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from hushpore.base.arrays import Array
    from hushpore.device.transfers import Transfers

#: Files of kernels: of the void, distances, basins and their graph.
SOURCES = [
    Path(__file__).parent / "kernels" / f"{name}.cu"
    for name in ("void", "distance", "basins", "graph")
]


def definitions() -> tuple[str, ...]:
    """Return the options that kernels are compiled with: the tables that they share, as macros."""
    tables = {"POWERS": [each.powers for each in SUMS], "STEPS": DIRECTIONS.tolist()}
    in_c = {
        name: "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"
        for name, rows in tables.items()
    }
    counts = {"N_SUMS": len(SUMS), "N_DIRECTIONS": N_DIRECTIONS, "CLOSED": CLOSED}
    return tuple(f"-D{name}={value}" for name, value in {**counts, **in_c}.items())


_EMPTY, _LOWER = np.uint64(2**64 - 1), np.uint64(2**32 - 1)
_THREADS = 1 << 18  # as many as a large GPU runs at a time
BITS = 32  # flags of a word, as in basins.cu
_BLOCKS = 1 << 10  # of threads that work together, or on one row after the other
_RUNS = 2048  # voxels that a block of threads looks through at a time, as in graph.cu
_BRICK = (8, 8, 32)  # voxels (z, y, x) of a block at a time, as in basins.cu and graph.cu
_TABLES = 256  # of counts that all threads add to
_ROOM = 10  # places in the table of edges for each basin, to begin with: 68 bytes each
_NO_WAY = np.float32(-1).view(np.int32)  # as `BasinGraph.saddle` has it


def _bricks(shape: Sequence[int]) -> int:
    """Return the number of blocks that have the bricks of a volume (z, y, x) in turn."""
    counts = (-(-length // edge) for length, edge in zip(shape, _BRICK, strict=True))
    return min(math.prod(counts), _BLOCKS)


class GpuWatershed(NamedTuple):
    """Arrays on the GPU: where the voxels of a slab lead."""

    basins: Any  # (z, y, x), int32: where a voxel leaves the slab by exit n, -1 - n
    peaks: Any  # int64, flat indices in the slab
    is_exit: Any  # bits of uint32, of two slices: which voxels beside the slab are led to


class Scan(NamedTuple):
    """Arrays on the GPU: the sums over basins, and the contacts between them."""

    sums: Any
    bounds: Any
    closed: Any  # voxels of closed void, where these are counted
    crossings: Any
    border_crossings: Any
    keys: Any
    saddle: Any
    place: Any
    contacts: Any


class Flags:
    """Flags on a GPU: bits, of which it is known how many are set up to the end of each word.

    `flags`: uint32; the first flag is the lowest bit of the first word.
    """

    def __init__(self, gpu: Gpu, flags: Any) -> None:
        self._gpu, self.flags = gpu, flags
        counts = gpu.xp.empty(flags.size, np.int32)
        gpu.basins.launch("count_flags", flags.size, flags, counts, np.int64(flags.size))
        #: int32, how many are set up to the end of each word.
        self.counts = gpu.xp.cumsum(counts, dtype=np.int32)

    @property
    def total(self) -> Any:
        """How many are set: one int32 on the GPU."""
        return self.counts[-1:]

    def places(self, number: int) -> Any:
        """Return where they are set, int64; `number` of them are."""
        places, words = self._gpu.xp.empty(number, np.int64), self.flags.size
        where = (self.flags, self.counts, places, np.int64(words))
        self._gpu.basins.launch("compact", words, *where)
        return places


class Gpu:
    """The arrays and the pore kernels of a GPU.

    `xp`: the array library: ``cupy``. `load`: returns the kernels of a source file, compiled with
    some `definitions`. `transfers`: copies to and from the GPU; by default within the host.
    """

    def __init__(
        self,
        xp: Any,
        load: Callable[[Path, tuple[str, ...]], Kernels],
        transfers: Transfers | None = None,
    ) -> None:
        self.xp = xp
        self._transfers = transfers or Backend().transfers
        self.void, self._distance, self.basins, self.graph = (
            load(source, definitions()) for source in SOURCES
        )

    @classmethod
    def of(cls, backend: Backend) -> Gpu:
        """Return the GPU of a backend, with its kernels compiled and loaded.

        Raises DeviceError if CuPy is not installed, or cannot use the GPU.
        """
        cupy = backend.cupy()
        return cls(
            cupy,
            lambda source, macros: load_kernels(source, backend.device, macros),
            backend.transfers,
        )

    def sources(self) -> tuple[Kernels, ...]:
        """Return the kernels of all files, in the order of `SOURCES`."""
        return self.void, self._distance, self.basins, self.graph

    def put(self, values: Array) -> Any:
        """Copy an array to the GPU; PyTorch hands it to the array library without a copy."""
        return self.xp.from_dlpack(self._transfers.upload(values))

    def get(self, values: Any, out: Array | None = None) -> Array:
        """Copy an array to the host; waits for the GPU."""
        from torch.utils.dlpack import from_dlpack

        return self._transfers.download(from_dlpack(values), out)

    def fetch(
        self, values: Any, out: Array, pieces: Sequence[tuple[int, int]]
    ) -> list[Future[object]]:
        """Copy an array to the host in a thread, piece by piece; the futures tell what has arrived.

        `out`: of the same shape, and of the same type or a wider one. `pieces`: ranges along the
        first axis.
        """
        from torch.utils.dlpack import from_dlpack

        flat = self.xp.ascontiguousarray(values).reshape(len(out), -1)
        there, copies = from_dlpack(flat.view(np.uint8)), self._transfers

        def copy(first: int, last: int) -> None:
            copies.download(there[first:last], out[first:last], flat.dtype)

        return [copies.beside(copy, *piece) for piece in pieces]

    def drop_fetches(self) -> None:
        """Wait for the piece that is being fetched, and fetch no more."""
        self._transfers.release()

    def get_all(self, arrays: Sequence[Any]) -> list[Array]:
        """Copy several arrays to the host in one piece; waits for the GPU once."""
        xp = self.xp
        flat = [xp.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in arrays]
        whole = self.get(xp.concatenate(flat))
        stops = np.cumsum([part.size for part in flat])[:-1]
        return [
            # a copy lies where values of its type may lie
            part.view(each.dtype).reshape(each.shape).copy()
            for part, each in zip(np.split(whole, stops), arrays, strict=True)
        ]

    def stride(self, kernels: Kernels, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel of which each thread has several of `count` voxels."""
        threads = min(count, _THREADS)
        kernels.launch(name, threads, *arguments, np.int64(count), np.int64(threads))

    def totals(self, kernels: Kernels, name: str, count: int, width: int, *arguments: Any) -> Any:
        """Run a kernel of which all threads add to a few numbers; see `stride`.

        `width`: how many numbers. ``*arguments``: those that come before them, and those after.
        Returns: uint64, on the GPU.
        """
        before, after = arguments
        counts = self.xp.zeros((_TABLES, width), np.uint64)
        self.stride(kernels, name, count, *before, counts, np.int32(_TABLES), *after)
        return counts.sum(axis=0, dtype=np.uint64)

    def numbers(self, *values: Any) -> list[int]:
        """Return arrays of one int32 each as numbers; waits for the GPU once."""
        return [int(each) for each in self.get(self.xp.concatenate(values))]

    def squared_distance(
        self,
        phase: Any,
        spacing: Sequence[float],
        solid_outside: Sequence[bool],
        highest: int = 1,
        carried: tuple[Any, Any] | None = None,
    ) -> Any:
        """Return the squared distance; see `hushpore.pores.watershed.distance.fill_distance`.

        `phase`: (z, y, x), uint8: 1 to `highest` is void, all else is solid. `spacing`,
        `solid_outside`: in z, y, x order. `highest`: see `phase`. `carried`: distance along z
        before and after a slab; by default there is nothing beside it.
        Returns: float32.
        """
        xp, launch = self.xp, self._distance.launch
        depth, height, width = phase.shape
        count, plane = phase.size, height * width
        smallest = min(spacing)
        weights = [np.float64((step / smallest) ** 2) for step in spacing]
        edges = [np.float32(0.0 if solid else np.inf) for solid in solid_outside]
        distance = xp.empty(phase.shape, np.float32)
        if carried is None:
            carried = (xp.full((height, width), edges[0], np.float32),) * 2
        # they are needed no longer when the distance takes their place
        steps = distance.reshape(-1).view(np.uint16)[:count]
        size = (np.int64(plane), np.int64(depth), np.int32(highest))
        launch("scan_z", plane, phase, steps, *carried, *size)
        in_zy = xp.empty(phase.shape, np.float32)
        scale = np.float32(weights[0])
        line = (np.int32(height), np.int32(width), weights[1], edges[1])
        is_far = xp.zeros(depth, np.uint8)
        launch("near_y", count, steps, in_zy, is_far, scale, np.int64(count), *line)
        rows, row_size = depth * height, (np.int32(width), weights[2], edges[2])
        blocks = min(rows, _BLOCKS)
        launch_blocks = self._distance.launch_blocks
        launch_blocks("far_y", blocks, steps, in_zy, is_far, scale, np.int64(rows), *line)
        is_far = xp.zeros(rows, np.uint8)
        launch("near_x", count, in_zy, distance, is_far, np.int64(count), *row_size)
        launch_blocks("far_x", blocks, in_zy, distance, is_far, np.int64(rows), *row_size)
        return distance

    def watershed(
        self,
        distance: Any,
        first: int = 0,
        last: int | None = None,
        before: int = 0,
        *,
        faces_only: bool = False,
        further: Any = None,
    ) -> GpuWatershed:
        """Return the basins of a slab; see `hushpore.pores.watershed.basins.watershed_slab`.

        `distance`: (z, y, x), float32, fewer than 2**31 voxels. `first`, `last`: slices of the
        slab; by default all. `before`: basins that come before this slab's. `faces_only`: whether
        voxels lead to the 6 neighbours that they share a face with only. `further`: int64, flat
        indices of voxels that are made peaks, where the slab is all there is.
        """
        xp, launch = self.xp, self.basins.launch
        depth, height, width = distance.shape
        last = depth if last is None else last
        count, plane = distance.size, height * width
        size = (np.int64(depth), np.int32(height), np.int32(width))
        own, begin, end = (last - first) * plane, np.int64(first * plane), np.int64(last * plane)
        pointers = xp.empty(count, np.int32)
        is_peak, is_exit = (xp.zeros(-(-flags // BITS), np.uint32) for flags in (own, 2 * plane))
        how = (pointers, is_peak, is_exit, *size, np.int32(faces_only), begin, end)
        self.basins.launch_blocks("steepest_ascent", _bricks(distance.shape), distance, *how)
        if further is not None:
            places = (further, pointers, is_peak, np.int64(further.size))
            launch("make_peaks", int(further.size), *places)
        peaks = Flags(self, is_peak)
        numbers = (peaks.flags, peaks.counts)
        launch("number", own, pointers, *numbers, begin, end, np.int32(before))
        if own < count:
            exits = Flags(self, is_exit)
            numbers = (exits.flags, exits.counts)
            launch("number_exits", own, pointers, *numbers, begin, end, np.int64(plane))
        basins = pointers.reshape(distance.shape)[first:last]
        (number,) = self.numbers(peaks.total)
        return GpuWatershed(basins, peaks.places(number), is_exit)

    def scan(
        self,
        basins: Any,
        distance: Any,
        shape: Sequence[int],
        numbers: tuple[int, int],
        offset: int = 0,
        own: int | None = None,
        grey: Any = None,
        phase: Any = None,
        *,
        faces_only: bool = False,
    ) -> Scan:
        """Return the sums over basins and their contacts; see `hushpore.pores.geometry.contacts`.

        `basins`, `distance`: (z, y, x), int32 and float32: of a slab, and of the slice behind it.
        `numbers`: the lowest basin that the tables begin with, and the one after their last.
        `offset`, `own`: first slice of the slab, and how many it has. `grey`: (z, y, x), int32:
        grey values of the slab; without them, sums of them are 0. `phase`: (z, y, x), uint8, as
        the void is classified, where voxels of closed void are counted. `faces_only`: whether one
        crosses between basins over the faces of voxels only.
        """
        xp = self.xp
        depth, height, width = shape
        low, high = numbers
        count = (depth if own is None else own) * height * width
        where = (np.int64(count), np.int64(offset), np.int64(depth))
        size = (*where, np.int32(height), np.int32(width))
        sums = xp.zeros((high - low, len(SUMS)), np.uint64)
        bounds = xp.zeros((high - low, 6), np.int32)
        bounds[:, :3] = np.iinfo(np.int32).max
        closed = xp.zeros(high - low, np.uint64)
        has_grey, has_phase = (np.int32(each is not None) for each in (grey, phase))
        grey = xp.zeros(1, np.int32) if grey is None else grey
        phase = xp.zeros(1, np.uint8) if phase is None else phase
        tables = (sums, bounds, closed, has_grey, has_phase, np.int32(low))
        blocks = min(-(-count // _RUNS), _BLOCKS)
        self.graph.launch_blocks("sum_runs", blocks, basins, grey, phase, *tables, *size)
        border_crossings = self.totals(
            self.graph, "count_border_crossings", count // width, N_DIRECTIONS, (basins,), size[1:]
        )
        ways = np.int32(3 if faces_only else N_DIRECTIONS)
        bricks = _bricks((count // (height * width), height, width))
        room = (1024 + _ROOM * (high - low)) // BITS * BITS
        while True:
            crossings = xp.zeros((high - low, N_DIRECTIONS), np.uint64)
            keys = xp.full(room, _EMPTY, np.uint64)
            is_used = xp.zeros(room // BITS, np.uint32)
            saddles = xp.zeros(room, np.uint64)
            contacts = xp.zeros((room, N_DIRECTIONS), np.int32)
            is_full = xp.zeros(1, np.int32)
            to_fill = (crossings, keys, is_used, saddles, contacts, is_full, np.int64(room))
            how = (*to_fill, ways, np.int32(low), *size)
            self.graph.launch_blocks("find_edges", bricks, basins, distance, *how)
            edges = Flags(self, is_used)
            no_room, number = self.numbers(is_full, edges.total)
            if not no_room:
                break
            room *= 2
        used = edges.places(number)
        used = used[xp.argsort(keys[used])]
        saddles = saddles[used]
        is_none = saddles == 0
        saddle = xp.where(is_none, _NO_WAY, (saddles >> np.uint64(32)).astype(np.int32))
        # of the slab so far
        place = (~saddles & _LOWER).astype(np.int64) + np.int64(offset * height * width)
        xp.copyto(place, np.int64(0), where=is_none)
        return Scan(
            sums,
            bounds,
            closed,
            crossings,
            border_crossings,
            keys[used],
            saddle,
            place,
            contacts[used],
        )

    def build_graph(
        self,
        watershed: GpuWatershed,
        distance: Any,
        phase: Any,
        more: Sequence[Any] = (),
        grey: Any = None,
        *,
        faces_only: bool = False,
    ) -> tuple[BasinGraph, list[Array]]:
        """Return the graph of all basins, on the host; see `hushpore.pores.watershed.graph.Tables`.

        `watershed`, `distance`: as `watershed` and `squared_distance` give them, of a stack in one
        piece. `phase`: (z, y, x), uint8, as the void is classified. `more`: what else comes to the
        host with the tables, and is returned beside the graph. `grey`: as for `scan`.
        """
        peaks = watershed.peaks
        numbers = (0, int(peaks.size) + 1)
        shape = watershed.basins.shape
        where = (shape, numbers, 0, None, grey, phase)
        found = self.scan(watershed.basins, distance, *where, faces_only=faces_only)
        found = found._replace(crossings=found.crossings.astype(counting(math.prod(shape))))
        peak_squared = distance.reshape(-1)[peaks]
        small = [peaks, peak_squared, *more]
        on_host = self.get_all([*small, *found])
        places, heights, *others = on_host[: len(small)]
        scan = Scan(*on_host[len(small) :])
        sums = scan.sums.view(np.int64)
        if grey is None:
            mark_grey_unknown(sums)
        graph = BasinGraph(
            peak=np.concatenate([[-1], places]),
            peak_squared_distance=np.concatenate([np.zeros(1, np.float32), heights]),
            sums=sums,
            crossings=scan.crossings,
            bounds=scan.bounds,
            closed_voxels=scan.closed.view(np.int64),
            border_crossings=scan.border_crossings.view(np.int64),
            a=(scan.keys >> np.uint64(32)).astype(np.int32),
            b=(scan.keys & np.uint64(0xFFFFFFFF)).astype(np.int32),
            saddle=scan.saddle.view(np.float32),
            saddle_at=scan.place,
            contacts=scan.contacts.astype(narrowest(int(scan.contacts.max(initial=0)))),
        )
        return graph, others


#: Threads of a block.
_BLOCK = 256

#: Fused multiply-add rounds once where a CPU rounds twice, and results would differ.
OPTIONS = ("--std=c++14", "--fmad=false")


def text_of(source: Path) -> str:
    """Return the source text of a file, preceded by the ``common.cuh`` of its folder."""
    files = (source.with_name("common.cuh"), source)
    return "".join(file.read_text(encoding="utf-8") for file in files)


class Kernels:
    """The compiled kernels of a source file, on the current CUDA device; see `load_kernels`."""

    def __init__(self, source: Path, definitions: tuple[str, ...] = ()) -> None:
        import cupy

        text = text_of(source)
        self._module = cupy.RawModule(code=text, options=OPTIONS + definitions)
        # now, so that timings of the first launch exclude the compilation
        self._module.compile()

    def launch(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel with at least `count` threads.

        `count`: number of threads needed. ``*arguments``: arrays in C order, and NumPy scalars of
        exactly the types of the kernel.
        """
        self.launch_blocks(name, (count + _BLOCK - 1) // _BLOCK, *arguments)

    def launch_blocks(self, name: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel with a number of blocks.

        ``*arguments``: as for `launch`.
        """
        self._module.get_function(name)((blocks,), (_BLOCK,), arguments)


@lru_cache
def load_kernels(source: Path, device: str, definitions: tuple[str, ...] = ()) -> Kernels:
    """Return the kernels of a file on the current CUDA device, loaded once per device.

    CuPy caches compiled kernels on disk for later processes.

    `source`: a ``.cu`` file. `definitions`: options of the compiler that define macros,
    ``-DNAME=VALUE``.
    """
    return Kernels(source, definitions)
