"""Conversion of measured tables and totals to another voxel size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.tables.measures import FURTHER
from hushpore.pores.tables.totals import TOTALS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from hushpore.base.arrays import Float64s
    from hushpore.pores.tables.measures import Measure


def is_proportional(spacing: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two voxel sizes have the same aspect ratio, so that pores split alike."""
    ratio = np.asarray(other) / np.asarray(spacing)
    return bool(np.allclose(ratio, ratio[0], rtol=1e-9))


def resized_table(
    table: pd.DataFrame, measures: Sequence[Measure[Any]], origin: Sequence[float], ratio: Float64s
) -> pd.DataFrame:
    """Return a table of pores or throats for another voxel size of the same aspect ratio.

    `measures`: measures of its columns. `origin`: position of the first voxel, which becomes 0.
    `ratio`: new size divided by old size along each axis; the same for all.
    """
    resized, n_spatial = table.copy(), len(ratio)
    start = dict(zip("zyx"[-n_spatial:], origin, strict=True))
    for measure in (*measures, *FURTHER.values()):
        power = measure.power(n_spatial)
        if power and measure.name in table:
            stem, _, axis = measure.name.rpartition("_")
            before = start.get(axis, 0.0) if stem in ("centroid", "position") else 0.0
            resized[measure.name] = (table[measure.name] - before) * float(ratio[0]) ** power
    return resized


def resized_distribution(table: pd.DataFrame, ratio: float, n_spatial: int) -> pd.DataFrame:
    """Return the distribution of local thickness for another voxel size."""
    resized = table.copy()
    resized[["thickness_from", "thickness_to"]] *= ratio
    resized["volume"] *= ratio**n_spatial
    return resized


def resized_curve(
    curve: Mapping[str, Float64s], ratio: float, n_spatial: int
) -> dict[str, Float64s]:
    """Return the REV curve for another voxel size."""
    powers = {"edge": 1, **dict.fromkeys(("density", "density_low", "density_high"), -n_spatial)}
    return {name: each * ratio ** powers.get(name, 0) for name, each in curve.items()}


def resized_totals(totals: Mapping[str, Any], ratio: float, unit: str) -> dict[str, Any]:
    """Return the totals of a record for another voxel size and unit."""
    resized = {**totals, "unit": unit}
    for total in TOTALS:
        if total.unit_power and resized.get(total.name) is not None:
            resized[total.name] = resized[total.name] * ratio**total.unit_power
    return resized
