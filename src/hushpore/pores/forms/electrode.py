"""Battery electrodes and separators: transport through the pores, surface and particle size."""

from __future__ import annotations

import math
from functools import partial

from hushpore.pores.flow import formation_factor
from hushpore.pores.forms.entries import (
    Entry,
    Findings,
    Form,
    NotMeasuredError,
    not_measured,
    percolating_entries,
    value_of,
)
from hushpore.pores.forms.rock import SEGMENTATION, along, breakthrough, drained_diameter

_MACMULLIN = "https://doi.org/10.1149/2.1141607jes"
_FACTOR = "https://doi.org/10.1016/j.coche.2016.02.006"


def _tortuosity_factor(axis: int, findings: Findings) -> float:
    found = value_of(along(axis, formation_factor, findings))
    return found * value_of(findings.void_share)


def _bruggeman(axis: int, findings: Findings) -> float:
    porosity = value_of(findings.void_share)
    if not 0 < porosity < 1:
        raise NotMeasuredError("Not defined without pores, or without solid.")
    factor = _tortuosity_factor(axis, findings)
    return -math.log(factor) / math.log(porosity)


def _geodesic(axis: str, findings: Findings) -> float:
    reason = "Geodesic tortuosity was not measured. Switch on Geodesic tortuosity (--tortuosity)."
    return findings.total(f"tortuosity_{axis}", reason)


ELECTRODE = Form(
    "Battery electrode or separator",
    _FACTOR,
    (
        Entry(
            "eps", "Porosity", lambda f: f.void_share,
            "All void over sample volume; pores below the voxel size, as in binder, are not in it.",
            is_share=True,
        ),
        Entry(
            "eps_s", "Solid volume fraction", lambda f: 1 - value_of(f.void_share),
            "1 less the porosity: active material, binder and carbon together. To separate them, "
            "use hushpore phases.", is_share=True,
        ),
        *percolating_entries(),
        *(
            Entry(
                f"N_M,{axis}", f"MacMullin number along {axis}",
                partial(along, place, formation_factor),
                "Resistance of the filled pores over that of the electrolyte alone, on the network "
                f"of pores and throats. {SEGMENTATION}", reference=_MACMULLIN,
            )
            for place, axis in enumerate("zyx")
        ),
        *(
            Entry(
                f"tau_{axis}", f"Tortuosity factor along {axis}",
                partial(_tortuosity_factor, place),
                "N_M times porosity. It is no ratio of lengths, and near the square of one.",
            )
            for place, axis in enumerate("zyx")
        ),
        *(
            Entry(
                f"alpha_{axis}", f"Bruggeman exponent along {axis}", partial(_bruggeman, place),
                "The exponent in tau = porosity^-alpha; 0.5 for equal balls.",
            )
            for place, axis in enumerate("zyx")
        ),
        *(
            Entry(
                f"tau_g,{axis}", f"Geodesic tortuosity along {axis}", partial(_geodesic, axis),
                "Shortest ways through the pores over the straight one.",
            )
            for axis in "zyx"
        ),
        Entry(
            "a", "Volume-specific surface", lambda f: f.total("specific_surface"),
            "Surface between void and solid over sample volume.", -1, "um",
        ),
        Entry(
            "a_s", "Surface over solid volume",
            lambda f: f.total("solid_specific_surface", "There is no solid."),
            "The same over the volume of the solid.", -1, "um",
        ),
        Entry(
            "d_p", "Pore size", lambda f: f.thickness("void_thickness"),
            "Mean local thickness of the pores.", 1, "um",
        ),
        Entry(
            "d_s", "Particle size", lambda f: f.thickness("solid_thickness"),
            "Mean local thickness of the solid.", 1, "um",
        ),
        Entry(
            "d_c,z", "Breakthrough diameter along z", partial(breakthrough, 0),
            f"Largest ball that passes from face to face through throats. {SEGMENTATION}", 1, "um",
        ),
        Entry(
            "d_50", "Throat diameter at half saturation", drained_diameter,
            "At which a non-wetting liquid from all faces has entered half of the void.", 1, "um",
        ),
        Entry(
            "sigma_eff", "Electronic conductivity",
            not_measured("Needs the conductivities of the solid phases and their contacts."), "",
            unit="S/m",
        ),
    ),
    has_drainage=True,
)  # fmt: skip
