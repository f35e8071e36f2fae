"""From merged basins to a result: measures of pores slab by slab, labels in blocks, tables."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.cluster.blocks import load_arrays
from hushpore.cluster.merging import roots
from hushpore.cluster.tables import BASINS, EDGES, join_tables
from hushpore.io.zarr.image import ZarrImage
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.graph import BasinGraph
from hushpore.runs.pore_result import LABELS_IN_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.io.zarr.image import Block


def finish(blocks: Blocks, slab: int, levels: int) -> Report:
    """Add up the measures of the basins of a slab by the pores that they belong to.

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


def collect(
    folder: Path, slabs: int, border_crossings: npt.NDArray[np.int64]
) -> tuple[BasinGraph, npt.NDArray[np.int64]]:
    """Return the graph of all pores, as if each were one basin, and the number of its root."""
    pieces = []
    for slab in range(slabs):
        names = ("pore", *BASINS, *EDGES)
        pore, *columns = load_arrays(folder / f"pores-{slab}.arrays", *names)
        table = dict(zip(names[1:], columns, strict=True))
        # edges join numbers; here rows are wanted, counted from 1
        for end in ("a", "b"):
            table[end] = np.searchsorted(pore, table[end]) + 1
        for name in BASINS:
            table[name] = np.concatenate([table[name][:1], table[name]])
        pieces.append((np.concatenate([[0], pore]), table))
    pore, joined = join_tables(pieces)
    for name in BASINS:
        # with a row 0, which tables of basins have
        column = joined[name]
        nothing = np.zeros((1, *column.shape[1:]), column.dtype)
        joined[name] = np.concatenate([nothing, column])
    for end in ("a", "b"):
        joined[end] = (np.searchsorted(pore, joined[end]) + 1).astype(np.int32)
    columns_of_graph: dict[str, Any] = {**joined, "border_crossings": border_crossings}
    return BasinGraph(**columns_of_graph), pore


def open_labels(content: Path, volume: Volume) -> ZarrImage:
    """Return the labels of a volume, made empty where there are none; to be written in blocks."""
    empty = np.broadcast_to(np.zeros(1, np.int32), volume.shape)
    labels = volume.as_labels(empty, f"{volume.name} pores")
    return ZarrImage.begin(content / LABELS_IN_BLOCKS, labels, are_labels=True)


def write_labels(blocks: Blocks, layer: int, thickness: int) -> Report:
    """Write the labels of a layer of blocks; returns the voxels of pores in each of its slices."""
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
            # cancelled: zarr would make the folders of the result anew
            break
        image.levels[0][block] = labels[(slice(None), *block[1:])]
    pores[:] = [np.count_nonzero(plane) for plane in labels]
    blocks.moved += labels.nbytes
    return {"pore_voxels": pores}


def write_coarser(blocks: Blocks, layer: int, level: int) -> Report:
    """Write a layer of blocks of a coarser level of the labels."""
    image = ZarrImage.open(Path(blocks.plan.content, LABELS_IN_BLOCKS))
    for block in blocks_of(image, level, layer):
        image.reduce(level, block)
    return {}


def blocks_of(image: ZarrImage, level: int, layer: int) -> Sequence[Block]:
    """Return the blocks of a layer of a level."""
    layers = itertools.groupby(image.blocks(level), lambda block: block[0])
    return list(next(itertools.islice(layers, layer, None))[1])


def count_layers(image: ZarrImage, level: int) -> int:
    """Return how many layers of blocks a level has."""
    array = image.levels[level]
    return int(-(-array.shape[0] // array.shards[0]))


def profile_of(
    volume: Volume, sample: npt.NDArray[np.int64], pore_voxels: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the porosity of each slice.

    `volume`: the input, for the places of its slices. `sample`, `pore_voxels`: (z,), int64: voxels
    of each slice that are of the sample, and that are pore.
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
