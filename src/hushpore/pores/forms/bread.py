"""Bread and other baked foams: cells, walls, and how much is one connected void."""

from __future__ import annotations

import numpy as np

from hushpore.pores.forms.entries import Entry, Findings, Form, NotMeasuredError, not_measured
from hushpore.pores.forms.foam import variation, weighted_diameter


def _elongated(findings: Findings) -> float:
    return float(np.median(1 / findings.column("elongation_ratio")))


def _large_cells(findings: Findings) -> float:
    """Return the share of the volume of cells that the largest tenth holds."""
    volume = np.sort(findings.column("volume"))
    return float(volume[-max(1, round(volume.size / 10)) :].sum() / volume.sum())


def _percolating(findings: Findings) -> float:
    return findings.total(
        "percolating_fraction_z",
        "Defined from face to face of a volume that is all sample, in 3D. Crop the scan.",
    )


def _closed_cells(findings: Findings) -> float:
    is_open = np.asarray(findings.pores["is_open"], bool)
    if not is_open.size:
        raise NotMeasuredError("There are no cells.")
    return float(1 - is_open.mean())


BREAD = Form(
    "Bread crumb",
    "https://doi.org/10.1016/j.jcs.2011.05.004",
    (
        Entry(
            "eps", "Porosity", lambda f: f.void_share, "All void over sample volume.",
            is_share=True,
        ),
        Entry(
            "N_c", "Cells per volume", lambda f: f.total("pore_density", "Defined in 3D."),
            "Pores of the table over sample volume; cells cut by faces count whole.", -3, "cm",
        ),
        Entry(
            "d_50", "Median cell diameter", lambda f: f.with_interval("median_diameter"),
            "Median over all cells of the diameter of the ball of the same volume.", 1,
        ),
        Entry(
            "d_V", "Mean cell diameter by volume", weighted_diameter,
            "Mean of the same, weighted by volume: cells that the eye sees.", 1,
        ),
        Entry(
            "CV", "Uniformity of cells", variation,
            "Standard deviation over mean of the cell diameter; the lower, the more even.",
            is_share=True,
        ),
        Entry(
            "V_10", "Volume in the largest tenth", _large_cells,
            "Share of the volume of all cells that is in the largest tenth of them.",
            is_share=True,
        ),
        Entry(
            "E", "Elongation of cells", _elongated,
            "Median of major over intermediate axis length.",
        ),
        Entry(
            "t_w", "Cell wall thickness", lambda f: f.thickness("solid_thickness"),
            "Mean local thickness of the solid.", 1,
        ),
        Entry(
            "t_w.SD", "Standard deviation of t_w",
            lambda f: f.thickness("solid_thickness_deviation"),
            "Over all voxels of the solid.", 1,
        ),
        Entry(
            "t_c", "Cell size, local thickness", lambda f: f.thickness("void_thickness"),
            "Mean local thickness of the void; needs no splitting into cells.", 1,
        ),
        Entry(
            "f_con", "Connected void", _percolating,
            "Share of the void that is connected from the first slice to the last.", is_share=True,
        ),
        Entry(
            "f_cl", "Closed cells", _closed_cells,
            "Share of the cells, by number, without a connection to a face or to the air.",
            is_share=True,
        ),
        Entry(
            "DA", "Degree of anisotropy", lambda f: f.total("anisotropy", "No walls are crossed."),
            "1 less shortest over longest mean intercept length; 0 if isotropic.",
        ),
        Entry(
            "rho", "Crumb density, specific volume",
            not_measured("Needs the mass of the sample, or the density of its walls."),
            "", unit="g/cm^3",
        ),
    ),
    has_profiles=True,
)  # fmt: skip
