"""Distributions of pore sizes and of local thickness, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.pores.geometry.thickness import LocalThickness


def size_distribution(pores: pd.DataFrame, bins: int) -> pd.DataFrame:
    """Return the pore size distribution; see `hushpore.pores.result.Pores.size_distribution`.

    `pores`: table of pores.
    Raises InputError if `bins` is not a whole number of at least 1.
    """
    import pandas as pd

    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError(f"bins must be a whole number of at least 1; got {bins!r}.")
    diameter, size = (pores[name].to_numpy() for name in ("equivalent_diameter", "volume"))
    edges = np.linspace(0, diameter.max(initial=0) or 1, bins + 1)
    number = np.histogram(diameter, edges)[0]
    volume = np.histogram(diameter, edges, weights=size)[0]
    return pd.DataFrame(
        {
            "diameter_from": edges[:-1],
            "diameter_to": edges[1:],
            "number": number,
            "volume": volume,
            "number_share": number / max(number.sum(), 1),
            "volume_share": volume / (volume.sum() or 1),
        }
    )


def thickness_distribution(
    thickness: Mapping[str, LocalThickness], voxel_size: float
) -> pd.DataFrame:
    """Return the distribution of local thickness, in the columns of the result.

    `thickness`: by phase. `voxel_size`: volume of a voxel.
    """
    import pandas as pd

    columns = ["phase", "thickness_from", "thickness_to", "volume", "volume_share"]
    rows = [
        (phase, low, high, count * voxel_size, count / found.counts.sum())
        for phase, found in thickness.items()
        for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
    ]
    return pd.DataFrame(rows, columns=columns)
