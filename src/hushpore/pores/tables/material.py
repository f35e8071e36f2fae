"""Totals that follow from other totals and from the columns of pores: indices of the structure.

References
----------
A. M. Parfitt, C. H. E. Mathews, A. R. Villanueva, M. Kleerekoper, B. Frame and D. S. Rao (1983),
"Relationships between surface, volume, and thickness of iliac trabecular bone in aging and in
osteoporosis", Journal of Clinical Investigation 72, 1396-1409. https://doi.org/10.1172/JCI111096

S. G. Advani and C. L. Tucker (1987), "The use of tensors to describe and predict fiber orientation
in short fiber composites", Journal of Rheology 31, 751-784. https://doi.org/10.1122/1.549945
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.arrays import Array, Float64s
    from hushpore.base.volume import Volume


def material_totals(
    totals: Mapping[str, Any], pores: Mapping[str, Array], volume: Volume
) -> dict[str, Any]:
    """Return the totals that follow from those of a record and from the columns of pores.

    Parameters
    ----------
    totals : mapping
        The record: shares of open and closed void, specific surface, local thickness if measured.
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores.
    volume : Volume
        2D or 3D, for voxel size and axes.

    Returns
    -------
    dict
        By the names of `hushpore.pores.tables.totals.TOTALS`; None if not defined or not measured.
    """
    void = totals["open_porosity"] + totals["closed_porosity"]
    per_sample = totals["specific_surface"]
    surfaces = {"void": per_sample / void if void else None}
    surfaces["solid"] = per_sample / (1 - void) if void < 1 else None
    thickness = {phase: totals.get(f"{phase}_thickness") for phase in surfaces}
    sample = totals["sample_voxels"] * volume.voxel_size
    known: dict[str, Any] = {
        "pore_density": len(pores["label"]) / sample if volume.n_spatial == 3 else None,
        "solid_specific_surface": surfaces["solid"],
        "plate_number": per_sample / 2,
        "wall_number": None,
    }
    if thickness["void"] is not None and thickness["solid"] is not None:
        known["wall_number"] = 1 / (thickness["void"] + thickness["solid"])
    for phase, surface in surfaces.items():
        own = thickness[phase]
        index = own * surface if own is not None and surface is not None else None
        known[f"{phase}_shape_index"] = index if volume.n_spatial == 3 else None
    return known | orientation_totals(pores, volume.n_spatial)


def orientation_totals(pores: Mapping[str, Array], n_spatial: int) -> dict[str, float | None]:
    """Return eigenvalues and eigenvectors of the orientation tensor of the major axes of pores.

    The tensor is the mean of ``n n'`` over the unit vectors n of the pores that have a shape, each
    counted once. Its eigenvalues add up to 1: three of 1/3 if no direction is preferred, 1, 0, 0 if
    all axes are parallel.

    Parameters
    ----------
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores, with ``axis_direction_z``, ``_y`` and ``_x``.
    n_spatial : int
        3, or 2 for an image.

    Returns
    -------
    dict
        ``orientation_1`` to ``orientation_3`` (largest first) and the components
        ``orientation_1_z`` to ``orientation_3_x``, without the ones along z in 2D; None if no pore
        has a shape.
    """
    axes = "zyx"[-n_spatial:]
    names = [f"orientation_{number}" for number in range(1, n_spatial + 1)]
    units = major_axes(pores, n_spatial)
    units = units[~np.isnan(units).any(axis=1)]
    if not len(units):
        return dict.fromkeys([*names, *(f"{name}_{axis}" for name in names for axis in axes)])
    # a product of matrices would be rounded by how many threads BLAS has
    tensor = np.array([[(a * b).mean() for b in units.T] for a in units.T])
    values, vectors = np.linalg.eigh(tensor)
    found: dict[str, float | None] = {}
    for name, place in zip(names, reversed(range(n_spatial)), strict=True):
        vector = vectors[:, place]
        # of the two senses the one whose last component that is not 0 is above it
        vector = vector * np.sign(vector[np.flatnonzero(np.abs(vector) > 1e-9)[-1]])
        found[name] = float(max(values[place], 0.0))
        found |= {f"{name}_{axis}": float(each) for axis, each in zip(axes, vector, strict=True)}
    return found


def major_axes(pores: Mapping[str, Array] | pd.DataFrame, n_spatial: int) -> Float64s:
    """Return the unit vectors of the major axes of pores, (pores, axes); NaN without a shape."""
    names = [f"axis_direction_{axis}" for axis in "zyx"[-n_spatial:]]
    return np.stack([np.asarray(pores[name], np.float64) for name in names], axis=-1)
