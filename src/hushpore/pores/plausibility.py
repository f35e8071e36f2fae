"""Whether a segmentation is plausible for a solid sample, seen in a small part of the volume.

A solid is in one piece: if it is in many, pores and solid are probably swapped. And a porosity
says little if it depends on where exactly the threshold lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.labelled.recognise import kind_of_values
from hushpore.scan.exterior import make_thumbnail, outside_of_thumbnail
from hushpore.scan.histogram import Groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.scan.exterior import Exterior

#: Edge length of the cube whose solid is looked at, in voxels.
_EDGE = 96

#: Share of void from which the solid may be the pores.
_MOSTLY_VOID = 0.5

#: Share of the solid that must be separate, and smallest solid piece, in voxels.
_LOOSE, _PIECE = 0.4, 27

#: Thresholds that are plausible: from this part of the way between pores and solid to that.
PLAUSIBLE = (0.4, 0.6)


class Plausibility(NamedTuple):
    """Findings in a part of a volume."""

    loose: float = 0.0  # share of the solid outside its largest component; 0 if it is small
    ends: tuple[float, float] | None = None  # plausible thresholds
    porosities: tuple[float, float] | None = None  # porosity at these

    def totals(self) -> dict[str, Any]:
        """Return the entries of a record."""
        return {
            "loose_solid": self.loose,
            "plausible_thresholds": self.ends and list(self.ends),
            "plausible_porosities": self.porosities and list(self.porosities),
        }


def examine_sample(
    volume: Volume, settings: PoreSettings, exterior: Exterior, totals: Mapping[str, Any]
) -> Plausibility:
    """Find whether the solid is in one piece, and the porosity at plausible thresholds.

    `settings`: as decided. `totals`: of the void, see `hushpore.pores.void_totals`.
    """
    threshold = totals.get("threshold")
    porosity = totals["open_porosity"] + totals["closed_porosity"]
    if threshold is None or not 0 < porosity < 1:
        return Plausibility()
    bright = settings.pores_are == "bright"
    loose = 0.0
    if porosity > _MOSTLY_VOID or exterior.share > _MOSTLY_VOID:
        loose = _loose_share(volume, threshold, bright)
    record = totals.get("threshold_groups")
    is_all_void = settings.pore_type == "all" and settings.hysteresis is None
    if not record or not record["second"] or totals.get("only_values") or not is_all_void:
        return Plausibility(loose)
    groups = Groups(**record)
    small = make_thumbnail(volume)
    inside = ~(outside_of_thumbnail(small, settings, exterior) | small.padded)
    values = small.values[inside]
    if not values.size:
        return Plausibility(loose)
    ends = sorted(groups.between(share) for share in PLAUSIBLE)
    ends = [min(ends[0], threshold), max(ends[1], threshold)]

    def void_up_to(limit: float) -> float:
        return float(np.mean(values > limit if bright else values <= limit))

    own = void_up_to(threshold)
    if not own:
        return Plausibility(loose)
    low, high = sorted(min(porosity * void_up_to(end) / own, 1.0) for end in ends)
    return Plausibility(loose, (ends[0], ends[1]), (low, high))


def _loose_share(volume: Volume, threshold: float, bright: bool) -> float:
    """Return the share of the solid, in a cube, outside its largest connected component."""
    from scipy import ndimage

    # the grey values of labels say nothing about solid; another warning is on them
    if volume.n_spatial != 3 or volume.dtype == np.bool_ or kind_of_values(volume) == "labels":
        return 0.0
    cut = tuple(
        slice(max(0, (n - _EDGE) // 2), max(0, (n - _EDGE) // 2) + _EDGE) for n in volume.shape
    )
    part: Array = np.asarray(volume.data[cut])
    # against noise, whose specks in the void are separate, too
    smooth = ndimage.uniform_filter(part.astype(np.float32), 3, mode="nearest")
    pieces, count = ndimage.label(
        smooth <= threshold if bright else smooth > threshold, np.ones((3, 3, 3))
    )
    sizes = np.bincount(pieces.ravel(), minlength=count + 1)[1:]
    sizes = sizes[sizes >= _PIECE]
    if not sizes.size:
        return 0.0
    share = 1 - float(sizes.max() / sizes.sum())
    return share if share >= _LOOSE else 0.0
