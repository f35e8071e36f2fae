"""Foams: cell size from chords as in ASTM D3576, open-cell content, walls and shapes of cells."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.forms.entries import Entry, Findings, Form, NotMeasuredError, not_measured

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A ball's diameter over the mean chord of its mean section, (pi / 4)**-2, as ASTM D3576 has it.
CHORD_TO_DIAMETER = 16 / np.pi**2

_ISO = "ISO 4590:2016, Rigid cellular plastics: open and closed cells"


def chord(axis: str, findings: Findings) -> float:
    """Return the mean distance from one cell wall to the next along an axis."""
    findings.require_all_void()
    if axis == "z":
        findings.require_3d()
    reason = "No wall is crossed along this axis."
    return sum(
        findings.total(f"{phase}_chord_length_{axis}", reason) for phase in ("void", "solid")
    )


def cell_size(axis: str, findings: Findings) -> float:
    """Return the cell size along an axis, as ASTM D3576 makes it of the mean chord."""
    return CHORD_TO_DIAMETER * chord(axis, findings)


def _sizes(findings: Findings) -> Sequence[float]:
    return [cell_size(axis, findings) for axis in "zyx"[-findings.volume.n_spatial :]]


def _open_share(findings: Findings) -> float:
    void = findings.totals["open_porosity"] + findings.totals["closed_porosity"]
    if not void:
        raise NotMeasuredError("There are no cells.")
    return float(findings.totals["open_porosity"] / void)


def mean_diameter(findings: Findings) -> float:
    """Return the mean equivalent diameter, by number."""
    return float(findings.column("equivalent_diameter").mean())


def weighted_diameter(findings: Findings) -> float:
    """Return the mean equivalent diameter, weighted by volume."""
    diameter, volume = findings.column("equivalent_diameter"), findings.column("volume")
    return float((diameter * volume).sum() / volume.sum())


def variation(findings: Findings) -> float:
    """Return the coefficient of variation of the equivalent diameter."""
    diameter = findings.column("equivalent_diameter")
    return float(diameter.std() / diameter.mean())


FOAM = Form(
    "Foam (ASTM D3576, ISO 4590)",
    "https://www.astm.org/d3576-20.html",
    (
        Entry(
            "rho/rho_s", "Relative density", lambda f: f.solid_share,
            "Solid over sample volume.", is_share=True,
            reference="https://doi.org/10.1017/CBO9781139878326",
        ),
        Entry(
            "phi", "Porosity", lambda f: f.void_share, "All void over sample volume.",
            is_share=True,
        ),
        *(
            Entry(
                f"t_{axis}", f"Mean chord along {axis}", partial(chord, axis),
                "Length of line over number of cell walls crossed: mean chord of the pores plus "
                "that of the solid, over all lines of voxels along the axis. The standard counts "
                "walls along a few lines by eye.", 1,
            )
            for axis in "zyx"
        ),
        *(
            Entry(
                f"d_{axis}", f"Cell size along {axis}", partial(cell_size, axis),
                "1.62 times the mean chord, as in the standard; for equal balls the exact factor "
                "of lines through the volume would be 1.5.", 1,
            )
            for axis in "zyx"
        ),
        Entry(
            "d", "Mean cell size", lambda f: float(np.mean(_sizes(f))),
            "Mean of the cell sizes along the axes.", 1,
        ),
        Entry(
            "R", "Shape anisotropy ratio", lambda f: max(_sizes(f)) / min(_sizes(f)),
            "Largest over smallest cell size along the axes.",
            reference="https://doi.org/10.1017/CBO9781139878326",
        ),
        Entry(
            "O_v", "Open-cell content", lambda f: float(f.totals["open_porosity"]),
            "Void that is connected to a face of the volume, or to the air around the sample, over "
            "the volume of the sample. A pycnometer fills cells through openings far below the "
            "voxel size, and cells cut by a face count as open in both.", is_share=True,
            reference=_ISO,
        ),
        Entry(
            "O_c", "Open share of the cells", _open_share, "Open void over all void.",
            is_share=True, reference=_ISO,
        ),
        Entry(
            "psi", "Closed-cell content", lambda f: float(f.totals["closed_porosity"]),
            "Void without such a connection, over the volume of the sample.", is_share=True,
            reference=_ISO,
        ),
        Entry(
            "N_v", "Cells per volume", lambda f: f.total("pore_density", "Defined in 3D."),
            "Pores of the table over sample volume; cells cut by faces count whole.", -3, "cm",
        ),
        Entry(
            "D", "Mean equivalent diameter", mean_diameter,
            "Diameter of the ball of the volume of a cell, mean by number.", 1,
        ),
        Entry(
            "D_V", "Mean equivalent diameter by volume", weighted_diameter,
            "The same, weighted by volume.", 1,
        ),
        Entry(
            "CV", "Variation of cell size", variation,
            "Standard deviation over mean of the equivalent diameter.", is_share=True,
        ),
        Entry(
            "f", "Neighbours of a cell", lambda f: float(f.column("coordination_number").mean()),
            "Mean number of pores that a pore touches: windows of an open foam.",
        ),
        Entry(
            "t_w", "Wall and strut thickness", lambda f: f.thickness("solid_thickness"),
            "Mean local thickness of the solid.", 1,
        ),
        Entry(
            "ppi", "Pores per inch",
            not_measured(
                "A class of the manufacturer, without a definition by lengths. See the mean chord."
            ),
            "", unit="1/inch",
        ),
    ),
    has_profiles=True,
)  # fmt: skip
