"""Settings of the measurement of labels made by another program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.settings import Settings, option
from hushpore.pores.settings import PoreSettings, shared, unused_of_transport

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class MeasureSettings(Settings):
    """How to measure labels made by another program."""

    image: str = option(
        "",
        "Scan from which the labels were made, of the same shape: gives the mean and standard "
        "deviation of the grey values of each pore. Labels without a voxel size get that of the "
        "scan.",
        label="Scan image",
        auxiliary=("scan",),
    )
    values: str = option(
        "auto",
        "How values become pores. auto: recognised from the values; labels: each whole number "
        "above 0 is one pore; mask: each connected component of the pores is one pore; "
        "probability: each connected component at or above the probability level is one pore.",
        label="Values are",
        choices=("auto", "labels", "mask", "probability"),
        choice_labels=("Recognised", "Labels", "Mask", "Probabilities"),
    )
    pores_are: str = option(
        "bright",
        "Which value of a mask of two values is pore: bright: the higher one; dark: the lower one.",
        label="Pores are",
        choices=("bright", "dark"),
        choice_labels=("Bright", "Dark"),
    )
    probability_level: float = option(
        0.5,
        "Probability from which a voxel of a probability map counts as pore.",
        label="Probability level",
        minimum=0,
        maximum=1,
        step=0.05,
        more="Values",
    )
    sample_mask: str = option(
        "",
        "Labels or a mask, above 0 inside the sample: pores outside it are not counted, and "
        "porosity is a fraction of the sample. Default: the whole volume is the sample.",
        label="Sample mask",
        auxiliary=("labels",),
        more="Sample",
    )
    minimum_voxels: int = option(
        1,
        "Exclude pores of fewer voxels.",
        label="Minimum pore size",
        unit="voxels",
        minimum=1,
        more="Measures",
    )
    minimum_shape_voxels: int = shared("minimum_shape_voxels")
    edge_pores: str = shared("edge_pores")
    connectivity: str = shared("connectivity")
    border_is_solid: bool = shared("border_is_solid")
    local_thickness: str = shared("local_thickness")
    tortuosity: bool = shared("tortuosity")
    transport: str = shared("transport")
    periodic_sides: bool = shared("periodic_sides")
    report_form: str = shared("report_form")
    limits: str = shared("limits")
    memory_budget: float | None = shared("memory_budget")

    def of_pores(self) -> PoreSettings:
        """Return the settings of a pore segmentation with the same measurements."""
        known = {opt.name for opt in PoreSettings.options()}
        given = {name: value for name, value in self.to_dict().items() if name in known}
        given |= {"pores_are": "bright", "exterior": "keep", "merge_overlapping": False}
        return PoreSettings(**given)

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings have no effect, by name."""
        kinds = {
            "pores_are": ("mask", "Mask"),
            "probability_level": ("probability", "Probabilities"),
        }
        return unused_of_transport(self) | {
            name: f"Only used with Values are = {title}."
            for name, (kind, title) in kinds.items()
            if self.values not in ("auto", kind)
        }
