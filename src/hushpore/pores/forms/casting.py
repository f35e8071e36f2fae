"""Castings: porosity, pores by size, distances, in the sense of BDG P 203 and VDG P 201."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.forms.entries import Entry, Findings, Form, NotMeasuredError, not_measured

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Limits of the classes of equivalent diameter, in mm.
LIMITS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def _largest(column: str, findings: Findings) -> float:
    """Return a column of the pore of the largest volume."""
    volume = np.asarray(findings.pores["volume"])
    if not volume.size:
        raise NotMeasuredError("There are no pores.")
    value = float(findings.pores[column][int(volume.argmax())])
    if np.isnan(value):
        raise NotMeasuredError("The largest pore has too few voxels for its shape.")
    return value


def extent(pores: Mapping[str, Any], spacing: tuple[float, ...]) -> np.ndarray[Any, Any]:
    """Return the diagonals of the bounding boxes of pores."""
    axes = "zyx"[-len(spacing) :]
    sides = [
        (np.asarray(pores[f"bbox_{axis}_stop"]) - pores[f"bbox_{axis}_start"]) * step
        for axis, step in zip(axes, spacing, strict=True)
    ]
    diagonal: np.ndarray[Any, Any] = np.sqrt(sum(side.astype(np.float64) ** 2 for side in sides))
    return diagonal


def _extent_of_largest(findings: Findings) -> float:
    volume = np.asarray(findings.pores["volume"])
    if not volume.size:
        raise NotMeasuredError("There are no pores.")
    return float(extent(findings.pores, findings.volume.spacing)[int(volume.argmax())])


def _depth(largest: bool, findings: Findings) -> float:
    """Return the depth of the largest pore below the surface, or the smallest of all."""
    depths = findings.depths()
    volume = np.asarray(findings.pores["volume"])
    return float(depths[int(volume.argmax())] if largest else depths.min())


def _count_from(limit: float, findings: Findings) -> float:
    """Return how many pores are at least so many millimetres in diameter."""
    factor = {"mm": 1.0, "um": 1e-3, "cm": 10.0, "nm": 1e-6, "m": 1e3}.get(findings.volume.unit)
    if factor is None:
        raise NotMeasuredError("The voxel size is not known. Set it (Voxel size, --voxel-size).")
    diameter = np.asarray(findings.pores["equivalent_diameter"]) * factor
    return float(np.count_nonzero(diameter >= limit))


_SURFACE = (
    "Without air around it, the faces of the volume are taken for the surface, and the distance is "
    "that of the bounding box; in air it is the depth of the centre less half the equivalent "
    "diameter, within 1/128 of the volume."
)

CASTING = Form(
    "Casting (in the sense of BDG P 203)",
    "BDG P 203, Porositätsanalyse und -beurteilung mittels industrieller "
    "Röntgen-Computertomographie, 2019",
    (
        Entry("V", "Volume examined", lambda f: f.sample, "Volume of the sample.", 3),
        Entry(
            "P", "Porosity", lambda f: f.with_interval("porosity"),
            "Pores of the table over volume examined. The guideline evaluates a reference volume "
            "at the place that is stressed: crop the scan to that, or give it as a sample mask.",
            is_share=True,
        ),
        Entry(
            "N", "Number of pores", lambda f: f.with_interval("count"),
            "Pores of the table, those cut by faces included.",
        ),
        Entry(
            "N_V", "Pores per volume", lambda f: f.total("pore_density", "Defined in 3D."),
            "N over V.", -3, "cm",
        ),
        Entry(
            "d_max", "Diameter of the largest pore", partial(_largest, "equivalent_diameter"),
            "Diameter of the ball of the same volume.", 1,
        ),
        Entry(
            "V_max", "Volume of the largest pore", partial(_largest, "volume"),
            "Its voxels.", 3,
        ),
        Entry(
            "L_max", "Extent of the largest pore", _extent_of_largest,
            "Diagonal of its bounding box: no less than its longest dimension.", 1,
        ),
        Entry(
            "Psi_max", "Sphericity of the largest pore", partial(_largest, "sphericity"),
            "Surface of the ball of the same volume over its surface: gas pores near 1, shrinkage "
            "well below.",
        ),
        Entry(
            "a_max", "Largest pore to surface", partial(_depth, True),
            f"From the edge of the largest pore. {_SURFACE}", 1,
        ),
        Entry(
            "a_min", "Smallest distance to surface", partial(_depth, False),
            "The same, of the pore that is nearest to the surface; 0 if one is cut.", 1,
        ),
        Entry(
            "A_min", "Smallest distance of neighbours",
            lambda f: float(f.column("nearest_distance").min()),
            "Between the centres of the two pores that are nearest to each other; the guideline's "
            "is from edge to edge.", 1,
        ),
        *(
            Entry(
                f"N(d>={limit:g})", f"Pores of {limit:g} mm and more", partial(_count_from, limit),
                "Pores by equivalent diameter.",
            )
            for limit in LIMITS
        ),
        Entry(
            "Key", "Porosity key, class of P 201",
            not_measured(
                "The permitted values are in the drawing, and classes of VDG P 201 are of "
                "polished sections. Compare P, d_max, N and a_min with those of the drawing."
            ),
            "",
        ),
    ),
    has_profiles=True,
)  # fmt: skip
