"""Distance, basins and their graph on a GPU, bit-identical to the CPU.

The kernels are in ``kernels/*.cu``. The array library is a parameter: CuPy on a GPU; tests run the
same code with NumPy and kernels compiled for the CPU.

The host waits for the GPU only for numbers that it needs to continue (`Gpu.numbers`) and for
results (`Gpu.get`). Arrays are never indexed by a mask, since CuPy would count it first, and wait.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.device.backend import Backend
from hushpore.device.kernels import load_kernels
from hushpore.pores.geometry.contacts import N_DIRECTIONS
from hushpore.pores.geometry.sums import SUMS, counting, narrowest
from hushpore.pores.geometry.surface import DIRECTIONS
from hushpore.pores.void.components import CLOSED
from hushpore.pores.watershed.graph import BasinGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from hushpore.device.kernels import Kernels
    from hushpore.device.transfers import PendingUpload

#: Source files of the kernels: void, distance, basins and graph.
SOURCES = [
    Path(__file__).parent / "kernels" / f"{name}.cu"
    for name in ("void", "distance", "basins", "graph")
]


def definitions() -> tuple[str, ...]:
    """Return the compiler options of the kernels: macros of shared tables."""
    tables = {"POWERS": [each.powers for each in SUMS], "STEPS": DIRECTIONS.tolist()}
    in_c = {
        name: "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"
        for name, rows in tables.items()
    }
    counts = {"N_SUMS": len(SUMS), "N_DIRECTIONS": N_DIRECTIONS, "CLOSED": CLOSED}
    return tuple(f"-D{name}={value}" for name, value in {**counts, **in_c}.items())


_EMPTY, _LOWER = np.uint64(2**64 - 1), np.uint64(2**32 - 1)
_THREADS = 1 << 18  # number of threads that a large GPU runs at once
_BITS = 32  # as in basins.cu
_BLOCKS = 1 << 10  # thread blocks for cooperative kernels
_RUNS = 2048  # voxels that a thread block processes at once, as in graph.cu
_TABLES = 256  # tables of counts, to reduce contention
_ROOM = 10  # initial entries per basin in the table of edges, 68 bytes each
_NO_WAY = np.float32(-1).view(np.int32)  # no passage, as in `BasinGraph.saddle`


class GpuWatershed(NamedTuple):
    """Basins of a slab, as arrays on the GPU."""

    basins: Any  # (z, y, x), int32: basin, or -1 - n if a voxel ascends to exit n of the slab
    peaks: Any  # int64, flat indices in the slab
    is_exit: Any  # bits of uint32, for two slices: voxels beside the slab that are exits


class Scan(NamedTuple):
    """Sums over basins and contacts between them, as arrays on the GPU."""

    sums: Any
    bounds: Any
    closed: Any  # voxels of closed void, if counted
    crossings: Any
    border_crossings: Any
    keys: Any
    saddle: Any
    place: Any
    contacts: Any


class Flags:
    """Bit flags on a GPU, with the cumulative number of set bits per word.

    `flags`: uint32; the first flag is the lowest bit of the first word.
    """

    def __init__(self, gpu: Gpu, flags: Any) -> None:
        self._gpu, self.flags = gpu, flags
        counts = gpu.xp.empty(flags.size, np.int32)
        gpu.basins.launch("count_flags", flags.size, flags, counts, np.int64(flags.size))
        #: int32, number of set flags up to the end of each word.
        self.counts = gpu.xp.cumsum(counts, dtype=np.int32)

    @property
    def total(self) -> Any:
        """Number of set flags: one int32 on the GPU."""
        return self.counts[-1:]

    def places(self, number: int) -> Any:
        """Return the indices of the `number` set flags, int64."""
        places, words = self._gpu.xp.empty(number, np.int64), self.flags.size
        where = (self.flags, self.counts, places, np.int64(words))
        self._gpu.basins.launch("compact", words, *where)
        return places


class Gpu:
    """Array library and pore kernels of a GPU.

    `xp`: array library, ``cupy``. `load`: returns the kernels of a source file, compiled with
    `definitions`.
    """

    def __init__(
        self,
        xp: Any,
        load: Callable[[Path, tuple[str, ...]], Kernels],
        backend: Backend | None = None,
    ) -> None:
        self.xp = xp
        self._transfers = (backend or Backend()).transfers
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
            cupy, lambda source, macros: load_kernels(source, backend.device, macros), backend
        )

    def sources(self) -> tuple[Kernels, ...]:
        """Return the kernels of all files, in the order of `SOURCES`."""
        return self.void, self._distance, self.basins, self.graph

    def put(self, values: npt.NDArray[Any]) -> Any:
        """Copy an array to the GPU, by PyTorch, and wrap it in the array library."""
        return self.xp.from_dlpack(self._transfers.upload(values))

    def get(self, values: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Copy an array to the host; waits for the GPU."""
        from torch.utils.dlpack import from_dlpack

        return self._transfers.download(from_dlpack(values), out)

    def put_ahead(self, values: npt.NDArray[Any]) -> PendingUpload:
        """Start to copy an array to the GPU, in any thread; `arrived` returns it."""
        return self._transfers.upload_ahead(values)

    def arrived(self, pending: PendingUpload) -> Any:
        """Return an array that was sent ahead, ready for the following kernels."""
        return self.xp.from_dlpack(pending.result())

    def get_behind(self, values: Any, out: npt.NDArray[Any]) -> Callable[[], None]:
        """Start to copy an array to the host; see `Transfers.download_behind`."""
        from torch.utils.dlpack import from_dlpack

        return self._transfers.download_behind(from_dlpack(values), out)

    def get_all(self, arrays: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """Copy several arrays to the host in one transfer; waits for the GPU once."""
        xp = self.xp
        flat = [xp.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in arrays]
        whole = self.get(xp.concatenate(flat))
        stops = np.cumsum([part.size for part in flat])[:-1]
        return [
            # copied for the alignment of its type
            part.view(each.dtype).reshape(each.shape).copy()
            for part, each in zip(np.split(whole, stops), arrays, strict=True)
        ]

    def stride(self, kernels: Kernels, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel whose threads each process several of `count` voxels."""
        threads = min(count, _THREADS)
        kernels.launch(name, threads, *arguments, np.int64(count), np.int64(threads))

    def totals(self, kernels: Kernels, name: str, count: int, width: int, *arguments: Any) -> Any:
        """Run a kernel whose threads all add to a few numbers; see `stride`.

        `width`: number of sums. ``*arguments``: kernel arguments before and after the sums.
        Returns: uint64, on the GPU.
        """
        before, after = arguments
        counts = self.xp.zeros((_TABLES, width), np.uint64)
        self.stride(kernels, name, count, *before, counts, np.int32(_TABLES), *after)
        return counts.sum(axis=0, dtype=np.uint64)

    def numbers(self, *values: Any) -> list[int]:
        """Download arrays of one int32 each as numbers; waits for the GPU once."""
        return [int(each) for each in self.get(self.xp.concatenate(values))]

    def squared_distance(
        self,
        void_state: Any,
        spacing: Sequence[float],
        solid_beyond: Sequence[bool],
        highest: int = 1,
        carried: tuple[Any, Any] | None = None,
    ) -> Any:
        """Return the squared distance; see `hushpore.pores.watershed.distance.fill_distance`.

        `void_state`: (z, y, x), uint8: 1 to `highest` is void, all else is solid. `spacing`,
        `solid_beyond`: (z, y, x). `carried`: distance along z before and after a slab; by default
        there are no slices beside it.
        Returns: float32.
        """
        xp, launch = self.xp, self._distance.launch
        depth, height, width = void_state.shape
        count, plane = void_state.size, height * width
        smallest = min(spacing)
        weights = [np.float64((step / smallest) ** 2) for step in spacing]
        edges = [np.float32(0.0 if solid else np.inf) for solid in solid_beyond]
        distance = xp.empty(void_state.shape, np.float32)
        if carried is None:
            carried = (xp.full((height, width), edges[0], np.float32),) * 2
        # shares memory with the distance, which is written after the last use
        steps = distance.reshape(-1).view(np.uint16)[:count]
        size = (np.int64(plane), np.int64(depth), np.int32(highest))
        launch("scan_z", plane, void_state, steps, *carried, *size)
        in_zy = xp.empty(void_state.shape, np.float32)
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
    ) -> GpuWatershed:
        """Return the basins of a slab; see `hushpore.pores.watershed.basins.watershed_slab`.

        `distance`: (z, y, x), float32, fewer than 2**31 voxels. `first`, `last`: slices of the
        slab; by default all. `before`: number of basins of earlier slabs. `faces_only`: whether
        voxels ascend only to the 6 neighbours that share a face with them.
        """
        xp, launch = self.xp, self.basins.launch
        depth, height, width = distance.shape
        last = depth if last is None else last
        count, plane = distance.size, height * width
        all_, size = np.int64(count), (np.int32(height), np.int32(width))
        own, begin, end = (last - first) * plane, np.int64(first * plane), np.int64(last * plane)
        sums = xp.empty(count, np.float32)
        launch("sum_boxes", count, distance, sums, all_, *size)
        pointers = xp.empty(count, np.int32)
        is_peak, is_exit = (xp.zeros(-(-flags // _BITS), np.uint32) for flags in (own, 2 * plane))
        how = (np.int64(depth), *size, np.int32(faces_only), begin, end)
        given = (distance, sums, pointers, is_peak, is_exit)
        launch("steepest_ascent", count, *given, all_, *how)
        del sums, given
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
        void_state: Any = None,
        *,
        faces_only: bool = False,
    ) -> Scan:
        """Return the sums over basins and their contacts; see `hushpore.pores.geometry.contacts`.

        `basins`, `distance`: (z, y, x), int32 and float32: of a slab and of the slice after it.
        `numbers`: lowest basin of the tables, and the basin after the last. `offset`, `own`: first
        slice and number of slices of the slab. `grey`: (z, y, x), int32: grey values of the slab,
        for sums of them. `void_state`: (z, y, x), uint8, classified, to count closed void.
        `faces_only`: whether passages between basins lead through voxel faces only.
        """
        xp, launch = self.xp, self.graph.launch
        depth, height, width = shape
        low, high = numbers
        count = (depth if own is None else own) * height * width
        where = (np.int64(count), np.int64(offset), np.int64(depth))
        size = (*where, np.int32(height), np.int32(width))
        sums = xp.zeros((high - low, len(SUMS)), np.uint64)
        bounds = xp.zeros((high - low, 6), np.int32)
        bounds[:, :3] = np.iinfo(np.int32).max
        closed, has_state = xp.zeros(high - low, np.uint64), np.int32(void_state is not None)
        grey = xp.zeros(1, np.int32) if grey is None else grey
        void_state = xp.zeros(1, np.uint8) if void_state is None else void_state
        tables = (sums, bounds, closed, has_state, np.int32(low))
        blocks = min(-(-count // _RUNS), _BLOCKS)
        self.graph.launch_blocks("sum_runs", blocks, basins, grey, void_state, *tables, *size)
        border_crossings = self.totals(
            self.graph, "count_border_crossings", count // width, N_DIRECTIONS, (basins,), size[1:]
        )
        ways = np.int32(3 if faces_only else N_DIRECTIONS)
        room = (1024 + _ROOM * (high - low)) // _BITS * _BITS
        while True:
            crossings = xp.zeros((high - low, N_DIRECTIONS), np.uint64)
            keys = xp.full(room, _EMPTY, np.uint64)
            is_used = xp.zeros(room // _BITS, np.uint32)
            saddles = xp.zeros(room, np.uint64)
            contacts = xp.zeros((room, N_DIRECTIONS), np.int32)
            is_full = xp.zeros(1, np.int32)
            to_fill = (crossings, keys, is_used, saddles, contacts, is_full, np.int64(room))
            launch("find_edges", count, basins, distance, *to_fill, ways, np.int32(low), *size)
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
        # index in the slab
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
        void_state: Any,
        more: Sequence[Any] = (),
        grey: Any = None,
        *,
        faces_only: bool = False,
    ) -> tuple[BasinGraph, list[npt.NDArray[Any]]]:
        """Return the graph of all basins, on the host; see `hushpore.pores.watershed.graph.Tables`.

        `watershed`, `distance`: from `watershed` and `squared_distance`, of a whole stack.
        `void_state`: (z, y, x), uint8, classified. `more`: further arrays to download in the same
        transfer, returned after the graph. `grey`: as for `scan`.
        """
        peaks = watershed.peaks
        numbers = (0, int(peaks.size) + 1)
        shape = watershed.basins.shape
        where = (shape, numbers, 0, None, grey, void_state)
        found = self.scan(watershed.basins, distance, *where, faces_only=faces_only)
        peak_squared = distance.reshape(-1)[peaks]
        small = [peaks, peak_squared, *more]
        on_host = self.get_all([*small, *found])
        places, heights, *others = on_host[: len(small)]
        scan = Scan(*on_host[len(small) :])
        graph = BasinGraph(
            peak=np.concatenate([[-1], places]),
            peak_squared_distance=np.concatenate([np.zeros(1, np.float32), heights]),
            sums=scan.sums.view(np.int64),
            crossings=scan.crossings.astype(counting(math.prod(shape))),
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
