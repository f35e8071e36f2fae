"""Rocks and soils: pores, throats, capillary pressure, permeability and formation factor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.formatting import METRES
from hushpore.pores.flow import (
    capillary_pressure,
    formation_factor,
    permeability,
    threshold_diameter,
)
from hushpore.pores.forms.entries import (
    Entry,
    Findings,
    Form,
    Interval,
    NotMeasuredError,
    not_measured,
    percolating_entries,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: Square metres in a darcy.
DARCY = 9.869233e-13

_WASHBURN = "https://doi.org/10.1103/PhysRev.17.273"
_NOT_THROUGH = "No void is connected from face to face along this axis."
_CONES = (
    "On the network of pores and throats, each throat two cones between the inscribed balls of "
    "pores and throat; faces are opened into by tubes as wide as the pores that reach them."
)
#: What the interval of a figure of flow covers.
SEGMENTATION = (
    "With uncertainty intervals, its 90 % interval covers threshold, merge height and voxel size; "
    "the spread between samples comes on top."
)


def throat_radii(findings: Findings) -> np.ndarray:
    """Return the inscribed radii of throats.

    Raises NotMeasuredError if there are none.
    """
    radii: np.ndarray = np.asarray(findings.throats["inscribed_diameter"], np.float64) / 2
    radii = radii[np.isfinite(radii)]
    if not radii.size:
        raise NotMeasuredError("There are no throats.")
    return radii


def pore_throat_ratio(findings: Findings) -> float:
    """Return the mean ratio of the radii of pores and of the throats that join them."""
    throat_radii(findings)
    pore = np.asarray(findings.pores["inscribed_diameter"], np.float64)
    ends = np.stack([findings.throats["pore_1"], findings.throats["pore_2"]], axis=-1)
    ends = np.searchsorted(findings.pores["label"], ends)  # labels of corrected pores have gaps
    ratio = pore[ends].mean(axis=1) / findings.throats["inscribed_diameter"]
    ratio = ratio[np.isfinite(ratio)]
    if not ratio.size:
        raise NotMeasuredError("No pore has enough voxels for its shape.")
    return float(ratio.mean())


def breakthrough(axis: int, findings: Findings) -> float | Interval:
    """Return the diameter of the largest ball that passes along an axis."""
    name, network = f"breakthrough_diameter_{'zyx'[axis]}", findings.network
    diameter = findings.once(name, lambda: network.breakthrough(axis).diameter)
    if not diameter:
        raise NotMeasuredError(_NOT_THROUGH)
    return findings.with_ends(name, diameter)


def along(axis: int, function: Callable[..., float], findings: Findings) -> float | Interval:
    """Return a function of the network and an axis, such as `permeability`, with its interval.

    Raises NotMeasuredError if nothing flows from face to face.
    """
    name = f"{function.__name__}_{'zyx'[axis]}"
    value = findings.once(name, partial(function, findings.network, axis))
    if not value or not np.isfinite(value):
        raise NotMeasuredError(_NOT_THROUGH)
    return findings.with_ends(name, value)


def _metres(findings: Findings) -> float:
    if findings.volume.unit not in METRES:
        raise NotMeasuredError("The voxel size is not known. Set it (Voxel size, --voxel-size).")
    return METRES[findings.volume.unit]


def _in_darcy(axis: int, findings: Findings) -> float | Interval:
    found = along(axis, permeability, findings)
    factor = 1e3 * _metres(findings) ** 2 / DARCY
    if isinstance(found, Interval):
        return found.mapped(lambda value: factor * value)
    return factor * found


def drained_diameter(findings: Findings, saturation: float = 0.5) -> float:
    """Return the throat diameter at which a share of the void is entered from all faces."""
    diameter = threshold_diameter(findings.drainage, saturation)
    if np.isnan(diameter):
        raise NotMeasuredError(f"Less than {saturation:.0%} of the void is reached from the faces.")
    return diameter


def _mercury_pressure(saturation: float, findings: Findings) -> float:
    diameter = drained_diameter(findings, saturation)
    return capillary_pressure(diameter * _metres(findings)) / 1e6


ROCK = Form(
    "Rock (digital core analysis)",
    "https://doi.org/10.1016/j.advwatres.2012.03.003",
    (
        Entry(
            "phi", "Porosity", lambda f: f.void_share,
            "All void over sample volume; pores below the voxel size are not in it.", is_share=True,
        ),
        Entry(
            "phi_g", "Sub-voxel porosity",
            lambda f: f.total(
                "subvoxel_porosity",
                "Not measured. Switch on Sub-voxel porosity (--subvoxel-porosity).",
            ),
            "Mean over the sample of (s - g) / (s - v), with grey values g of voxels, v of void "
            "and s of solid; includes pores below the voxel size.", is_share=True,
        ),
        Entry(
            "phi_c", "Connected porosity", lambda f: float(f.totals["open_porosity"]),
            "Void that is connected to a face of the volume, over sample volume.", is_share=True,
        ),
        *percolating_entries(),
        Entry(
            "S_v", "Specific surface", lambda f: f.total("specific_surface"),
            "Surface between void and solid over sample volume.", -1, "mm",
        ),
        Entry(
            "r_p", "Median pore radius",
            lambda f: float(np.median(f.column("inscribed_diameter"))) / 2,
            "Half the inscribed diameter, median by number.", 1, "um",
        ),
        Entry(
            "r_t", "Median throat radius", lambda f: float(np.median(throat_radii(f))),
            "Half the inscribed diameter, median by number.", 1, "um",
        ),
        Entry(
            "r_p/r_t", "Pore to throat ratio", pore_throat_ratio,
            "Mean radius of the two pores over that of their throat, mean over throats.",
        ),
        Entry(
            "Z", "Coordination number", lambda f: float(f.column("coordination_number").mean()),
            "Mean number of throats of a pore.",
        ),
        *(
            Entry(
                f"d_c,{axis}", f"Breakthrough diameter along {axis}", partial(breakthrough, place),
                f"Largest ball that passes from face to face through throats. {SEGMENTATION}",
                1, "um",
            )
            for place, axis in enumerate("zyx")
        ),
        Entry(
            "d_50", "Throat diameter at half saturation", drained_diameter,
            "At which a non-wetting liquid from all faces has entered half of the void; see "
            "drainage.csv.", 1, "um",
        ),
        Entry(
            "P_50", "Mercury pressure at half saturation", partial(_mercury_pressure, 0.5),
            "Of d_50 by Washburn's equation: 0.485 N/m, 140 degrees.", unit="MPa",
            reference=_WASHBURN,
        ),
        *(
            Entry(
                f"k_{axis}", f"Permeability along {axis}", partial(_in_darcy, place),
                f"Darcy's law. {_CONES} {SEGMENTATION}", unit="mD",
            )
            for place, axis in enumerate("zyx")
        ),
        *(
            Entry(
                f"F_{axis}", f"Formation factor along {axis}",
                partial(along, place, formation_factor),
                f"Resistance over that of the pore liquid alone. {_CONES} {SEGMENTATION}",
            )
            for place, axis in enumerate("zyx")
        ),
        Entry(
            "k_r", "Relative permeability",
            not_measured("Two liquids in pores are not simulated here."), "",
        ),
    ),
    has_drainage=True,
)  # fmt: skip
