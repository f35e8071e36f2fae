"""The basins of each slab and their measures, and the connections across faces between slabs.

Basins are first numbered within their slab: its own basins from 1 on, in the order of their peaks,
then its exits, the voxels in neighbouring slabs that its own voxels lead to. Once all slabs are
done, basins are numbered through the whole volume as on one machine; exits have the numbers after
all basins until their basins are known.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import MemoryLimitError
from hushpore.cluster.blocks import load_arrays, save_arrays
from hushpore.cluster.merging import begin_merging, paint_parts, roots
from hushpore.cluster.task_runner import on_gpu_or_cpu
from hushpore.cluster.void import carried, paints_late
from hushpore.device.timing import StageTimer
from hushpore.io.results import as_csv
from hushpore.io.zarr import ZarrImage
from hushpore.pores.geometry.sums import add_rows
from hushpore.pores.gpu.engines import GpuSlabs
from hushpore.pores.numbering import require_in_void, whole_markers
from hushpore.pores.parallel import kernel
from hushpore.pores.topology import euler_of_slab
from hushpore.pores.void.components import AIR, CLOSED, OPEN, SOLID, closed_bits
from hushpore.pores.void.threshold import GreyValues, RoundedGrey, Rounding
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.graph import BasinGraph, number_keys
from hushpore.pores.work import BYTES_A_BASIN
from hushpore.runs.pore_result import LABELS_IN_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s, Mask, UInt8s
    from hushpore.base.events import Note
    from hushpore.base.volume import Volume
    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.io.zarr import Block
    from hushpore.pores.engine import Engine
    from hushpore.pores.gpu.engine import Gpu


#: Columns of the tables: of the peaks of basins, of basins, and of edges; see `BasinGraph`.
PEAKS = ("peak_squared_distance", "peak")
BASINS = (*PEAKS, "closed_voxels", "sums", "crossings", "bounds")
EDGES = ("a", "b", "saddle", "saddle_at", "contacts")

#: Placeholder for the peak of an exit, which lies in another slab.
ELSEWHERE = np.iinfo(np.int64).max


class Finished(NamedTuple):
    """A finished segmentation: its record and the text of the result."""

    provenance: dict[str, Any]
    headline: str
    remarks: tuple[Note, ...]


def join_tables(pieces: list[tuple[Int64s, dict[str, Array]]]) -> tuple[Int64s, dict[str, Array]]:
    """Combine tables of basins by the numbers of the basins, without row 0.

    `pieces`: for each table the basin number of each row, and the columns of basins and edges.
    Returns: sorted basin numbers (n,), int64, and the columns; edges join basin numbers instead of
    rows, with ``a < b``.
    """
    basin, row = np.unique(
        np.concatenate([numbers[1:] for numbers, _ in pieces]), return_inverse=True
    )
    rows = np.split(row, np.cumsum([numbers.size - 1 for numbers, _ in pieces])[:-1])
    joined: dict[str, Array] = {}
    for name in BASINS:
        parts = [columns[name][1:] for _, columns in pieces]
        if name == "peak":
            # the highest peak of each basin; at equal height the first
            heights = [columns["peak_squared_distance"][1:] for _, columns in pieces]
            parts = [
                np.where(height == joined["peak_squared_distance"][row], part, ELSEWHERE)
                for part, height, row in zip(parts, heights, rows, strict=True)
            ]
        joined[name] = _add_up(name, parts, rows, basin.size)
    edges = []
    for numbers, columns in pieces:
        a, b = numbers[columns["a"]], numbers[columns["b"]]
        same = a == b
        # two rows of the same basin have no surface between them
        inner = np.searchsorted(basin, a[same])
        add_rows(-columns["contacts"][same], inner, joined["crossings"])
        apart = ~same
        ends = (np.minimum(a, b)[apart], np.maximum(a, b)[apart])
        edges.append((*ends, *(columns[name][apart] for name in EDGES[2:])))
    together = [np.concatenate(column) for column in zip(*edges, strict=True)]
    return basin, {**joined, **dict(zip(EDGES, join_edges(*together), strict=True))}


def join_edges(
    a: Int64s, b: Int64s, saddle: Float32s, saddle_at: Int64s, contacts: Array
) -> tuple[Array, ...]:
    """Combine edges between the same basins: highest saddle, its first position, all contacts."""
    key, which = number_keys((a << 32) | b)
    highest = np.full(key.size, -1, np.float32)
    np.maximum.at(highest, which, saddle)
    is_highest = saddle == highest[which]
    place = np.full(key.size, ELSEWHERE)
    np.minimum.at(place, which[is_highest], saddle_at[is_highest])
    total = np.zeros((key.size, contacts.shape[1]), np.int64)
    add_rows(contacts, which, total)
    return key >> 32, key & 0xFFFFFFFF, highest, place, total


def _add_up(name: str, columns: list[Array], rows: list[npt.NDArray[np.intp]], count: int) -> Array:
    """Combine a column of several tables by rows: sum, minimum or maximum."""
    kind = np.dtype(np.int64) if name == "crossings" else columns[0].dtype
    total = np.zeros((count, *columns[0].shape[1:]), kind)
    if name == "peak":
        total[:] = ELSEWHERE
    if name == "bounds":
        total[:, :3] = np.iinfo(np.int32).max
    joins = {"peak": np.minimum, "peak_squared_distance": np.maximum}
    for row, column in zip(rows, columns, strict=True):
        if name == "bounds":
            # NumPy has a fast path only for one dimension
            for axis in range(6):
                (np.minimum if axis < 3 else np.maximum).at(total[:, axis], row, column[:, axis])
        elif column.ndim > 1:
            add_rows(column, row, total)
        else:
            joins.get(name, np.add).at(total, row, column)
    return total


# ---- tasks, and how the client combines their tables


def finish(blocks: Blocks, slab: int, levels: int) -> Report:
    """Combine the measures of the basins of a slab into those of their pores.

    Stores the table ``pores``.
    """
    basin, *columns = blocks.load("slab", slab, "basin", *BASINS, *EDGES)
    table = dict(zip((*BASINS, *EDGES), columns, strict=True))
    numbers, whole = blocks.load("numbers", slab, "numbers"), np.concatenate([[0], basin])
    root = roots(blocks, slab, levels, whole, "pores")
    blocks.save("roots", slab, root=roots(blocks, slab, levels, numbers, "pores"))
    a, b = (np.searchsorted(whole, table[end]) for end in ("a", "b"))
    rows = {name: np.concatenate([table[name][:1], table[name]]) for name in BASINS}
    edges = {"a": a, "b": b, **{name: table[name] for name in EDGES[2:]}}
    pore, joined = join_tables([(root, {**rows, **edges})])
    blocks.save("pores", slab, pore=pore, **joined)
    return {"pores": pore.size, "throats": joined["a"].size}


def collect(folder: Path, slabs: int, border_crossings: Int64s) -> tuple[BasinGraph, Int64s]:
    """Return the graph of all pores, each as one basin, and the number of each root basin."""
    pieces = []
    for slab in range(slabs):
        names = ("pore", *BASINS, *EDGES)
        pore, *columns = load_arrays(folder / f"pores-{slab}.arrays", *names)
        table = dict(zip(names[1:], columns, strict=True))
        # convert the basin numbers of edges to rows, counted from 1
        for end in ("a", "b"):
            table[end] = np.searchsorted(pore, table[end]) + 1
        for name in BASINS:
            table[name] = np.concatenate([table[name][:1], table[name]])
        pieces.append((np.concatenate([[0], pore]), table))
    pore, joined = join_tables(pieces)
    for name in BASINS:
        # tables of basins start with an empty row 0
        column = joined[name]
        nothing = np.zeros((1, *column.shape[1:]), column.dtype)
        joined[name] = np.concatenate([nothing, column])
    for end in ("a", "b"):
        joined[end] = (np.searchsorted(pore, joined[end]) + 1).astype(np.int32)
    columns_of_graph: dict[str, Any] = {**joined, "border_crossings": border_crossings}
    return BasinGraph(**columns_of_graph), pore


def open_labels(content: Path, volume: Volume) -> ZarrImage:
    """Open the label image of a volume for writing in blocks; created empty if missing."""
    empty = np.broadcast_to(np.zeros(1, np.int32), volume.shape)
    labels = volume.as_labels(empty, f"{volume.name} pores")
    return ZarrImage.begin(content / LABELS_IN_BLOCKS, labels, are_labels=True)


def write_labels(blocks: Blocks, layer: int, thickness: int) -> Report:
    """Write the labels of a layer of blocks; returns the pore voxels of each of its slices."""
    image = ZarrImage.open(Path(blocks.plan.content, LABELS_IN_BLOCKS))
    pores = np.zeros(min(thickness, blocks.plan.shape[0] - layer * thickness), np.int64)
    first = layer * thickness
    root, label = blocks.load("labels", 0, "root", "label")
    parts = []
    for slab in range(first // blocks.plan.thickness, len(blocks.plan.slabs)):
        begin, end = blocks.plan.slabs[slab]
        low, high = max(first, begin), min(first + pores.size, end)
        if low >= high:
            break
        own = blocks.load("roots", slab, "root")
        place = np.minimum(np.searchsorted(root, own), max(root.size - 1, 0))
        table = np.zeros(own.size, np.int32)
        if root.size:
            table = np.where(root[place] == own, label[place], 0).astype(np.int32)
        basins = blocks.read("basins", low, high)
        parts.append(apply_labels(basins, table, blocks.threads, basins))
    labels = parts[0] if len(parts) == 1 else np.concatenate(parts)
    for block in blocks_of(image, 0, layer):
        if not blocks.folder.is_dir():
            # cancelled: zarr would create the folders of the result again
            break
        image.levels[0][block] = labels[(slice(None), *block[1:])]
    pores[:] = [np.count_nonzero(plane) for plane in labels]
    blocks.moved += labels.nbytes
    return {"pore_voxels": pores}


def write_coarser(blocks: Blocks, layer: int, level: int) -> Report:
    """Write a layer of blocks of a coarser pyramid level of the labels."""
    image = ZarrImage.open(Path(blocks.plan.content, LABELS_IN_BLOCKS))
    for block in blocks_of(image, level, layer):
        image.reduce(level, block)
    return {}


def blocks_of(image: ZarrImage, level: int, layer: int) -> Sequence[Block]:
    """Return the blocks of a layer of a level."""
    layers = itertools.groupby(image.blocks(level), lambda block: block[0])
    return list(next(itertools.islice(layers, layer, None))[1])


def count_layers(image: ZarrImage, level: int) -> int:
    """Return the number of layers of blocks of a pyramid level."""
    array = image.levels[level]
    return int(-(-array.shape[0] // array.shards[0]))


def profile_of(volume: Volume, sample: Int64s, pore_voxels: Int64s) -> dict[str, Array]:
    """Return the columns of the porosity profile along z.

    `volume`: the input, for the positions of its slices. `sample`, `pore_voxels`: (z,), int64:
    sample voxels and pore voxels of each slice.
    """
    slices = np.arange(sample.size)
    porosity = np.full(sample.shape, np.nan)
    np.divide(pore_voxels, sample, out=porosity, where=sample > 0)
    position = volume.origin[0] + volume.spacing[0] * slices
    return {"slice": slices, "position": position, "porosity": porosity}


def write_table(content: Path, name: str, columns: Mapping[str, npt.ArrayLike]) -> None:
    """Write a table of a result."""
    import pandas as pd

    as_csv(pd.DataFrame(columns), content / f"{name}.csv")


def watershed(
    blocks: Blocks,
    slab: int,
    source: str,
    shared_open: Mask,
    most_basins: int,
    grey_range: tuple[float, float],
) -> Report:
    """Compute distance and basins of a slab, and measure the basins without its last slice.

    `source`: name of the stack of void phases. `shared_open`: whether each component shared with
    other slabs is open. `grey_range`: the grey range of the whole volume.
    """

    def work(gpu: Gpu | None) -> Report:
        how: Engine = blocks.work.engine
        if gpu is not None:
            how = GpuSlabs(gpu, blocks.threads, StageTimer())
        return _watershed(blocks, slab, source, shared_open, most_basins, grey_range, how)

    return on_gpu_or_cpu(blocks.plan.device, work)


def _watershed(
    blocks: Blocks,
    slab: int,
    source: str,
    shared_open: Mask,
    most_basins: int,
    grey_range: tuple[float, float],
    engine: Engine,
) -> Report:
    plan, work = blocks.plan, blocks.work
    first, last = plan.slabs[slab]
    low, high = max(first - 2, 0), min(last + 2, plan.shape[0])
    own = slice(first - low, last - low)
    phase = blocks.read(source, low, high)
    if paints_late(blocks):
        paint_parts(blocks, slab, phase[own], shared_open, (OPEN, CLOSED), None)
    room = np.empty(phase.shape, np.float32)
    distance = engine.fill_distance(
        phase, room, *carried(blocks, slab), work.spacing, work.solid_beyond, work.highest_void
    )
    crossings = np.zeros(13, np.int64)
    if work.has_air:
        engine.clear_air(distance, phase)
        # including crossings between the slab and the slice after it
        after_it = phase[own.stop : own.stop + 1]
        crossings += engine.air_crossings(phase[own.start : own.stop + 1])
        crossings -= engine.air_crossings(after_it)
    basins = np.empty(phase.shape, np.int32)
    cut = own.start, own.stop
    found = engine.watershed_slab(distance, basins, *cut, faces_only=work.faces_only)
    count, exits = found.peaks.size, found.back.size + found.ahead.size
    if count > most_basins:
        raise MemoryLimitError(
            f"The void of slices {first} to {last} has {count:,} basins, but a worker has memory "
            f"for {most_basins:,} ({BYTES_A_BASIN} bytes each). They may be noise: denoise the "
            "volume first, or give the workers more memory."
        )
    basins, distance = basins[own], distance[own]
    peak_squared_distance = distance.reshape(-1)[found.peaks]
    blocks.threads.over(basins.size, _number_exits, basins.reshape(-1), count, smallest=1 << 14)
    blocks.write("basins", slab, basins)
    if plan.settings.by_snow:
        blocks.write("distance", slab, distance)
    blocks.save("edges", slab, first=distance[0], last=distance[-1])
    void = phase[own.start : own.stop + 1]
    void = (void != SOLID) & (void != AIR)
    euler_number = euler_of_slab(void, last - first, blocks.threads, work.faces_only)
    graph = _measure(
        blocks,
        basins,
        distance,
        np.concatenate([found.peaks + first * phase[0].size, np.full(exits, ELSEWHERE)]),
        (first, last if last == plan.shape[0] else last - 1),
        grey_range,
        phase[own],
        engine,
        crossings,
    )
    graph.peak_squared_distance[1 : count + 1] = peak_squared_distance
    columns = {name: getattr(graph, name) for name in (*BASINS, *EDGES)}
    blocks.save("slab_basins", slab, **columns, back=found.back, ahead=found.ahead)
    return {
        "count": count,
        "back": found.back.size,
        "ahead": found.ahead.size,
        "euler_number": euler_number,
        **_sums_of(graph),
    }


@kernel
def _number_exits(basins: Int32s, count: int, first: int, last: int) -> None:
    """Number exits after all basins of a slab, in place."""
    for i in range(first, last):
        if basins[i] < 0:
            basins[i] = np.int32(count - basins[i])


def stitch(
    blocks: Blocks, slab: int, basins_before: Sequence[int], exits_before: Sequence[int]
) -> Report:
    """Resolve the exits between a slab and the next one; returns those that lead to other slabs.

    `basins_before`, `exits_before`: number of basins and exits in the slabs before each slab; the
    last entry is the total.
    """
    end = blocks.plan.slabs[slab][1]
    last_slice, first_slice = blocks.read("basins", end - 1, end + 1).reshape(2, -1)
    ahead = blocks.load("slab_basins", slab, "ahead")
    back = blocks.load("slab_basins", slab + 1, "back")
    total = basins_before[-1]
    counts = np.diff(basins_before)
    backs = (exits_before[slab + 1] - exits_before[slab] - ahead.size, back.size)

    def numbered(found: Int32s, at: int) -> Int64s:
        """Number in the whole volume; exits across this face are -1 - n, ahead first, then back."""
        own = found.astype(np.int64)
        leaves = own > counts[at]
        exit_ = own - counts[at] - 1
        is_back = exit_ < backs[at - slab]
        over = leaves & (is_back == (at > slab))
        onward = exit_ - backs[0] if at == slab else exit_ + ahead.size
        result = np.where(leaves, total + exits_before[at] + exit_ + 1, own + basins_before[at])
        return np.where(over, -1 - onward, result)

    leads = np.concatenate(
        [numbered(first_slice[ahead], slab + 1), numbered(last_slice[back], slab)]
    )
    while (onward := leads < 0).any():
        leads[onward] = leads[-1 - leads[onward]]
    blocks.save("met", slab, ahead=leads[: ahead.size], back=leads[ahead.size :])
    return {"through": np.unique(leads[leads > total])}


def follow_through(
    folder: Path, through: Int64s, basins: int, exits_before: Int64s, back: Int64s
) -> None:
    """Resolve the few exits that lead through a whole slab, and store their basins.

    `through`: int64: sorted numbers of such exits. `exits_before`, `back`: number of exits before
    each slab, and of its own exits that lead back.
    """
    leads = np.empty(through.size, np.int64)
    exit_ = through - basins - 1
    slab = np.searchsorted(exits_before, exit_, side="right") - 1
    own = exit_ - exits_before[slab]
    is_back = own < back[slab]
    for met in np.unique(slab - is_back):
        ahead, before = load_arrays(folder / f"met-{met}.arrays", "ahead", "back")
        ours = ~is_back & (slab == met)
        leads[ours] = ahead[own[ours] - back[met]]
        theirs = is_back & (slab == met + 1)
        leads[theirs] = before[own[theirs]]
    while (further := leads > basins).any():
        leads[further] = leads[np.searchsorted(through, leads[further])]
    save_arrays(folder / "through-0.arrays", {"exit": through, "basin": leads})


def numbers_in_volume(blocks: Blocks, slab: int, basins_before: Sequence[int]) -> Int64s:
    """Return the number in the whole volume for each basin and exit of a slab, 0 for 0."""
    count = basins_before[slab + 1] - basins_before[slab]
    parts = [np.zeros(1, np.int64), np.arange(1, count + 1) + basins_before[slab]]
    if slab > 0:
        parts.append(blocks.load("met", slab - 1, "back"))
    if slab < len(blocks.plan.slabs) - 1:
        parts.append(blocks.load("met", slab, "ahead"))
    numbers: Int64s = np.concatenate(parts)
    further = numbers > basins_before[-1]
    if further.any():
        exits, basin = blocks.load("through", 0, "exit", "basin")
        numbers[further] = basin[np.searchsorted(exits, numbers[further])]
    return numbers


def reduce_basins(
    blocks: Blocks, slab: int, basins_before: Sequence[int], grey_range: tuple[float, float]
) -> Report:
    """Combine the measures of a slab, including its last slice, by basins of the whole volume.

    Stores the tables ``slab`` (basins sorted by number), ``numbers`` (numbers in the whole volume
    of the slab's basins and exits) and ``undecided`` (groups and edges to merge).
    """
    plan, is_last = blocks.plan, slab == len(blocks.plan.slabs) - 1
    first, last = plan.slabs[slab]
    numbers = numbers_in_volume(blocks, slab, basins_before)
    table = blocks.load("slab_basins", slab, *BASINS, *EDGES)
    pieces = [(numbers, dict(zip((*BASINS, *EDGES), table, strict=True)))]
    low = numbers[np.unique(blocks.read("basins", first, first + 1))] if slab else numbers[:1]
    high, report = numbers[:1], {}
    if not is_last:
        across = blocks.read("basins", last - 1, last + 1)
        beyond = numbers_in_volume(blocks, slab + 1, basins_before)
        both = np.stack([numbers[across[0]], beyond[across[1]]])
        high = np.unique(both[1])
        met, place = np.unique(both, return_inverse=True)
        if met[0] != 0:
            met, place = np.concatenate([[0], met]), place + 1
        pair = np.stack(
            [blocks.load("edges", slab, "last"), blocks.load("edges", slab + 1, "first")]
        )
        graph = _measure(
            blocks,
            place.reshape(both.shape).astype(np.int32),
            pair,
            np.full(met.size - 1, ELSEWHERE),
            (last - 1, last),
            grey_range,
        )
        pieces.append((met, {name: getattr(graph, name) for name in (*BASINS, *EDGES)}))
        report = _sums_of(graph)
    basin, joined = join_tables(pieces)
    reaches = (np.isin(basin, low[low > 0]), np.isin(basin, high[high > 0]))
    blocks.save("slab", slab, basin=basin, **joined)
    blocks.save("numbers", slab, numbers=numbers)
    # some basins have their peak in another slab
    home = np.searchsorted(basins_before, basin) - 1
    for other in np.unique(home[home != slab]).tolist():
        theirs = home == other
        row = basin[theirs] - basins_before[other]
        for name, known in zip(PEAKS, blocks.load("slab_basins", other, *PEAKS), strict=True):
            joined[name][theirs] = known[row]
    report |= begin_merging(blocks, slab, basin, reaches, joined)
    return report | _find_marks(blocks, slab, numbers) if plan.settings.markers else report


def _find_marks(blocks: Blocks, slab: int, numbers: Int64s) -> Report:
    """Find the basins with a marker in a slab, and the lowest marker number of each."""
    first, last = blocks.plan.slabs[slab]
    markers = blocks.work.volume.auxiliary_of(blocks.plan.settings, "markers")
    if tuple(markers.shape) == blocks.plan.shape:
        own = whole_markers(markers[first:last])
        place = np.nonzero(own)
        number = own[place].astype(np.int64)
    else:
        points = whole_markers(markers)
        number = np.flatnonzero((points[:, 0] >= first) & (points[:, 0] < last)) + 1
        place = tuple((points[number - 1] - [first, 0, 0]).T)
    found = numbers[blocks.read("basins", first, last)[place]]
    marked, which = np.unique(found[found > 0], return_inverse=True)
    lowest = np.full(marked.size, np.iinfo(np.int64).max)
    np.minimum.at(lowest, which, number[found > 0])
    return {
        "marked_basins": marked,
        "markers": lowest,
        "marked_voxels": number.size,
        "in_solid": np.count_nonzero(found == 0),
        "is_negative": bool((number < 0).any()),
    }


def join_marks(reports: Sequence[Report]) -> tuple[Int64s, Int64s]:
    """Return the sorted basins with a marker, and the lowest marker number of each.

    Raises InputError if there is no marker, or if a marker is outside the void.
    """
    voxels, in_solid = (
        sum(int(each[name]) for each in reports) for name in ("marked_voxels", "in_solid")
    )
    require_in_void(voxels, in_solid, any(bool(each["is_negative"]) for each in reports))
    basins, markers = (
        np.concatenate([each[name] for each in reports]) for name in ("marked_basins", "markers")
    )
    order = np.lexsort((markers, basins))
    basins, first = np.unique(basins[order], return_index=True)
    return basins, markers[order][first]


def _measure(
    blocks: Blocks,
    basins: Int32s,
    distance: Float32s,
    peaks: Int64s,
    cut: tuple[int, int],
    grey_range: tuple[float, float],
    phase: UInt8s | None = None,
    engine: Engine | None = None,
    air_crossings: Int64s | int = 0,
) -> BasinGraph:
    """Return the measures of the slices in `cut`; closed void is counted in all slices given."""
    engine = engine or blocks.work.engine
    tables = engine.tables(blocks.plan.shape, peaks, faces_only=blocks.work.faces_only)
    if phase is not None:
        tables.add_closed(basins, closed_bits(phase, blocks.threads), blocks.threads)
    if cut[1] > cut[0]:
        grey, volume = None, blocks.work.volume
        if volume.dtype != np.bool_:
            rounded = RoundedGrey(
                GreyValues(volume, blocks.plan.slabs), Rounding.of(volume.dtype, *grey_range)
            )
            grey = rounded.read(*cut, blocks.threads)
        tables.add(basins, distance, blocks.threads, *cut, grey)
    graph: BasinGraph = tables.graph(air_crossings=air_crossings)
    return graph


def _sums_of(graph: BasinGraph) -> Report:
    """Return the surface crossings of the whole void, in all and at the border of the volume."""
    return {
        "crossings": graph.crossings.sum(axis=0, dtype=np.int64)
        - graph.contacts.sum(axis=0, dtype=np.int64),
        "border_crossings": graph.border_crossings,
    }
