"""Merging basins into pores, up a tree of ranges of slabs, and what every basin became."""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.cluster.contraction import Reduced, combine, contract, look_up
from hushpore.pores.watershed.graph import count_peaks
from hushpore.pores.watershed.merging import find_near

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.pores.watershed.graph import Peaks

_REDUCED = tuple(each.name for each in fields(Reduced))

#: What slabs tell of the peaks of their basins; of those at their faces other slabs may know more.
_OF_PEAKS = ("inner", "inner_apart", "at_face", "at_face_squared", "at_face_apart")


def begin_merging(
    blocks: Blocks,
    slab: int,
    basin: npt.NDArray[np.int64],
    reaches: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    table: dict[str, npt.NDArray[Any]],
) -> Report:
    """Store what there is to merge within a slab, and tell of its peaks which lie apart.

    `basin`, `reaches`: sorted numbers of basins, and whether each reaches the first slice and the
    one after the last. `table`: columns ``peak`` and ``peak_squared_distance`` of these, and ``a``,
    ``b``, ``saddle``, ``contacts`` of their edges.
    """
    a, b, saddle = table["a"], table["b"], table["saddle"]
    peak_squared_distance = table["peak_squared_distance"]
    is_face = reaches[0] | reaches[1]
    is_way = saddle >= 0
    touches = np.isin(basin, np.concatenate([a[is_way], b[is_way]]))
    rows = np.searchsorted(basin, a), np.searchsorted(basin, b)
    partial = is_face[rows[0]] & is_face[rows[1]]
    settings, volume = blocks.plan.settings, blocks.plan.volume
    if settings.joins_near_peaks:
        peaks = table["peak"], peak_squared_distance
        near = find_near(*peaks, *rows, volume.shape, volume.spacing)
        saddle = np.where(near & is_way, np.float32(np.inf), saddle)
    radius = np.sqrt(peak_squared_distance.astype(np.float64))
    contacts = table["contacts"].sum(axis=1)
    groups = (basin, basin, radius, *reaches)
    whole = Reduced(*groups, a, b, a, b, saddle, contacts, partial)
    _save(blocks, "undecided", slab, whole)
    return {
        "basins": basin.size,
        "edges": a.size,
        "inner": peak_squared_distance[~is_face],
        "inner_apart": ~touches[~is_face],
        "at_face": basin[is_face],
        "at_face_squared": peak_squared_distance[is_face],
        "at_face_apart": ~touches[is_face],
    }


def peaks_of(reports: Sequence[Report]) -> Peaks:
    """Do as `hushpore.pores.watershed.graph.count_peaks` does, of what slabs tell of peaks."""
    told = {name: np.concatenate([each[name] for each in reports]) for name in _OF_PEAKS}
    number, row = np.unique(told["at_face"], return_inverse=True)
    squared = np.zeros(number.size, np.float32)
    np.maximum.at(squared, row, told["at_face_squared"])
    apart = np.ones(number.size, np.bool_)
    apart[row[~told["at_face_apart"]]] = False
    return count_peaks(
        np.concatenate([told["inner"], squared]), np.concatenate([told["inner_apart"], apart])
    )


def merge_slab(
    blocks: Blocks, slab: int, h: float, marked: npt.NDArray[np.int64] | None, purpose: str
) -> Report:
    """Merge what can be merged within a slab.

    `h`: merge height in voxels. `marked`: numbers of basins to merge to, whatever the height.
    `purpose`: what tells this merging from others.
    """
    whole = Reduced(*blocks.load("undecided", slab, *_REDUCED))
    if marked is not None:
        radius = np.where(np.isin(whole.group, marked), np.inf, -np.inf)
        whole = dataclasses.replace(whole, radius=radius)
    return {"open_bytes": _decide(blocks, purpose, 0, slab, whole, h)}


def union_ranges(blocks: Blocks, number: int, level: int, h: float, purpose: str) -> Report:
    """Merge what two ranges of slabs left open, `number` and the next one of the level below."""
    below = f"{purpose}-open-{level - 1}"
    parts = [Reduced(*blocks.load(below, 2 * number, *_REDUCED))]
    if (blocks.folder / f"{below}-{2 * number + 1}.arrays").is_file():
        parts.append(Reduced(*blocks.load(below, 2 * number + 1, *_REDUCED)))
    whole = combine(*parts) if len(parts) == 2 else parts[0]
    return {
        "open_bytes": _decide(blocks, purpose, level, number, whole, h),
        "received_bytes": sum(part.nbytes for part in parts),
        "groups": whole.group.size,
        "edges": whole.a.size,
    }


def roots(
    blocks: Blocks, slab: int, levels: int, numbers: npt.NDArray[np.int64], purpose: str
) -> npt.NDArray[np.int64]:
    """Return the basin that stands for the pore of each basin of a slab, 0 for 0."""
    names = ("keys", "values")
    maps = [blocks.load(f"{purpose}-map-{level}", slab >> level, *names) for level in range(levels)]
    return look_up(numbers, maps)


def _decide(blocks: Blocks, purpose: str, level: int, number: int, whole: Reduced, h: float) -> int:
    left, becomes = contract(whole, h)
    changed = becomes != whole.group
    arrays = {"keys": whole.group[changed], "values": becomes[changed]}
    blocks.save(f"{purpose}-map-{level}", number, **arrays)
    _save(blocks, f"{purpose}-open-{level}", number, left)
    return left.nbytes


def _save(blocks: Blocks, name: str, number: int, groups: Reduced) -> None:
    blocks.save(name, number, **{column: getattr(groups, column) for column in _REDUCED})
