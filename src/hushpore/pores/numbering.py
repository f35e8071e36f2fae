"""Merging of basins into pores, numbering of the pores, and their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.distributions import percentiles
from hushpore.base.errors import InputError
from hushpore.pores.geometry.sums import index_of, intercept_totals
from hushpore.pores.tables.measures import pore_columns, surface_of, throat_columns
from hushpore.pores.tables.merged_sums import reach_a_face
from hushpore.pores.tables.totals import RELIABLE, material_totals
from hushpore.pores.topology import percolation_totals
from hushpore.pores.watershed.merging import (
    Numbering,
    find_overlapping,
    height_of,
    merge_by_height,
    merge_to_markers,
    number_groups,
    number_pores,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Threshold, VoidTotals
    from hushpore.scan.exterior import Exterior


def numbering_of(labels: Int32s, graph: BasinGraph) -> Numbering:
    """Return the assignment of basins to the pores of given labels."""
    label_of = np.zeros(graph.count + 1, np.int32)
    label_of[1:] = labels.reshape(-1)[graph.peak[1:]]
    names, row = np.unique(label_of, return_inverse=True)
    gapped = None if names[-1] == names.size - 1 else names
    if gapped is not None:
        label_of = row.reshape(-1).astype(np.int32)
    # the basin with the highest peak of each pore comes last
    order = np.lexsort((graph.peak_squared_distance, label_of))
    last = np.flatnonzero(np.diff(label_of[order], append=-1))
    root = order[last].astype(np.int32)
    return Numbering(label_of, root[label_of[root] > 0], gapped)


def number_basins(
    graph: BasinGraph, settings: PoreSettings, volume: Volume, snow_peaks: Mask | None = None
) -> Numbering:
    """Merge basins into pores, by SNOW peaks if given, else by merge height, and number them."""
    excluded = excluded_basins(graph, settings, volume)
    if snow_peaks is None:
        overlapping = None
        if settings.merges_overlapping:
            peaks = graph.peak, graph.peak_squared_distance
            overlapping = find_overlapping(*peaks, graph.a, graph.b, volume.shape, volume.spacing)
        height = height_of(graph, settings.merge_height, volume.n_spatial).merge_height
        root = merge_by_height(graph, height, overlapping)
        return number_pores(graph, root, settings.minimum_voxels or 1, excluded)
    group = merge_to_markers(graph, np.where(snow_peaks, np.cumsum(snow_peaks), 0).astype(np.int32))
    return number_groups(graph, group, settings.minimum_voxels or 1, excluded)


def number_by_markers(
    marks: Marks, graph: BasinGraph, settings: PoreSettings, volume: Volume
) -> tuple[Numbering, dict[str, Any]]:
    """Merge basins into one pore per marker, see `Pores.remerge_to_markers`, and number them.

    Returns: the numbering, and the entry of the record about the merging.
    """
    group = merge_to_markers(graph, marks.lowest)
    excluded = excluded_basins(graph, settings, volume)
    numbering = number_groups(graph, group, settings.minimum_voxels or 1, excluded)
    return numbering, {"markers": int(np.unique(marks.lowest[marks.lowest > 0]).size)}


def merged_by(
    graph: BasinGraph, settings: PoreSettings, volume: Volume, snow_peaks: Mask | None = None
) -> dict[str, Any]:
    """Return the entry of the record about the merging."""
    if snow_peaks is None:
        return height_of(graph, settings.merge_height, volume.n_spatial).to_dict()
    return {"peaks": int(np.count_nonzero(snow_peaks))}


def excluded_basins(graph: BasinGraph, settings: PoreSettings, volume: Volume) -> Mask | None:
    """Return the basins at the faces of the volume if edge pores are excluded, else None."""
    if settings.edge_pores != "remove":
        return None
    at_face = reach_a_face(graph.bounds, volume)
    at_face[0] = False
    return at_face


class Columns(NamedTuple):
    """Columns of the tables of pores and throats, by name."""

    pores: dict[str, Array]
    throats: dict[str, Array]


def measured(
    graph: BasinGraph, numbering: Numbering, settings: PoreSettings, volume: Volume
) -> Pass[Columns]:
    """Measure pores and throats."""
    throats = throat_columns(graph, numbering, volume)
    yield 0.5
    least = settings.minimum_shape_voxels
    return Columns(pore_columns(graph, numbering, volume, throats, least), throats)


def whole_markers(given: Any) -> Array:
    """Return markers as integers: points rounded to voxels, a mask as connected components."""
    markers: Array = np.asarray(given)
    if markers.dtype == np.bool_:
        from scipy import ndimage

        components: Int32s
        components = ndimage.label(markers, np.ones((3,) * markers.ndim))[0]
        return components
    return np.rint(markers).astype(np.int64) if markers.dtype.kind == "f" else markers


class Marks(NamedTuple):
    """Positions of markers in the void."""

    lowest: Int32s  # number of the lowest marker in each basin, from 1; 0 if none
    voxels: int  # marked voxels
    in_solid: int  # marked voxels outside the void
    is_negative: bool  # whether any marker is below zero


def mark_basins(markers: Array, basins: Int32s, count: int) -> Marks:
    """Return the markers in `count` basins; `basins`: labels in the shape of the volume."""
    if markers.shape == basins.shape and markers.dtype.kind in "iu":
        place = np.nonzero(markers)
        number = markers[place]
    else:
        require_points(markers, basins.shape)
        place = tuple(markers.T)
        number = np.arange(1, len(markers) + 1)
    basin = basins[place]
    # labels can be any integers; their ranks fit int32
    rank = np.unique(number, return_inverse=True)[1].reshape(-1) + 1
    lowest = lowest_markers(rank.astype(np.int32), basin, count)
    in_solid = int(np.count_nonzero(basin == 0))
    return Marks(lowest, number.size, in_solid, bool((number < 0).any()))


def lowest_markers(number: Int32s, basin: Int32s, count: int) -> Int32s:
    """Return the lowest marker in each of `count` basins (count + 1,); 0 without one, and for 0.

    `number`, `basin`: (n,): of each marked voxel.
    """
    lowest = np.full(count + 1, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(lowest, basin, number)
    lowest[lowest == np.iinfo(np.int32).max] = 0
    lowest[0] = 0
    return lowest


def require_points(markers: Array, shape: tuple[int, ...]) -> None:
    """Raise InputError unless markers are points (n, axes) inside a volume of this shape."""
    if markers.ndim != 2 or markers.shape[1] != len(shape) or markers.dtype.kind not in "iu":
        raise InputError(
            f"Markers must be whole numbers: labels of shape {shape}, or points of shape "
            f"(n, {len(shape)}); got {markers.dtype} of shape {markers.shape}."
        )
    outside = ((markers < 0) | (markers >= shape)).any(axis=1)
    if outside.any():
        raise InputError(
            f"{int(outside.sum())} of {len(markers)} markers lie outside the volume of shape "
            f"{shape}; the first is at {tuple(markers[outside][0].tolist())}. Remove or move them."
        )


def require_in_void(voxels: int, in_solid: int, is_negative: bool) -> None:
    """Raise InputError unless markers exist, lie in the void and are numbered from 1."""
    if voxels == 0 or in_solid or is_negative:
        raise InputError(
            f"Markers must lie in the void and be numbered from 1; got {voxels} marked voxels, "
            f"{in_solid} of them outside the void. Move the markers, or change the threshold."
        )


def weighted_median(values: Float64s, weights: Int64s) -> float | None:
    """Return the median of values that each count as often as their weight; None without values.

    >>> weighted_median(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 2]))
    2.5
    """
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(weights[order], dtype=np.int64)
    # the two middle values are the same one if the sum of the weights is odd
    middle = np.array([(ends[-1] - 1) // 2, ends[-1] // 2])
    return float(values[order][np.searchsorted(ends, middle, "right")].mean())


def size_totals(table: dict[str, Array], edge_pores: str, least: int = RELIABLE) -> dict[str, Any]:
    """Return the percentiles of the equivalent diameter, and the number of pores that are cut.

    `table`: columns of the table of pores. `edge_pores`: setting of this name. `least`: voxels of
    the smallest pore for the median without small pores.
    """
    cut = table["touches_border"]
    counts = ~cut if edge_pores == "sizes" else np.ones(cut.size, np.bool_)
    diameter, voxels = table["equivalent_diameter"][counts], table["num_voxels"][counts]
    found: dict[str, Any] = {"cut_pores": int(np.count_nonzero(cut))}
    for end, weights in (("", np.ones(diameter.size)), ("_by_volume", voxels.astype(np.float64))):
        low, high = percentiles(diameter, weights, (10, 90)) if diameter.size else (None, None)
        found |= {f"diameter_10{end}": low, f"diameter_90{end}": high}
    large = diameter[voxels >= least]
    found["median_diameter_large"] = float(np.median(large)) if large.size else None
    found["median_diameter"] = float(np.median(diameter)) if diameter.size else None
    found["median_diameter_by_volume"] = weighted_median(diameter, voxels)
    return found


def small_totals(numbering: Numbering, graph: BasinGraph, settings: PoreSettings) -> dict[str, Any]:
    """Return the minimum pore size and the pores that it excluded, for the record.

    `settings`: with the number of voxels that was used, if it was automatic.
    """
    count, voxels = numbering.small
    void = int(graph.voxels[1:].sum())
    return {
        "minimum_voxels": settings.minimum_voxels,
        "small_pores": count,
        "small_pore_share": voxels / void if void else 0.0,
    }


def totals_of(
    columns: Columns, volume: Volume, void: Mapping[str, Any], edge_pores: str
) -> dict[str, Any]:
    """Return all totals of the record.

    `void`: totals that do not follow from the pores. `edge_pores`: setting of this name.
    """
    table = columns.pores
    # noise makes larger specks in some scans
    least = void.get("smallest_pore", RELIABLE)
    return {
        **void,
        **material_totals(void, table, volume),
        "porosity": int(table["num_voxels"].sum()) / void["sample_voxels"],
        "count": len(table["label"]),
        "tiny_pores": int(np.count_nonzero(table["num_voxels"] < least)),
        "throats": len(columns.throats["pore_1"]),
        **size_totals(table, edge_pores, least),
        "merge_height": void["merged_by"].get("merge_height"),
        "unit": volume.unit,
    }


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
        "pores_are": exterior.pores_are,
        "only_values": exterior.only_values and list(exterior.only_values),
        "exterior": exterior.treatment,
        "air_kept_share": exterior.kept,
        "exterior_share": share,
        "ball_radius": exterior.radius,
        "padding_value": exterior.padding,
    }
