"""Merging basins into pores, up a tree of ranges of slabs, and what every basin became."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.cluster.contraction import Reduced, combine, contract, look_up

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.cluster.blocks import Blocks, Report

_REDUCED = tuple(each.name for each in fields(Reduced))


def begin_merging(
    blocks: Blocks,
    slab: int,
    basin: npt.NDArray[np.int64],
    peak_squared_distance: npt.NDArray[np.float32],
    reaches: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    edges: dict[str, npt.NDArray[Any]],
    h: float,
) -> int:
    """Merge what can be merged within a slab; returns the bytes of what is left open.

    `basin`, `peak_squared_distance`, `reaches`: sorted numbers of basins, their squared distance at
    the peak as far as it is known, and whether each reaches the first slice and the one after the
    last. `edges`: columns ``a``, ``b``, ``saddle``, ``contacts``. `h`: merge height in voxels.
    """
    a, b = edges["a"], edges["b"]
    is_face = reaches[0] | reaches[1]
    partial = is_face[np.searchsorted(basin, a)] & is_face[np.searchsorted(basin, b)]
    radius = np.sqrt(peak_squared_distance.astype(np.float64))
    contacts = edges["contacts"].sum(axis=1)
    groups = (basin, basin, radius, *reaches)
    whole = Reduced(*groups, a, b, a, b, edges["saddle"], contacts, partial)
    return _decide(blocks, 0, slab, whole, h)


def union_ranges(blocks: Blocks, number: int, level: int, h: float) -> Report:
    """Merge what two ranges of slabs left open, `number` and the next one of the level below."""
    parts = [_open(blocks, level - 1, 2 * number)]
    if (blocks.folder / f"open-{level - 1}-{2 * number + 1}.arrays").is_file():
        parts.append(_open(blocks, level - 1, 2 * number + 1))
    whole = combine(*parts) if len(parts) == 2 else parts[0]
    return {
        "open_bytes": _decide(blocks, level, number, whole, h),
        "received_bytes": sum(part.nbytes for part in parts),
        "groups": whole.group.size,
        "edges": whole.a.size,
    }


def roots(
    blocks: Blocks, slab: int, levels: int, numbers: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the basin that stands for the pore of each basin of a slab, 0 for 0."""
    names = ("keys", "values")
    maps = [blocks.load(f"map-{level}", slab >> level, *names) for level in range(levels)]
    return look_up(numbers, maps)


def _decide(blocks: Blocks, level: int, number: int, whole: Reduced, h: float) -> int:
    left, becomes = contract(whole, h)
    changed = becomes != whole.group
    blocks.save(f"map-{level}", number, keys=whole.group[changed], values=becomes[changed])
    blocks.save(f"open-{level}", number, **{name: getattr(left, name) for name in _REDUCED})
    return left.nbytes


def _open(blocks: Blocks, level: int, number: int) -> Reduced:
    return Reduced(*blocks.load(f"open-{level}", number, *_REDUCED))
