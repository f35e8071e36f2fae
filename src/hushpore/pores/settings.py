"""Settings of the pore segmentation, with the hints and reasons that a form shows beside them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hushpore.base.formatting import readable_unit
from hushpore.base.settings import option
from hushpore.scan.histogram import AUTO
from hushpore.scan.settings import VoidSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume

#: Forms that results are reported in; see `hushpore.pores.forms.tables.FORMS`.
FORM_NAMES = ("none", "bone", "foam", "casting", "bread", "rock", "electrode")

#: Settings of grey values, which a boolean volume (the void itself) does not use.
_GREY_SETTINGS = (
    "threshold",
    "otsu_classes",
    "hysteresis",
    "local_window",
    "local_window_by_slice",
    "sauvola_k",
    "measured_porosity",
    "subvoxel_porosity",
    "void_grey",
    "solid_grey",
)

#: Merge height below which voxel steps in a surface split pores: the distance map of a ball on a
#: grid has side peaks of up to half a voxel.
_GRID_STEP = 0.5


@dataclass(frozen=True)
class PoreSettings(VoidSettings):
    """How to segment pores."""

    merging: str = option(
        "height",
        "How watershed basins are merged into pores. height: if the neck between them is narrower "
        "than the smaller one by less than the merge height; snow: to the peaks of PoreSpy's SNOW "
        "algorithm, which excludes void too narrow for a peak.",
        label="Watershed merging",
        choices=("height", "snow"),
        choice_labels=("Merge height", "SNOW (PoreSpy)"),
        more="Splitting",
    )
    markers: str = option(
        "",
        "Points, labels or a mask (each connected component is one marker): one pore grows from "
        "each marker, and pores are split where they meet; void that no marker reaches is "
        "excluded. Replaces merging.",
        label="Watershed markers",
        auxiliary=("labels", "points"),
        more="Splitting",
    )
    connectivity: str = option(
        "all",
        "Which neighbouring voxels are connected, within a pore and between pores. all: all 26 "
        "neighbours of a voxel (8 in 2D); faces: only the 6 (4) that share a face with it.",
        choices=("all", "faces"),
        choice_labels=("26 neighbours (2D: 8)", "6 neighbours (2D: 4)"),
        more="Splitting",
    )
    merge_height: str | float = option(
        "auto",
        "Merge height h: neighbouring pores are merged if the radius of the neck between them is "
        "less than this below the radius of the smaller pore. Higher: fewer, larger pores. "
        "auto: 0.1 to 0.5 voxels, chosen from the typical pore radius and the fraction of isolated "
        "pores.",
        label="Merge height",
        choices=("auto",),
        choice_labels=("Auto",),
        unit="voxels",
        minimum=0,
        step=0.1,
        more="Splitting",
    )
    merge_overlapping: bool = option(
        True,
        "Also merge neighbouring pores whose centres are closer to each other than to the solid, "
        "so that their maximal balls overlap, whatever the merge height. Rough walls and noise "
        "create such pairs.",
        label="Merge overlapping pores",
        more="Splitting",
    )
    minimum_voxels: int | None = option(
        None,
        "Exclude pores of fewer voxels from labels, tables and porosity; the preview of the "
        "threshold shows them. Default: automatic, which is 8 for grey values, or up to 64 where "
        "the measured noise makes larger specks, and 1 for a mask or a measured porosity. "
        "1: count all pores.",
        label="Minimum pore size",
        unit="voxels",
        minimum=1,
        none="auto",
    )
    minimum_shape_voxels: int = option(
        8,
        "Leave the shape columns (inscribed diameter, surface area, sphericity, axes, elongation, "
        "flatness) empty for pores of fewer voxels, whose shape only reflects the voxel grid. "
        "1: measure the shape of all pores.",
        label="Minimum shape size",
        unit="voxels",
        minimum=1,
        more="Measures",
    )
    edge_pores: str = option(
        "keep",
        "Pores cut by a face of the volume. keep: counted; sizes: excluded only from the size "
        "statistics (D10, D50, D90), since their sizes are too small; remove: excluded from "
        "labels, tables and porosity.",
        label="Edge pores",
        choices=("keep", "sizes", "remove"),
        choice_labels=("Keep", "Exclude from sizes", "Exclude"),
        more="Measures",
    )
    border_is_solid: bool = option(
        False,
        "Treat the volume boundary as a wall when pores are split. Otherwise, pores cut by it are "
        "assumed to continue beyond it.",
        label="Solid boundary",
        more="Splitting",
    )
    local_thickness: str = option(
        "none",
        "Local thickness: for each voxel, the diameter of the largest inscribed ball that contains "
        "it. Gives pore and wall thickness (trabecular separation and thickness). Takes several "
        "times as long as the segmentation.",
        label="Local thickness",
        choices=("none", "void", "solid", "both"),
        choice_labels=("Not measured", "Pores", "Solid", "Pores and solid"),
        more="Measures",
    )
    tortuosity: bool = option(
        False,
        "Geodesic tortuosity along each axis: length of the shortest paths through the pores from "
        "the first slice to the last, relative to the straight distance. Takes several times as "
        "long as the segmentation; the volume must fit into memory.",
        label="Geodesic tortuosity",
        more="Measures",
    )
    transport: str = option(
        "none",
        "Solve transport in the voxels of the pores along each axis: diffusion gives effective "
        "diffusivity, tortuosity factor and formation factor (MacMullin number), flow (Stokes) the "
        "permeability. Writes maps of the flux. Takes much longer than the segmentation; the "
        "volume must fit into memory and be all sample.",
        label="Transport in voxels",
        choices=("none", "diffusion", "flow", "both"),
        choice_labels=("Not solved", "Diffusion", "Flow", "Diffusion and flow"),
        more="Measures",
    )
    periodic_sides: bool = option(
        False,
        "Transport in voxels: treat the four faces beside the axis as periodic, as of a "
        "repeated unit cell, instead of closed.",
        label="Periodic sides",
        more="Measures",
    )
    measured_porosity: float | None = option(
        None,
        "Porosity of the sample that was measured otherwise, for example with a pycnometer or by "
        "Archimedes' principle. The threshold is then chosen so that the void of the pore type has "
        "this porosity, whatever Threshold says. Default: not used.",
        label="Measured porosity",
        unit="%",
        minimum=0,
        maximum=100,
        more="Threshold",
        none="not used",
    )
    subvoxel_porosity: bool = option(
        False,
        "Also compute the porosity from grey values, without a threshold: a voxel counts as void "
        "by where its value lies between those of void and solid. Includes pores smaller than a "
        "voxel.",
        label="Sub-voxel porosity",
        more="Threshold",
    )
    void_grey: float | None = option(
        None,
        "Grey value of void for the sub-voxel porosity, for example of the air around the sample. "
        "Default: the median of the void, away from its surface.",
        label="Void grey value",
        more="Threshold",
        none="from the scan",
    )
    solid_grey: float | None = option(
        None,
        "Grey value of solid without pores for the sub-voxel porosity, for example of a dense "
        "grain. Default: the median of the solid, away from its surface, which misses pores that "
        "are spread evenly in it.",
        label="Solid grey value",
        more="Threshold",
        none="from the scan",
    )
    intervals: bool = option(
        False,
        "Uncertainty intervals (90 %) of porosity, number of pores and median diameter, and the "
        "edge length of a representative elementary volume (REV), from equally plausible "
        "thresholds and merge heights and from sub-volumes. In the forms rock and electrode also "
        "of flow, without sub-volumes. Pores cut by a face count, even if they are excluded from "
        "sizes. Takes about four times as long; the scan must fit into memory (on a cluster, into "
        "that of one worker).",
        label="Uncertainty intervals",
        more="Measures",
    )
    detection_limit: bool = option(
        False,
        "Detection limit (a90): the diameter of pores that are found in 90 % of cases, and the "
        "error of their size. Balls of known diameters are put into the solid of the scan, with "
        "its noise and blur, and segmented with the same settings. Takes four to ten times as "
        "long, of a large scan only its middle is used.",
        label="Detection limit",
        more="Measures",
    )
    report_form: str = option(
        "none",
        "Also report the results in the symbols, units and order of a field, in form.csv and in "
        "the report: trabecular bone, foam, casting, bread, rock (with permeability and drainage "
        "curve) or electrode. Values that were not measured are listed with the reason.",
        label="Report form",
        choices=FORM_NAMES,
        choice_labels=("None", "Bone", "Foam", "Casting", "Bread", "Rock", "Electrode"),
        more="Report",
    )
    limits: str = option(
        "",
        "Acceptance limits (.toml): the form, and for each limited symbol min and max in its unit. "
        "Each is passed, failed, or not decided if a limit is inside the 90 % interval; in "
        "limits.csv, the remarks and the report. The exit status is 3 unless all are passed.",
        label="Acceptance limits",
        more="Report",
        path="file",
    )
    memory_budget: float | None = option(
        None,
        "Memory to use besides the scan itself. Volumes that need more are processed slab by slab "
        "with temporary files, with the same result. Default: all free memory.",
        label="Memory limit",
        unit="GB",
        minimum=0.001,
        more="Computer",
        none="all free memory",
    )

    @property
    def thickness_of(self) -> tuple[str, ...]:
        """What the local thickness is measured of: ``"void"``, ``"solid"``, both or neither."""
        return tuple(each for each in ("void", "solid") if self.local_thickness in (each, "both"))

    @property
    def keeps_void(self) -> bool:
        """Whether the void is needed again after the pores are found."""
        return bool(self.thickness_of) or self.intervals or self.subvoxel_porosity

    @property
    def keeps_distance(self) -> bool:
        """Whether the distance map of the void is needed again after its basins are found."""
        return self.by_snow or "void" in self.thickness_of

    @property
    def by_snow(self) -> bool:
        """Whether basins are merged to the peaks of SNOW."""
        return self.merging == "snow" and not self.markers

    @property
    def merges_overlapping(self) -> bool:
        """Whether basins with overlapping maximal balls are merged whatever the merge height."""
        return self.merge_overlapping and self.merging == "height" and not self.markers

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return a hint for each setting whose value needs explaining; see `Settings.hints`.

        ``greys`` may be a `hushpore.pores.preview.GreySurvey`, ``sample`` the
        `hushpore.scan.histogram.Histogram` of the sample alone.
        """
        greys, volume = known.get("greys"), known.get("volume")
        said = {"merge_height": _merge_height_hint(self, volume)}
        if self.measured_porosity is not None:
            said["threshold"] = (
                f"Chosen during the run, so that the porosity is {self.measured_porosity:g} % "
                "(Measured porosity)."
            )
        elif self.is_local:
            said["threshold"] = (
                f"Each voxel gets its own threshold, from a window of {self.odd_window} voxels "
                "around it (Local threshold window)."
            )
        elif greys is not None:
            said |= greys.explain(self, known.get("sample"))
        return {name: text for name, text in said.items() if text}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings have no effect, by name; ``is_void``: the volume is the void."""
        reasons: dict[str, str] = {}

        def unless(is_used: bool, names: str, why: str) -> None:
            if not is_used:
                reasons.update(dict.fromkeys(names.split(), why))

        is_local = self.is_local
        unless(
            is_local,
            "local_window local_window_by_slice sauvola_k",
            "Only used with Threshold = Sauvola or Niblack.",
        )
        # a value that the job refuses stays enabled, so that it can be set back
        unless(
            self.threshold in (AUTO, "otsu") or self.otsu_classes > 2,
            "otsu_classes",
            "Only used with Threshold = Auto or Otsu.",
        )
        unless(
            not is_local or self.hysteresis is not None,
            "hysteresis",
            "Not used with a local threshold.",
        )
        unless(self.exterior != "keep", "ball_radius", "Not used: surrounding air is kept.")
        unless(not self.sample_mask, "exterior ball_radius", "Not used: a sample mask is given.")
        why = "Not used: SNOW merges basins to its own peaks (Watershed merging)."
        unless(self.merging == "height", "merge_height merge_overlapping", why)
        why = "Not used: pores grow from the markers (Watershed markers)."
        unless(not self.markers, "merge_height merge_overlapping merging", why)
        why = "Only used with Sub-voxel porosity."
        unless(self.subvoxel_porosity, "void_grey solid_grey", why)
        reasons |= unused_of_transport(self)
        if known.get("is_void"):
            why = "Not used: the layer is a mask of the void, without grey values."
            unless(False, " ".join(_GREY_SETTINGS), why)
        return reasons

    def unused_of_void(self) -> dict[str, Any]:
        """Return the grey-value settings that differ from their defaults: unused for a mask."""
        given, usual = self.to_dict(), type(self)().to_dict()
        return {name: given[name] for name in _GREY_SETTINGS if given[name] != usual[name]}


def shared(name: str) -> Any:
    """Declare a setting of another job as the pore segmentation has it."""
    (found,) = (field for field in fields(PoreSettings) if field.name == name)
    return copy.copy(found)


def unused_of_transport(settings: Any) -> dict[str, str]:
    """Return why settings of transport have no effect, of the settings of any job."""
    if settings.transport != "none":
        return {}
    return {"periodic_sides": "Only used with Transport in voxels."}


def _merge_height_hint(settings: PoreSettings, volume: Volume | None) -> str:
    h = settings.merge_height
    if settings.markers or settings.merging != "height":
        return ""
    if isinstance(h, str):
        return "Chosen from the pore size; shown with the result."
    if h < _GRID_STEP:
        return f"Below {_GRID_STEP:g} voxels, single-voxel steps in the surface split pores, too."
    if h > _GRID_STEP:
        size = f"{2 * h:g} voxels"
        if volume is not None and volume.unit != "pixel":
            size = f"{2 * h * min(volume.spacing):.3g} {readable_unit(volume.unit)}"
        return f"Pores are split only at necks at least {size} narrower than the smaller pore."
    return f"{h:g} voxels smooths out single-voxel steps; higher values split fewer pores."
