"""Output of a segmentation: measures of pores from all slabs, labels in blocks, and tables.

Tables of basins and of their edges are combined by adding up the rows of the same basin or edge.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.cluster.blocks import load_arrays
from hushpore.cluster.merging import roots
from hushpore.io.zarr.image import ZarrImage
from hushpore.pores.geometry.sums import add_rows
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.graph import BasinGraph, number_keys
from hushpore.runs.pore_result import LABELS_IN_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Int64s
    from hushpore.base.events import Note
    from hushpore.base.volume import Volume
    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.io.zarr.image import Block

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

    path = content / f"{name}.csv"
    pd.DataFrame(columns).to_csv(path, index=False, lineterminator="\n", encoding="utf-8")
