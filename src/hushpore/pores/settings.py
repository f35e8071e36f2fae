"""Settings of the pore segmentation, and in sentences for a form what they come to for a volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.settings import Settings, option
from hushpore.base.volume import readable_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume

#: Methods that find one threshold for the whole volume, as scikit-image's functions of these names.
METHODS = ("otsu", "li", "triangle", "yen", "isodata", "minimum")

#: Methods that find one for every voxel.
LOCAL_METHODS = ("sauvola", "niblack")
_LOCAL = " and ".join(LOCAL_METHODS)

#: Merge height up to which the steps of voxels in a surface part pores: of a ball on a grid the
#: distance map has side peaks of up to half a voxel.
_STEPS = 0.5


@dataclass(frozen=True)
class PoreSettings(Settings):
    """How to segment pores."""

    threshold: str | float = option(
        "otsu",
        f"Grey value between pore and solid: a method that finds it, or a number. {_LOCAL} find "
        "one for every voxel, from what is around it, for grounds of uneven grey.",
        choices=(*METHODS, *LOCAL_METHODS),
        grey_value=True,
    )
    phases: int = option(
        2,
        "How many grey phases there are, for the method otsu; pores are the darkest (brightest).",
        label="Grey phases",
        minimum=2,
        maximum=5,
        more=True,
    )
    hysteresis: float | None = option(
        None,
        "A stricter grey value: void is kept only where a connected part passes this one too; "
        "None: all of it.",
        label="Hysteresis threshold",
        more=True,
        grey_value=True,
    )
    window: int = option(
        51,
        f"Side of the window around a voxel that {_LOCAL} look at; wider than the widest pore.",
        label="Local threshold window",
        unit="voxels",
        minimum=3,
        maximum=255,
        step=2,
        more=True,
    )
    window_in_slice: bool = option(
        False,
        "Whether that window lies in one slice, and is not as deep as it is wide.",
        label="Local threshold in slices",
        more=True,
    )
    local_k: float = option(
        0.2,
        f"How far below the mean of the window the threshold lies, for {_LOCAL}: the "
        "factor of the standard deviation; the greater, the less is pore.",
        label="Local threshold k",
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
        label="Open or closed pores",
        choices=("all", "open", "closed"),
    )
    outside: str = option(
        "auto",
        "The air around the sample. auto: where a quick look at the volume finds some it is left "
        "out, as what is filled in around a scan with one value is; keep: it counts as pore; "
        "remove: it is no pore, and porosity is a share of the sample; remove-slicewise: the same "
        "slice by slice, for a sample that runs through from the first slice to the last.",
        label="Air around sample",
        choices=("auto", "keep", "remove", "remove-slicewise"),
        choice_labels=(
            "Leave out",
            "Count as pore",
            "Always leave out",
            "Slice by slice",
        ),
    )
    sample_mask: str = option(
        "",
        "Labels or a mask, above 0 in the sample: void elsewhere is no pore, and porosity is a "
        "share of the sample. Takes the place of looking for the air outside.",
        label="Sample mask",
        auxiliary=("labels",),
        more=True,
    )
    outside_radius: float = option(
        10.0,
        "Radius of the ball (slice by slice: the disc) that finds the air outside, rolled over the "
        "sample: openings about twice as wide count as outside, narrower ones as pores. With "
        "outside auto it is made larger where it would get into the pores of a foam.",
        label="Rolling ball radius",
        unit="voxels",
        minimum=1,
        step=1,
        more=True,
    )
    merging: str = option(
        "height",
        "How basins of the watershed are merged into pores. height: where the neck between them is "
        "narrower by less than the merge height; snow: to the peaks that PoreSpy's SNOW finds, and "
        "void too narrow for a peak is left out.",
        label="Watershed merging",
        choices=("height", "snow"),
        more=True,
    )
    markers: str = option(
        "",
        "Points, or labels above 0, one for each pore: pores grow from them and part where they "
        "meet, and void that none reaches is left out. Takes the place of merging.",
        label="Watershed markers",
        auxiliary=("labels", "points"),
        more=True,
    )
    connectivity: str = option(
        "all",
        "Which voxels are connected, within a pore and between pores. all: the 26 neighbours of a "
        "voxel (8 in an image); faces: the 6 (4) that share a face with it.",
        choices=("all", "faces"),
        more=True,
        formerly=("neighbours",),
    )
    h: float = option(
        0.5,
        "Neighbouring pores merge where the neck between them is less than this much "
        "narrower, in radius, than the smaller of the two; 0 merges least.",
        label="Watershed merge height",
        unit="voxels",
        minimum=0,
        step=0.1,
    )
    minimum_voxels: int = option(
        1,
        "Pores of fewer voxels are left out. Below 8 the shape of a pore is that of the grid.",
        label="Smallest pore",
        unit="voxels",
        minimum=1,
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
        label="Solid outside volume",
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

    @property
    def is_local(self) -> bool:
        """Whether every voxel has a threshold of its own."""
        return self.threshold in LOCAL_METHODS

    @property
    def removes_air(self) -> bool:
        """Whether a ball finds the air around the sample; with ``"auto"`` that is not decided."""
        return self.outside.startswith("remove") and not self.sample_mask

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return what values come to; ``greys`` may be a `hushpore.pores.preview.GreySurvey`."""
        greys, volume = known.get("greys"), known.get("volume")
        said = {"h": _merging(self, volume)}
        if self.is_local:
            said["threshold"] = (
                f"Each voxel has its own threshold, from the {self.window} voxels around it "
                "(Local threshold window)."
            )
        elif greys is not None:
            said |= greys.explain(self)
        return {name: text for name, text in said.items() if text}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings change nothing; ``is_void`` says that no grey value counts."""
        reasons: dict[str, str] = {}

        def unless(is_used: bool, names: str, why: str) -> None:
            if not is_used:
                reasons.update(dict.fromkeys(names.split(), f"Not used: {why}."))

        is_local = self.is_local
        unless(is_local, "window window_in_slice local_k", f"for the thresholds {_LOCAL}")
        # what is refused can be set back
        unless(self.threshold == "otsu" or self.phases > 2, "phases", "for the method otsu")
        unless(not is_local or self.hysteresis is not None, "hysteresis", "the threshold is local")
        unless(self.outside != "keep", "outside_radius", "the air outside is kept")
        unless(not self.sample_mask, "outside outside_radius", "a mask says what the sample is")
        why = "SNOW parts pores by its peaks (Watershed merging)"
        unless(self.merging == "height", "h", why)
        unless(not self.markers, "h merging", "pores are parted by markers")
        if known.get("is_void"):
            greys = "threshold phases hysteresis window window_in_slice local_k pores_are"
            unless(False, greys, "the layer is the void itself, without grey values")
        return reasons


def _merging(settings: PoreSettings, volume: Volume | None) -> str:
    h = settings.h
    if settings.markers or settings.merging != "height":
        return ""
    if h < _STEPS:
        return f"Below {_STEPS:g}, steps of single voxels in the surface split pores."
    if h > _STEPS:
        size = f"{2 * h:g} voxels"
        if volume is not None and volume.unit != "pixel":
            size = f"{2 * h * min(volume.spacing):.3g} {readable_unit(volume.unit)}"
        return f"Only necks at least {size} narrower, in diameter, than the smaller pore part two."
    return f"{h:g} evens out steps of voxels; more, and pores with wider necks are one."
