"""Merging basins into pores, up a tree of ranges of slabs, and what every basin became."""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.cluster.contraction import Reduced, combine, contract, look_up
from hushpore.pores.graph import count_peaks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.pores.graph import Peaks

_REDUCED = tuple(each.name for each in fields(Reduced))

#: What slabs tell of the peaks of their basins; of those at their faces other slabs may know more.
_OF_PEAKS = ("inner", "inner_apart", "at_face", "at_face_squared", "at_face_apart")


def begin_merging(
    blocks: Blocks,
    slab: int,
    basin: npt.NDArray[np.int64],
    peak_squared_distance: npt.NDArray[np.float32],
    reaches: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    edges: dict[str, npt.NDArray[Any]],
) -> Report:
    """Store what there is to merge within a slab, and tell of its peaks which lie apart.

    `basin`, `peak_squared_distance`, `reaches`: sorted numbers of basins, their squared distance at
    the peak as far as it is known, and whether each reaches the first slice and the one after the
    last. `edges`: columns ``a``, ``b``, ``saddle``, ``contacts``.
    """
    a, b = edges["a"], edges["b"]
    is_face = reaches[0] | reaches[1]
    is_way = edges["saddle"] >= 0
    touches = np.isin(basin, np.concatenate([a[is_way], b[is_way]]))
    partial = is_face[np.searchsorted(basin, a)] & is_face[np.searchsorted(basin, b)]
    radius = np.sqrt(peak_squared_distance.astype(np.float64))
    contacts = edges["contacts"].sum(axis=1)
    groups = (basin, basin, radius, *reaches)
    whole = Reduced(*groups, a, b, a, b, edges["saddle"], contacts, partial)
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
    """Return what slabs tell of peaks as `hushpore.pores.graph.count_peaks` does of the whole."""
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
