"""Settings of the pore segmentation."""

from __future__ import annotations

from dataclasses import dataclass

from hushpore.base.settings import Settings, option


@dataclass(frozen=True)
class PoreSettings(Settings):
    """How to segment pores."""

    threshold: str | float = option(
        "otsu",
        "Grey value between pore and solid: a method that finds it, or a number.",
        choices=("otsu", "li", "triangle", "yen", "isodata", "minimum"),
    )
    phases: int = option(
        2,
        "How many grey phases there are, for the method otsu; pores are the darkest (brightest).",
        minimum=2,
        maximum=5,
        more=True,
    )
    hysteresis: float | None = option(
        None,
        "A stricter grey value: void is kept only where a connected part passes this one too; "
        "None: all of it.",
        more=True,
    )
    pores_are: str = option(
        "dark",
        "Whether pores are darker or brighter than the solid.",
        label="Pores are",
        choices=("dark", "bright"),
    )
    mode: str = option(
        "all",
        "all: the whole void; open: what is connected to a face of the volume; "
        "closed: what is not.",
        choices=("all", "open", "closed"),
    )
    h: float = option(
        0.5,
        "Neighbouring pores merge where the neck between them is less than this much "
        "narrower, in radius, than the smaller of the two; 0 merges least.",
        label="Merge height",
        unit="voxels",
        minimum=0,
        step=0.1,
    )
    minimum_voxels: int = option(
        1,
        "Pores of fewer voxels are left out.",
        label="Smallest pore",
        unit="voxels",
        minimum=1,
        more=True,
    )
    border_is_solid: bool = option(
        False,
        "Whether the volume is taken to be enclosed in solid, when distances are measured.",
        more=True,
    )
