"""Merging basins into pores, up a tree of ranges of slabs, and what every basin became.

It stays small: what can be decided within a range of slabs is, and the rest goes up.

One machine goes through all edges between basins, from the widest neck to the narrowest, and merges
two where the lower of their peaks rises above the neck by no more than h
(`hushpore.pores.watershed.merging`). A range of slabs knows of a basin that does not reach its
faces all that will ever be known, and can go through its edges in the same order. Two groups of
basins are then

- both *closed*, all of their basins known: decided as on one machine;
- one closed (A) and one open (B). If A rises above the neck by no more than h, they merge, whatever
  B turns out to be: the lower of the two can rise no higher. If A rises higher, and B by what is
  known of it does too, they never merge, since peaks only rise and necks only narrow. Else it
  depends on what lies beyond the faces: the edge is kept, and A is open from here on;
- both open: never, if both are known to rise higher; else the edge is kept.

What is open goes up, with the edges that are kept, and two ranges side by side become one, in which
fewer reach a face. That A and B are one from the beginning, and not from that neck on, changes no
other decision: let A rise above the neck e by no more than h. An edge f before e (its neck is no
narrower) that leads from A elsewhere was decided against, for good, and a higher A decides no
otherwise. One that leads from B to C merged them if B or C rises above f by no more than h. With A
in B that can differ only where A is the higher; but A rises above e by no more than h, so above f
too, and so did B: they merge both with A and without. After e they are one anyway.

The comparisons hold as they are rounded, since rounding keeps the order of differences.

A merging from markers is the same with peaks of infinite height where there is a marker, and of
none elsewhere.

The peaks of slabs by the rule of SNOW, of which some lie in the middle between slabs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import kernel
from hushpore.pores.watershed.graph import count_peaks, number_keys
from hushpore.pores.watershed.merging import find_overlapping
from hushpore.pores.watershed.snow import find_in_slab

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.pores.watershed.graph import Peaks

#: Columns of edges beside the groups that they join.
_OF_EDGES = ("a", "b", "saddle", "contacts", "partial")


@dataclass(frozen=True, eq=False)
class Reduced:
    """What a range of slabs leaves undecided: groups of basins, and edges between them."""

    # (n,), int64: sorted numbers of groups; where a basin of it reaches a face that basin's
    group: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]  # (n,), int64: the highest basin of a group, as far as it is known
    radius: npt.NDArray[np.float64]  # (n,), float64: the distance at its peak
    # (n,), bool: whether the basin reaches the first face, and the last one
    low: npt.NDArray[np.bool_]
    high: npt.NDArray[np.bool_]
    # (edges,), int64: groups
    u: npt.NDArray[np.int64]
    v: npt.NDArray[np.int64]
    # (edges,), int64: the basins that touch, ``a < b``
    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    # (edges,), float32 and int64: squared distance at the neck; contacts of voxels
    saddle: npt.NDArray[np.float32]
    contacts: npt.NDArray[np.int64]
    # (edges,), bool: whether there may be more of an edge elsewhere: both basins reach a face
    partial: npt.NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(getattr(self, each.name).nbytes for each in fields(self))


def contract(whole: Reduced, h: float) -> tuple[Reduced, npt.NDArray[np.int64]]:
    """Decide what can be decided.

    `whole`: of a range of slabs, all that is not decided. `h`: merge height in voxels.
    Returns: what is still open; (n,), int64: for each group the group of `left` that it belongs to;
    or where that is decided for good, the root of its pore.
    """
    is_face = whole.low | whole.high
    ready = np.flatnonzero(~whole.partial & (whole.saddle >= 0))
    by_rank = (whole.b[ready], whole.a[ready], -whole.contacts[ready], -whole.saddle[ready])
    order = ready[np.lexsort(by_rank)]
    parent = np.arange(whole.group.size)
    radius, root, opened = whole.radius.copy(), whole.root.copy(), is_face.copy()
    # of a merged group the one of its groups that reaches a face
    anchor = np.where(is_face, parent, -1)
    neck = np.sqrt(whole.saddle[order].astype(np.float64))
    u, v = (np.searchsorted(whole.group, ends[order]) for ends in (whole.u, whole.v))
    kept = np.zeros(order.size, np.bool_)
    _contract(radius, root, opened, anchor, parent, u, v, neck, float(h), kept)
    own = parent == np.arange(parent.size)
    anchored = anchor >= 0
    name = np.where(anchored, whole.group[anchor], root)
    becomes = np.where(opened, name, root)[parent]
    stays = np.flatnonzero(own & opened)
    stays = stays[np.argsort(name[stays])]
    low, high = (np.where(anchored, face[anchor], False)[stays] for face in (whole.low, whole.high))
    picked = np.concatenate(
        [_first_between(whole, order[kept], becomes), np.flatnonzero(whole.partial)]
    )
    u, v = (becomes[np.searchsorted(whole.group, each[picked])] for each in (whole.u, whole.v))
    edges = {column: getattr(whole, column)[picked] for column in _OF_EDGES}
    left = Reduced(name[stays], root[stays], radius[stays], low, high, u, v, **edges)
    return left, becomes


def combine(first: Reduced, second: Reduced) -> Reduced:
    """Put two ranges together, the second of which follows on the first; nothing is decided yet."""
    both = (first, second)
    group, row = np.unique(np.concatenate([each.group for each in both]), return_inverse=True)
    root, radius = (
        np.concatenate([getattr(each, name) for each in both]) for name in ("root", "radius")
    )
    # of what both know the higher peak, and of equal ones the first
    order = np.lexsort((root, -radius, row))
    best = order[np.searchsorted(row[order], np.arange(group.size))]
    low, high = np.zeros((2, group.size), np.bool_)
    low[np.searchsorted(group, first.group)] = first.low
    high[np.searchsorted(group, second.group)] = second.high
    is_face = low | high
    edges = {
        name: np.concatenate([getattr(each, name) for each in both])
        for name in ("u", "v", *_OF_EDGES)
    }
    partial = edges.pop("partial")
    whole = {name: column[~partial] for name, column in edges.items()}
    some = {name: column[partial] for name, column in edges.items()}
    # parts of the same edge
    key, which = number_keys((some["a"] << 32) | some["b"])
    a, b = key >> 32, key & 0xFFFFFFFF
    saddle, contacts = np.full(key.size, -1, np.float32), np.zeros(key.size, np.int64)
    np.maximum.at(saddle, which, some["saddle"])
    np.add.at(contacts, which, some["contacts"])
    still = is_face[np.searchsorted(group, a)] & is_face[np.searchsorted(group, b)]
    joined = {"u": a, "v": b, "a": a, "b": b, "saddle": saddle, "contacts": contacts}
    columns = {name: np.concatenate([whole[name], joined[name]]) for name in joined}
    waits = np.concatenate([np.zeros(whole["u"].size, np.bool_), still])
    return Reduced(group, root[best], radius[best], low, high, **columns, partial=waits)


def look_up(
    numbers: npt.NDArray[np.int64],
    maps: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
) -> npt.NDArray[np.int64]:
    """Replace numbers by what they become in one map, sorted keys and values, after another."""
    for keys, values in maps:
        if keys.size:
            place = np.minimum(np.searchsorted(keys, numbers), keys.size - 1)
            numbers = np.where(keys[place] == numbers, values[place], numbers)
    return numbers


def _first_between(
    whole: Reduced, edges: npt.NDArray[np.int64], becomes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return of several edges between the same groups, in the order of their ranks, the first."""
    ends = np.stack(
        [becomes[np.searchsorted(whole.group, each[edges])] for each in (whole.u, whole.v)]
    )
    ends.sort(axis=0)
    order = np.lexsort((ends[1], ends[0]))
    changes = (np.diff(ends[:, order], axis=1) != 0).any(axis=0)
    # sorting is stable: the first of a pair has the first rank
    first: npt.NDArray[np.int64] = edges[order[np.concatenate([[True], changes])[: edges.size]]]
    return first


@kernel
def _contract(
    radius: npt.NDArray[np.float64],
    root: npt.NDArray[np.int64],
    opened: npt.NDArray[np.bool_],
    anchor: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
    u: npt.NDArray[np.int64],
    v: npt.NDArray[np.int64],
    neck: npt.NDArray[np.float64],
    h: float,
    kept: npt.NDArray[np.bool_],
) -> None:
    for edge in range(u.size):
        a = _root(parent, u[edge])
        b = _root(parent, v[edge])
        if a == b:
            continue
        if opened[a]:
            a, b = b, a
        # if one of them is open, b is
        a_merges = radius[a] - neck[edge] <= h
        b_merges = radius[b] - neck[edge] <= h
        if not (a_merges or b_merges):
            continue
        if opened[a] or (opened[b] and not a_merges):
            kept[edge] = True
            opened[a] = True
            continue
        if radius[a] > radius[b] or (radius[a] == radius[b] and root[a] < root[b]):
            radius[b] = radius[a]
            root[b] = root[a]
        parent[a] = b
    for i in range(parent.size):
        parent[i] = _root(parent, i)


# the same as in `hushpore.pores.watershed.merging`: numba takes up a kept kernel by the date of its
# own file, and would not notice a change there
@kernel
def _root(parent: npt.NDArray[np.int64], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


# ---- tasks

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
    if settings.merges_overlapping:
        peaks = table["peak"], peak_squared_distance
        near = find_overlapping(*peaks, *rows, volume.shape, volume.spacing)
        saddle = np.where(near & is_way, np.float32(np.inf), saddle)
    radius = np.sqrt(peak_squared_distance.astype(np.float64))
    contacts = table["contacts"].sum(axis=1)
    low, high = reaches
    whole = Reduced(basin, basin, radius, low, high, a, b, a, b, saddle, contacts, partial)
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


# ---- peaks by SNOW


class _Distance:
    """The distance in all slabs, as a stack."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        return self._blocks.read("distance", first, last)


def find_slab_peaks(
    blocks: Blocks, slab: int, basins_before: Sequence[int], levels: int, purpose: str
) -> Report:
    """Find the peaks of a slab, and the basins in which they lie.

    `basins_before`: how many basins lie in the slabs before each slab; the last is the sum of all.
    `levels`, `purpose`: of the merging at height 0, which tells how high each basin leads.
    """
    numbers = blocks.load("numbers", slab, "numbers")
    root = roots(blocks, slab, levels, numbers, purpose)
    level = np.full(root.size, -1, np.float32)
    home = np.searchsorted(basins_before, root) - 1
    for other in np.unique(home[1:]):
        own = np.flatnonzero(home == other)
        squared = blocks.load("slab_basins", int(other), "peak_squared_distance")
        level[own] = squared[root[own] - basins_before[other]]
    first, last = blocks.plan.slabs[slab]
    basins = blocks.read("basins", first, last)
    place, owner = find_in_slab(_Distance(blocks), first, basins, level, blocks.threads)
    return {"place": place, "basin": numbers[owner]}


def look_up_widths(blocks: Blocks, slab: int, place: npt.NDArray[np.int64]) -> Report:
    """Look up the squared distance at voxels (m, 3) of a slab."""
    first, last = blocks.plan.slabs[slab]
    z, y, x = place.T
    return {"squared": blocks.read("distance", first, last)[z - first, y, x]}
