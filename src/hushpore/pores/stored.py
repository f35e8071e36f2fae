"""Restoring of a segmentation from its result folder, to merge it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.geometry.contacts import N_DIRECTIONS
from hushpore.pores.geometry.sums import SUMS
from hushpore.pores.numbering import numbering_of
from hushpore.pores.result import Pores
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.tables.measures import pore_columns, throat_columns
from hushpore.pores.watershed.graph import BasinGraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.arrays import Array, Int32s
    from hushpore.base.volume import Volume


#: Relative tolerance for figures read from a table, which has 16 digits.
_CLOSE = 1e-9


def restored(
    labels: Volume,
    arrays: Mapping[str, Array],
    provenance: dict[str, Any],
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> Pores:
    """Return a stored segmentation, so that it can be merged again.

    `labels`: stored labels, in memory; the result takes its origin and voxel size from them.
    `arrays`: stored arrays, as `Pores.merging_arrays` returns them. `provenance`: record of the
    job. `tables`: stored tables ``pores`` and ``throats``, which are compared with the restored
    ones.
    Raises InputError if the files do not belong together.
    """
    try:
        graph = BasinGraph.of_arrays(arrays)
        basins, sample = arrays["basins"], arrays["sample"]
        totals, name = provenance["result"], provenance["input"]["name"]
        notes = tuple(provenance.get("notes", ()))
    except KeyError as error:
        raise InputError(
            f"The stored basins of these pores are incomplete: {error}. Segment the pores again."
        ) from None
    values = np.ascontiguousarray(labels.array(), np.int32)
    _check_tables(graph, basins, sample, values)
    _check_numbers(graph, basins, sample)
    stack = Stack(basins.shape, np.int32, None)
    stack.array()[...] = basins
    volume = labels.replace(values, name=name)
    numbering = numbering_of(values, graph)
    _check_labels(values, basins, numbering.labels_of)
    settings = PoreSettings.of_valid(provenance.get("settings", {}))
    throats = throat_columns(graph, numbering, volume)
    least = settings.minimum_shape_voxels
    found = Pores(
        labels=values,
        porosity=totals["porosity"],
        threshold=totals.get("threshold"),
        volume=volume,
        timings=dict(provenance.get("timings", {})),
        provenance=provenance,
        notes=notes,
        _pore_columns=pore_columns(graph, numbering, volume, throats, least),
        _throat_columns=throats,
        _sample=sample,
        _basins=stack,
        _slabs=Slabs(len(basins), len(basins), False),
        _graph=graph,
        _settings=settings,
    )
    for name, table in (tables or {}).items():
        _check_figures(getattr(found, name), table, name)
    return found


def _check_tables(graph: BasinGraph, basins: Array, sample: Array, labels: Int32s) -> None:
    """Raise InputError unless all arrays are consistent.

    Compiled loops index tables and stacks without bounds checks.
    """
    stack = labels.shape if labels.ndim == 3 else (1, *labels.shape)
    if basins.shape != stack:
        raise InputError(
            "The stored basins do not belong to these labels. Segment the pores again."
        )
    rows, edges = graph.peak_squared_distance.size, graph.a.size
    shapes: list[tuple[Array, tuple[int, ...]]] = [
        (graph.peak_squared_distance, (rows,)),
        (graph.peak, (rows,)),
        (graph.border_crossings, (N_DIRECTIONS,)),
        (graph.a, (edges,)),
        (graph.sums, (rows, len(SUMS))),
        (graph.crossings, (rows, N_DIRECTIONS)),
        (graph.bounds, (rows, 6)),
        (graph.closed_voxels, (rows,)),
        (graph.b, (edges,)),
        (graph.saddle, (edges,)),
        (graph.saddle_at, (edges,)),
        (graph.contacts, (edges, N_DIRECTIONS)),
        (sample, (len(labels),)),
    ]
    if not rows or any(table.shape != shape for table, shape in shapes):
        raise InputError(
            "The stored basins have tables of the wrong shape. Segment the pores again."
        )
    reals = graph.peak_squared_distance, graph.saddle
    whole = [table for table, _ in shapes if all(table is not each for each in reals)]
    if any(table.dtype.kind != "i" for table in whole) or any(
        table.dtype.kind != "f" for table in reals
    ):
        raise InputError(
            "The stored basins have tables of the wrong type. Segment the pores again."
        )
    numbered = [(each, graph.count) for each in (basins, graph.a, graph.b)]
    voxels = [(each, basins.size - 1) for each in (graph.peak[1:], graph.saddle_at)]
    for numbers, last in [*numbered, *voxels]:
        if numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers > last)).any():
            raise InputError(
                "The stored basins refer to basins or voxels that do not exist. Segment the pores "
                "again."
            )


def _check_numbers(graph: BasinGraph, basins: Array, sample: Array) -> None:
    """Raise InputError if tables hold impossible values, so that merging would be wrong."""
    flat, numbers = basins.reshape(-1), np.arange(1, graph.count + 1)
    size, crossed = np.array(basins.shape), graph.saddle[graph.saddle >= 0]
    first, last = graph.bounds[1:, :3], graph.bounds[1:, 3:]
    lower = np.minimum(graph.peak_squared_distance[graph.a], graph.peak_squared_distance[graph.b])
    counted = np.zeros(graph.count + 1, np.int64)
    for plane in basins:  # plane by plane, since NumPy makes a wider copy
        counted += np.bincount(plane.reshape(-1), minlength=graph.count + 1)
    faces = graph.contacts[:, :3].any(axis=1)
    at_saddle = flat[graph.saddle_at]
    holds = [
        (flat[graph.peak[1:]] == numbers).all(),
        (counted == graph.voxels)[1:].all(),
        np.isfinite(graph.peak_squared_distance).all(),
        (graph.peak_squared_distance[1:] > 0).all(),
        np.isfinite(crossed).all(),
        # -1 without a passage, and then no shared face
        ((graph.saddle > 0) | ((graph.saddle == -1) & ~faces)).all(),
        # a saddle is not above the lower peak
        (graph.saddle <= lower).all(),
        ((at_saddle == graph.a) | (at_saddle == graph.b) | (graph.saddle < 0)).all(),
        ((graph.a < graph.b) & (graph.a > 0)).all(),
        ((first >= 0) & (first < last) & (last <= size)).all(),
        ((graph.closed_voxels[1:] >= 0) & (graph.closed_voxels <= counted)[1:]).all(),
        ((sample >= 0) & (sample <= basins.size // len(sample))).all(),
        all((each >= 0).all() for each in (graph.crossings, graph.contacts)),
        (graph.border_crossings >= 0).all(),
        np.isfinite(graph.rounding).all() and graph.rounding.step > 0,
    ]
    if not all(holds):
        raise InputError("The stored basins contain impossible values. Segment the pores again.")


def _check_labels(labels: Int32s, basins: Array, label_of: Int32s) -> None:
    """Raise InputError unless pores consist of whole basins."""
    for pores, parts in zip(labels.reshape(basins.shape), basins, strict=True):
        if not np.array_equal(label_of[parts], pores):
            raise InputError(
                "The stored basins do not belong to these labels. Segment the pores again."
            )


def _check_figures(found: pd.DataFrame, stored: pd.DataFrame, name: str) -> None:
    """Raise InputError if a stored table does not match the restored pores."""
    shared = [column for column in stored if column in found]
    same = len(found) == len(stored) and all(
        np.allclose(found[column], stored[column], _CLOSE, 0, equal_nan=True)
        for column in shared
        if stored[column].dtype.kind in "iuf" and found[column].dtype.kind in "iufb"
    )
    if not same:
        raise InputError(
            f"The stored basins do not match the table of {name}: one of the files was changed, or "
            "belongs to another result or another version of hushpore. Segment the pores again."
        )
