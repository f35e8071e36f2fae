"""Settings that say which voxels of a scan are void."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.settings import Settings, option
from hushpore.scan.histogram import AUTO, METHODS

if TYPE_CHECKING:
    import numpy.typing as npt

#: Spelling of the methods that `str.capitalize` gets wrong.
_SPELLED = {"isodata": "IsoData"}

#: Methods with a threshold for each voxel.
LOCAL_METHODS = ("sauvola", "niblack")


@dataclass(frozen=True)
class VoidSettings(Settings):
    """How to find the void of a scan: by a threshold, without the air around the sample."""

    threshold: str | float = option(
        AUTO,
        "Grey value that separates pores from solid: a number, or the method that finds it. "
        "auto: Otsu where pores and solid are two groups of grey values; otherwise from the peak "
        "of the solid and its noise. "
        "Sauvola and Niblack find a threshold for each voxel from its neighbourhood, for scans of "
        "uneven brightness.",
        choices=(AUTO, *METHODS, *LOCAL_METHODS),
        choice_labels=(
            "Auto",
            *(_SPELLED.get(name, name.capitalize()) for name in METHODS),
            *(f"{name.capitalize()} (local)" for name in LOCAL_METHODS),
        ),
        grey_value=True,
    )
    otsu_classes: int = option(
        2,
        "Number of classes into which Otsu divides the grey values; pores are the darkest "
        "(brightest) class. Raise it for samples of several materials.",
        label="Otsu classes",
        minimum=2,
        maximum=5,
        more="Threshold",
    )
    hysteresis: float | None = option(
        None,
        "Second, stricter threshold against specks of noise: a connected component of void is kept "
        "only if at least one of its voxels also passes this threshold. Default: not used.",
        label="Hysteresis threshold",
        more="Threshold",
        grey_value=True,
        none="not used",
    )
    local_window: int = option(
        51,
        "Edge length of the window around each voxel from which Sauvola and Niblack find its "
        "threshold. Choose it larger than the largest pore. Rounded to an odd number of voxels "
        "along each axis.",
        label="Local threshold window",
        unit="voxels",
        minimum=3,
        maximum=255,
        step=2,
        more="Threshold",
    )
    local_window_by_slice: bool = option(
        False,
        "Use a 2D window within the slice instead of a cube.",
        label="In-slice window",
        more="Threshold",
    )
    sauvola_k: float = option(
        0.2,
        "Factor k of Sauvola and Niblack: how strongly the standard deviation in the window lowers "
        "the threshold. Higher k: less void.",
        label="Local threshold k",
        minimum=-1,
        maximum=1,
        step=0.05,
        more="Threshold",
    )
    pores_are: str = option(
        "auto",
        "Whether pores are darker or brighter than the solid. auto: darker; in a mask, of 0 "
        "and one higher value, brighter (as in PoreSpy, OpenPNM and TauFactor).",
        label="Pores are",
        choices=("auto", "dark", "bright"),
        choice_labels=("Auto", "Dark", "Bright"),
        more="Threshold",
    )
    pore_type: str = option(
        "all",
        "Void to segment. all: open and closed void; open: void connected to a face of the volume "
        "or to the air around the sample; closed: void without such a connection.",
        label="Pore type",
        choices=("all", "open", "closed"),
        choice_labels=("All", "Open only", "Closed only"),
    )
    exterior: str = option(
        "auto",
        "Air around the sample, and padding of one grey value around a scan. auto: excluded where "
        "a quick check of the volume finds any; keep: never excluded; remove: always excluded, so "
        "that porosity is a fraction of the sample; remove-slicewise: excluded slice by slice, for "
        "a sample that extends from the first slice to the last.",
        label="Exterior air",
        choices=("auto", "keep", "remove", "remove-slicewise"),
        choice_labels=("Exclude if found", "Count as pore", "Always exclude", "Exclude by slice"),
        more="Sample",
    )
    sample_mask: str = option(
        "",
        "Labels or a mask, above 0 inside the sample: void outside it is not counted, and porosity "
        "is a fraction of the sample. Replaces the search for the air around the sample.",
        label="Sample mask",
        auxiliary=("labels",),
        more="Sample",
    )
    ball_radius: float = option(
        10.0,
        "Radius of the ball (slice by slice: the disc) that is rolled over the sample to find the "
        "air around it: openings wider than about twice the radius count as air, narrower ones as "
        "pores. Raised automatically if the ball would enter the pores, as in a foam.",
        label="Rolling-ball radius",
        unit="voxels",
        minimum=1,
        step=1,
        more="Sample",
    )

    @property
    def is_local(self) -> bool:
        """Whether the threshold is local: one for each voxel."""
        return self.threshold in LOCAL_METHODS

    def are_bright(self, dtype: npt.DTypeLike) -> bool:
        """Whether pores have the higher values; undecided, those of booleans have."""
        return self.pores_are == "bright" or (self.pores_are == "auto" and dtype == np.bool_)

    @property
    def odd_window(self) -> int:
        """The local window rounded to an odd number of voxels, so that it has a centre voxel."""
        return 2 * round((self.local_window - 1) / 2) + 1

    @property
    def removes_air(self) -> bool:
        """Whether a rolling ball finds the exterior; False for ``"auto"``, which is undecided."""
        return self.exterior.startswith("remove") and not self.sample_mask

    @property
    def keeps_all(self) -> bool:
        """Whether all voxels count, including air and padding around the sample."""
        return self.exterior == "keep" and not self.sample_mask
