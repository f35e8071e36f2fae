"""Pores by classes of size, and their percentiles with a log-normal fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.distributions import PERCENTILES, LognormalFit, lognormal_fit, percentiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Array, Float64s


def class_limits(lowest: float, highest: float) -> Float64s:
    """Return limits of 1, 2 and 5 times powers of ten that hold a range of lengths.

    Parameters
    ----------
    lowest, highest : float
        Above 0.

    Returns
    -------
    numpy.ndarray
        Rising; the first is at most `lowest`, the last above `highest`.

    Examples
    --------
    >>> class_limits(0.3, 4).tolist()
    [0.2, 0.5, 1.0, 2.0, 5.0]
    """
    decades = range(math.floor(math.log10(lowest)) - 1, math.floor(math.log10(highest)) + 2)
    # as they are written in decimals
    limits = np.array([float(f"{each}e{decade}") for decade in decades for each in (1, 2, 5)])
    first = int(np.searchsorted(limits, lowest, side="right")) - 1
    last = int(np.searchsorted(limits, highest, side="right"))
    return limits[first : last + 1]


def size_classes(pores: Mapping[str, Array], sample_volume: float) -> dict[str, Array]:
    """Return pores by classes of equivalent diameter, as the columns of ``size_classes.csv``.

    Parameters
    ----------
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores.
    sample_volume : float
        Volume of the sample.

    Returns
    -------
    dict of str to numpy.ndarray
        ``diameter_from``, ``diameter_to`` (limits of 1, 2 and 5 times powers of ten), ``number`` of
        pores, their ``volume``, both as shares of all pores (``number_share``, ``volume_share``),
        and ``porosity``, their volume over that of the sample.
    """
    diameter = np.asarray(pores["equivalent_diameter"], np.float64)
    volume = np.asarray(pores["volume"], np.float64)
    if diameter.size:
        limits = class_limits(float(diameter.min()), float(diameter.max()))
    else:
        limits = np.zeros(1)
    place = np.searchsorted(limits, diameter, side="right") - 1
    number = np.bincount(place, minlength=limits.size - 1)
    of_class = np.bincount(place, volume, minlength=limits.size - 1)
    return {
        "diameter_from": limits[:-1],
        "diameter_to": limits[1:],
        "number": number,
        "volume": of_class,
        "number_share": number / max(diameter.size, 1),
        "volume_share": of_class / (volume.sum() or 1.0),
        "porosity": of_class / sample_volume,
    }


def size_statistics(
    pores: Mapping[str, Array], column: str = "equivalent_diameter"
) -> dict[str, list[Any]]:
    """Return percentiles of size and a log-normal fit, as the columns of ``size_statistics.csv``.

    See `hushpore.base.distributions` for both.

    Parameters
    ----------
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores.
    column : str, optional
        The size; pores without it are left out.

    Returns
    -------
    dict of str to list
        ``weighting`` (``"number"``, ``"volume"``), ``d10``, ``d50``, ``d90`` of the size,
        ``lognormal_median``, ``lognormal_geometric_deviation`` and ``lognormal_distance``; NaN if
        there are no pores.
    """
    size = np.asarray(pores[column], np.float64)
    is_known = np.isfinite(size)
    size, volume = size[is_known], np.asarray(pores["volume"], np.float64)[is_known]
    weights = {"number": np.ones(size.size), "volume": volume}
    none = LognormalFit(math.nan, math.nan, math.nan)
    rows = [
        [name, *percentiles(size, each), *(lognormal_fit(size, each) or none)]
        for name, each in weights.items()
    ]
    names = [
        "weighting", *(f"d{each}" for each in PERCENTILES), "lognormal_median",
        "lognormal_geometric_deviation", "lognormal_distance",
    ]  # fmt: skip
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
