"""Settings of the pore segmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.settings import Settings, option

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PoreSettings(Settings):
    """How to segment pores."""

    threshold: str | float = option(
        "otsu",
        "Grey value between pore and solid: a method that finds it, or a number. sauvola and "
        "niblack find one for every voxel, from what is around it, for grounds of uneven grey.",
        choices=("otsu", "li", "triangle", "yen", "isodata", "minimum", "sauvola", "niblack"),
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
    window: int = option(
        51,
        "Side of the window around a voxel that sauvola and niblack look at; wider than the widest "
        "pore.",
        label="Local window",
        unit="voxels",
        minimum=3,
        maximum=255,
        step=2,
        more=True,
    )
    window_in_slice: bool = option(
        False,
        "Whether that window lies in one slice, and is not as deep as it is wide.",
        label="Window in one slice",
        more=True,
    )
    local_k: float = option(
        0.2,
        "How far below the mean of the window the threshold lies, for sauvola and niblack: the "
        "factor of the standard deviation; the greater, the less is pore.",
        label="Local k",
        minimum=-1,
        maximum=1,
        step=0.05,
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
        "all: the whole void; open: what is connected to a face of the volume, or to the air "
        "outside the sample; closed: what is not.",
        choices=("all", "open", "closed"),
    )
    outside: str = option(
        "keep",
        "The air around the sample. keep: it is void like any other; remove: it is no pore, and "
        "porosity is a share of the sample; remove-slicewise: the same slice by slice, for a "
        "sample that runs through from the first slice to the last.",
        label="Air outside",
        choices=("keep", "remove", "remove-slicewise"),
    )
    sample_mask: str = option(
        "",
        "Labels or a mask, above 0 in the sample: void elsewhere is no pore, and porosity is a "
        "share of the sample. Takes the place of looking for the air outside.",
        label="Sample",
        auxiliary=("labels",),
        more=True,
    )
    outside_radius: float = option(
        10.0,
        "Radius of the ball (slice by slice: the disc) that finds the air outside, rolled over the "
        "sample: openings about twice as wide count as outside, narrower ones as pores.",
        unit="voxels",
        minimum=1,
        step=1,
        more=True,
    )
    merging: str = option(
        "height",
        "What parts one pore from the next. height: a neck that is narrower by the merge height; "
        "snow: the peaks that PoreSpy's SNOW finds; void too narrow for a peak is left out.",
        choices=("height", "snow"),
        more=True,
    )
    markers: str = option(
        "",
        "Points, or labels above 0, one for each pore: pores grow from them and part where they "
        "meet, and void that none reaches is left out. Takes the place of merging.",
        auxiliary=("labels", "points"),
        more=True,
    )
    neighbours: str = option(
        "all",
        "Over which voxels pores hang together, and pass into each other. all: the 26 around a "
        "voxel (8 in an image); faces: the 6 (4) that share a face with it.",
        choices=("all", "faces"),
        more=True,
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
    edge_pores: str = option(
        "keep",
        "Pores that reach a face of the volume and are cut by it: keep, or remove them from "
        "labels, tables and porosity.",
        label="Pores at the edge",
        choices=("keep", "remove"),
        more=True,
    )
    border_is_solid: bool = option(
        False,
        "Whether the volume is taken to be enclosed in solid, when distances are measured.",
        more=True,
    )
    memory_budget: float | None = option(
        None,
        "Memory that may be used beyond the input. What needs more is worked on in slabs, with "
        "temporary files, to the same result; None: the memory that is free.",
        unit="GB",
        minimum=0.001,
        more=True,
    )

    def explained(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return what values come to; beside the volume, ``greys`` may be a `GreySurvey` of it."""
        from hushpore.pores.hints import find_hints

        return find_hints(self, known)

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings change nothing; ``is_void`` says that no grey value counts."""
        from hushpore.pores.hints import find_unused

        return find_unused(self, known)
