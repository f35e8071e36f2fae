"""Restoring of a segmentation from its result folder, to merge it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.numbering import numbering_of
from hushpore.pores.result import Pores
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.watershed.graph import BasinGraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.arrays import Array, Int32s
    from hushpore.base.volume import Volume


#: Relative tolerance for figures read from a table, which has 16 digits.
_CLOSE = 1e-9

_OTHERS = "The stored basins do not belong to these labels. Segment the pores again."


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
    except KeyError as error:
        raise InputError(
            f"The stored basins of these pores are incomplete: {error}. Segment the pores again."
        ) from None
    values = np.ascontiguousarray(labels.array(), np.int32)
    if basins.size != values.size or len(sample) != len(values):
        raise InputError(_OTHERS)
    numbering = numbering_of(values, graph)
    _check_labels(values, basins, numbering.labels_of)
    found = Pores.of(
        graph,
        numbering,
        PoreSettings.of_valid(provenance.get("settings", {})),
        labels.replace(values, name=name),
        totals,
        provenance=provenance,
        labels=values,
        sample=sample,
        _basins=Stack.of(basins),
        _slabs=Slabs(len(basins), len(basins), False),
    )
    for name, table in (tables or {}).items():
        _check_figures(getattr(found, name), table, name)
    return found


def _check_labels(labels: Int32s, basins: Array, label_of: Int32s) -> None:
    """Raise InputError unless pores consist of whole basins."""
    for pores, parts in zip(labels.reshape(basins.shape), basins, strict=True):
        if not np.array_equal(label_of[parts], pores):
            raise InputError(_OTHERS)


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
