"""A finished segmentation, on its way back from the files that it was written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.contacts import N_DIRECTIONS
from hushpore.pores.graph import BasinGraph
from hushpore.pores.measures import pore_columns, throat_columns
from hushpore.pores.result import Pores, numbering_of
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.sums import SUMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from hushpore.base.volume import Volume


def restored(
    labels: Volume, arrays: Mapping[str, npt.NDArray[Any]], provenance: dict[str, Any]
) -> Pores:
    """Return a segmentation that was stored, so that it can be merged anew.

    `labels`: as they were stored, in memory; its place and voxel size are those of the result.
    `arrays`: as `Pores.merging_arrays` has them. `provenance`: the record of the job.
    Raises InputError if they do not belong together.
    """
    try:
        graph = BasinGraph.of_arrays(arrays)
        basins, sample = arrays["basins"], arrays["sample"]
        totals, name = provenance["result"], provenance["input"]["name"]
        notes = tuple(provenance.get("notes", ()))
    except KeyError as error:
        raise InputError(f"What these pores were merged from is not complete: {error}.") from None
    values = np.ascontiguousarray(labels.array(), np.int32)
    if basins.size != values.size or ((basins > 0) < (values > 0).reshape(basins.shape)).any():
        raise InputError("What these pores were merged from is not of these labels.")
    _check(graph, basins, sample, len(values))
    stack = Stack(basins.shape, np.int32, None)
    stack.array()[...] = basins
    volume = labels.replace(values, name=name)
    numbering = numbering_of(values, graph)
    made_with = PoreSettings.recorded(provenance.get("settings", {}))
    settings = PoreSettings.of_what_fits(made_with)
    return Pores(
        labels=values,
        porosity=totals["porosity"],
        threshold=totals.get("threshold"),
        volume=volume,
        timings=dict(provenance.get("timings", {})),
        provenance=provenance,
        notes=notes,
        _pore_columns=pore_columns(graph, numbering, volume, settings.minimum_shape_voxels),
        _throat_columns=throat_columns(graph, numbering, volume),
        _sample=sample,
        _basins=stack,
        _slabs=Slabs(len(basins), len(basins), False),
        _graph=graph,
        _settings=settings,
    )


def _check(
    graph: BasinGraph, basins: npt.NDArray[Any], sample: npt.NDArray[Any], n_slices: int
) -> None:
    """Raise InputError where one part is not of the others.

    Compiled loops look basins up in tables, and voxels in stacks, and do not ask whether they are
    in them.
    """
    rows, edges = graph.count + 1, len(graph.a)
    shapes: list[tuple[npt.NDArray[Any], tuple[int, ...]]] = [
        (graph.peak, (rows,)),
        (graph.sums, (rows, len(SUMS))),
        (graph.crossings, (rows, N_DIRECTIONS)),
        (graph.bounds, (rows, 6)),
        (graph.closed_voxels, (rows,)),
        (graph.b, (edges,)),
        (graph.saddle, (edges,)),
        (graph.saddle_at, (edges,)),
        (graph.contacts, (edges, N_DIRECTIONS)),
        (sample, (n_slices,)),
    ]
    if any(table.shape != shape for table, shape in shapes):
        raise InputError("What these pores were merged from has tables of other shapes.")
    numbered = [(each, graph.count) for each in (basins, graph.a, graph.b)]
    for numbers, last in [*numbered, (graph.peak[1:], basins.size - 1)]:
        if numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers > last)).any():
            raise InputError(
                "What these pores were merged from names basins or voxels that are not there."
            )
