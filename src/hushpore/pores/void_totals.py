"""Totals of a segmentation that do not change when pores merge: void, thickness, exterior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.pores.geometry.sums import index_of, intercept_totals
from hushpore.pores.tables.measures import surface_of
from hushpore.pores.topology import percolation_totals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Threshold, VoidTotals
    from hushpore.scan.exterior import Exterior


def void_totals(
    phases: VoidTotals, threshold: Threshold, walls: Int64s, graph: BasinGraph, volume: Volume
) -> dict[str, Any]:
    """Return the totals of the record that do not change when pores merge.

    `walls`: walls between void and solid, see `hushpore.pores.tables.measures.walls_of`. `graph`:
    basins of the void of the requested pore type.
    """
    sample = phases.sample
    void, size = int(graph.sums[:, index_of("voxels")].sum()), int(sample.sum())
    return {
        "sample_voxels": size,
        "open_porosity": phases.open_voxels / size,
        "closed_porosity": phases.closed_voxels / size,
        "components": phases.components,
        "threshold": threshold.value,
        "only_values": threshold.only_values and list(threshold.only_values),
        "threshold_groups": threshold.groups and threshold.groups._asdict(),
        "specific_surface": surface_of(walls, volume) / (size * volume.voxel_size),
        **intercept_totals(walls, void, size, volume),
        **percolation_totals(graph, sample, volume),
    }


def thickness_totals(thickness: Mapping[str, LocalThickness]) -> dict[str, Any]:
    """Return the entries of the record about local thickness, by phase."""
    return {
        f"{name}_thickness{part}": value
        for name, found in thickness.items()
        for part, value in (("", found.mean), ("_deviation", found.deviation))
    }


def outside_totals(exterior: Exterior, share: float) -> dict[str, Any]:
    """Return the entries of the record about the exterior.

    `share`: fraction of the volume in the exterior.
    """
    return {
        "exterior": exterior.treatment,
        "air_kept_share": exterior.kept,
        "exterior_share": share,
        "ball_radius": exterior.radius,
        "padding_value": exterior.padding,
    }
