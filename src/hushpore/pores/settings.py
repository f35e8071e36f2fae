"""Settings of the pore segmentation, and in sentences for a form what they come to for a volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.formatting import readable_unit
from hushpore.base.settings import Settings, option
from hushpore.pores.void.histogram import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume

#: Names of methods that are not spelled as names are.
_SPELLED = {"isodata": "IsoData"}

#: Methods that find a threshold for every voxel.
LOCAL_METHODS = ("sauvola", "niblack")
_LOCAL = " and ".join(LOCAL_METHODS)

#: Settings that are about grey values, of which the void itself has none.
_OF_GREYS = (
    "threshold",
    "phases",
    "hysteresis",
    "local_window",
    "local_window_by_slice",
    "sauvola_k",
    "pores_are",
)

#: Merge height up to which the steps of voxels in a surface part pores: of a ball on a grid the
#: distance map has side peaks of up to half a voxel.
_STEPS = 0.5


@dataclass(frozen=True)
class PoreSettings(Settings):
    """How to segment pores."""

    threshold: str | float = option(
        "otsu",
        "Grey value between pore and solid: a method that finds it, or a number. Sauvola and "
        "Niblack find one for each voxel from its neighbourhood, for scans of uneven brightness.",
        choices=(*METHODS, *LOCAL_METHODS),
        choice_labels=(
            *(_SPELLED.get(name, name.capitalize()) for name in METHODS),
            *(f"{name.capitalize()} (local)" for name in LOCAL_METHODS),
        ),
        grey_value=True,
    )
    phases: int = option(
        2,
        "How many materials Otsu tells apart by their grey values, pores among them; pores are the "
        "darkest (brightest).",
        label="Number of phases",
        minimum=2,
        maximum=5,
        more=True,
    )
    hysteresis: float | None = option(
        None,
        "A second, stricter threshold against specks of noise: void is kept only where a connected "
        "part of it passes this one too. None: not used.",
        label="Hysteresis threshold",
        more=True,
        grey_value=True,
    )
    local_window: int = option(
        51,
        "Edge of the window around a voxel that Sauvola and Niblack look at; larger than the "
        "largest pore. Along each axis an odd number of voxels that is near it is taken.",
        label="Local threshold window",
        unit="voxels",
        minimum=3,
        maximum=255,
        step=2,
        more=True,
    )
    local_window_by_slice: bool = option(
        False,
        "Take that window within the slice alone, and not as a cube.",
        label="Local threshold by slice",
        more=True,
    )
    sauvola_k: float = option(
        0.2,
        "Factor k of Sauvola and Niblack: how much the standard deviation in the window lowers the "
        "threshold. The greater, the less is pore.",
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
        choice_labels=("Dark", "Bright"),
    )
    pore_type: str = option(
        "all",
        "all: the whole void; open: what is connected to a face of the volume, or to the air "
        "outside the sample; closed: what is not.",
        label="Open or closed pores",
        choices=("all", "open", "closed"),
        choice_labels=("All", "Open only", "Closed only"),
    )
    exterior: str = option(
        "auto",
        "The air around the sample, and what is filled in around a scan with one value. auto: "
        "where a quick look at the volume finds some it is left out; keep: it counts as pore; "
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
    ball_radius: float = option(
        10.0,
        "Radius of the ball (slice by slice: the disc) that finds the air outside, rolled over the "
        "sample: openings about twice as wide count as outside, narrower ones as pores. "
        "Where the air is looked for first, it is made larger if it would get into the pores of a "
        "foam.",
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
        choice_labels=("Merge height", "SNOW (PoreSpy)"),
        more=True,
    )
    markers: str = option(
        "",
        "Points, labels, or a mask of which each connected part is one: pores grow from them and "
        "are split where they meet; void that none reaches is left out. Takes the place of "
        "merging.",
        label="Watershed markers",
        auxiliary=("labels", "points"),
        more=True,
    )
    connectivity: str = option(
        "all",
        "Which voxels are connected, within a pore and between pores. all: the 26 neighbours of a "
        "voxel (8 in an image); faces: the 6 (4) that share a face with it.",
        choices=("all", "faces"),
        choice_labels=("26 neighbours (2D: 8)", "6 neighbours (2D: 4)"),
        more=True,
    )
    merge_height: str | float = option(
        "auto",
        "Neighbouring pores merge where the neck between them is less than this much narrower, in "
        "radius, than the smaller of the two. The larger, the fewer pores are split. auto: by the "
        "typical radius of the pores, 0.1 voxels up to 3.25, and rising to 0.5 at 5; the nearer to "
        "0.5, the more of them lie apart, and 0.5 where half do.",
        label="Watershed merge height",
        choices=("auto",),
        choice_labels=("Auto",),
        unit="voxels",
        minimum=0,
        step=0.1,
    )
    merge_overlapping: bool = option(
        True,
        "Neighbouring pores whose widest places are no farther from each other than from the solid "
        "are one, whatever the merge height: rough walls and noise part such. Otherwise the merge "
        "height alone decides.",
        label="Join near peaks",
        more=True,
    )
    minimum_voxels: int = option(
        1,
        "Pores of fewer voxels are left out. Below 8 voxels the shape of a pore is that of the "
        "grid.",
        label="Smallest pore",
        unit="voxels",
        minimum=1,
    )
    minimum_shape_voxels: int = option(
        8,
        "Pores of fewer voxels have no shape but that of the grid: their columns of shape "
        "(inscribed diameter, surface, sphericity, axes, elongation, flatness) are empty. 1: all "
        "are filled.",
        label="Shape measured from",
        unit="voxels",
        minimum=1,
        more=True,
    )
    edge_pores: str = option(
        "keep",
        "Pores that reach a face of the volume and are cut by it. keep: they count; remove: they "
        "are left out of labels, tables and porosity.",
        label="Pores at the edge",
        choices=("keep", "remove"),
        choice_labels=("Keep", "Leave out"),
        more=True,
    )
    border_is_solid: bool = option(
        False,
        "Take what lies beyond the volume for solid when pores are split. Otherwise pores that are "
        "cut by its faces go on there.",
        label="Solid beyond the volume",
        more=True,
    )
    local_thickness: str = option(
        "none",
        "Local thickness, for every voxel the diameter of the largest ball that fits and covers "
        "it: pore and wall thickness (trabecular separation and thickness). It takes several times "
        "as long as the pores themselves.",
        label="Local thickness",
        choices=("none", "void", "solid", "both"),
        choice_labels=("Not measured", "Of the pores", "Of the solid", "Of both"),
        more=True,
    )
    tortuosity: bool = option(
        False,
        "Geodesic tortuosity along each axis: how much longer than straight the shortest ways "
        "through the pores are, from the first slice to the last. It takes several times as long "
        "as the pores themselves, and a volume that fits into memory.",
        label="Geodesic tortuosity",
        more=True,
    )
    intervals: bool = option(
        False,
        "How sure porosity, number of pores and median diameter are: of each an interval for that "
        "of the material, from thresholds and merge heights that the scan cannot tell apart and "
        "from how its parts differ; and how large a part is representative (REV). Takes about "
        "four times as long. Of scans that fit into memory, on a cluster into that of a worker.",
        label="90 % intervals",
        more=True,
    )
    memory_budget: float | None = option(
        None,
        "Memory that may be used beyond the scan itself. What needs more is worked on slab by "
        "slab, with temporary files, to the same result. None: what is free.",
        label="Memory limit",
        unit="GB",
        minimum=0.001,
        more=True,
    )

    @property
    def is_local(self) -> bool:
        """Whether every voxel has a threshold of its own."""
        return self.threshold in LOCAL_METHODS

    @property
    def odd_window(self) -> int:
        """The window that is taken: one with a voxel in its middle."""
        return 2 * round((self.local_window - 1) / 2) + 1

    @property
    def thick_phases(self) -> tuple[str, ...]:
        """Phases of which the local thickness is measured: ``"void"``, ``"solid"``."""
        phases = ("void", "solid")
        return tuple(each for each in phases if self.local_thickness in (each, "both"))

    @property
    def keeps_void(self) -> bool:
        """Whether the void is measured once more when its pores are known."""
        return bool(self.thick_phases) or self.intervals

    @property
    def keeps_distance(self) -> bool:
        """Whether the distances in the void are needed once more when its basins are known."""
        return self.by_snow or "void" in self.thick_phases

    @property
    def by_snow(self) -> bool:
        """Whether pores are parted by the peaks of SNOW."""
        return self.merging == "snow" and not self.markers

    @property
    def merges_overlapping(self) -> bool:
        """Whether pores are merged by height, and where peaks are near each other whatever that."""
        return self.merge_overlapping and self.merging == "height" and not self.markers

    @property
    def removes_air(self) -> bool:
        """Whether a ball finds the air around the sample; with ``"auto"`` that is not decided."""
        return self.exterior.startswith("remove") and not self.sample_mask

    @property
    def keeps_all(self) -> bool:
        """Whether every voxel counts, also air and what is filled in."""
        return self.exterior == "keep" and not self.sample_mask

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return what values come to.

        ``greys`` may be a `hushpore.pores.preview.GreySurvey`.
        """
        greys, volume = known.get("greys"), known.get("volume")
        said = {"merge_height": _merging(self, volume)}
        if self.is_local:
            said["threshold"] = (
                f"Each voxel has its own threshold, from a window of {self.odd_window} voxels "
                "around it (Local threshold window)."
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
        unless(
            is_local,
            "local_window local_window_by_slice sauvola_k",
            "for the thresholds Sauvola and Niblack",
        )
        # what is refused can be set back
        unless(self.threshold == "otsu" or self.phases > 2, "phases", "for the threshold Otsu")
        unless(not is_local or self.hysteresis is not None, "hysteresis", "the threshold is local")
        unless(self.exterior != "keep", "ball_radius", "the air outside is kept")
        unless(not self.sample_mask, "exterior ball_radius", "a mask says what the sample is")
        why = "SNOW splits pores by its peaks (Watershed merging)"
        unless(self.merging == "height", "merge_height merge_overlapping", why)
        unless(
            not self.markers, "merge_height merge_overlapping merging", "pores are split by markers"
        )
        if known.get("is_void"):
            unless(False, " ".join(_OF_GREYS), "the layer is the void itself, without grey values")
        return reasons

    def unused_of_void(self) -> dict[str, Any]:
        """Return settings that are not the defaults and change nothing of a boolean volume."""
        given, usual = self.to_dict(), type(self)().to_dict()
        return {name: given[name] for name in _OF_GREYS if given[name] != usual[name]}


def _merging(settings: PoreSettings, volume: Volume | None) -> str:
    h = settings.merge_height
    if settings.markers or settings.merging != "height":
        return ""
    if isinstance(h, str):
        return (
            "Small pores are split at narrower necks than large ones; the result says which "
            "height was taken, and why."
        )
    if h < _STEPS:
        return f"Below {_STEPS:g}, steps of single voxels in the surface split pores, too."
    if h > _STEPS:
        size = f"{2 * h:g} voxels"
        if volume is not None and volume.unit != "pixel":
            size = f"{2 * h * min(volume.spacing):.3g} {readable_unit(volume.unit)}"
        return (
            f"Pores are split only at necks at least {size} narrower than the smaller of the two."
        )
    return f"{h:g} evens out steps of voxels; with more, fewer pores are split."
