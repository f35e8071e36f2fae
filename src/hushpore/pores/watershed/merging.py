"""Merging basins into pores, on their graph alone, and numbering these.

The edges are taken from the widest neck to the narrowest. Two basins become one pore where the
lower of their peaks rises above the neck by no more than a height h; radii are compared, in
voxels of the smallest spacing. The higher peak stands for the merged pore.

Peaks that are no farther from each other than from the solid may be taken for one, whatever h: each
lies in the ball about the other, and the neck between them counts as infinitely wide. Rough walls,
and noise that is left, part such peaks. SNOW trims them, and to Silin and Patzek the lower one is
a slave of the higher.

References
----------
P. Soille (2003), "Morphological Image Analysis", section 6.3.3 (h-maxima), Springer.
https://doi.org/10.1007/978-3-662-05088-0
D. Silin and T. Patzek (2006), "Pore space morphology analysis using maximal inscribed spheres".
https://doi.org/10.1016/j.physa.2006.04.048
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import readable_percent
from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.watershed.graph import BasinGraph

#: The height that is found by itself: the least up to one typical radius, the most from another on,
#: and straight between them, all in voxels; and the nearer to the most, the more pores lie apart,
#: up to this share of them. Where small pores open into each other their windows are hardly
#: narrower than they are; where pores lie apart, two basins that touch are one.
LEAST, MOST = 0.1, 0.5
SMALL, LARGE = 3.25, 5.0
APART = 0.5


@dataclass(frozen=True)
class ChosenHeight:
    """A merge height, and what it was chosen by.

    `h`: in voxels of the smallest spacing. `radius`: the typical radius of the pores, likewise;
    None where the height was given. `apart`: share of the pores, by volume, that touch no other.
    """

    merge_height: float
    radius: float | None = None
    apart: float = 0.0

    @property
    def reason(self) -> str:
        """Why it is that, in a sentence; empty where it was given."""
        if self.radius is None:
            return ""
        h = float(f"{self.merge_height:.2g}")
        between = f", between {LEAST:g} for small pores that touch and {MOST:g} for the others"
        why = {LEAST: ", its least", MOST: ", its most"}.get(h, between)
        return (
            f"Auto takes {h:g} voxels{why}: the typical radius is {self.radius:.3g} voxels, and "
            f"{readable_percent(self.apart)} of the pores, by volume, touch no other."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what the record says of the merging."""
        if self.radius is None:
            return {"merge_height": self.merge_height}
        found = {"typical_radius": self.radius, "apart_share": self.apart}
        return {"merge_height": self.merge_height, **found, "why": self.reason}


def find_height(
    h: str | float,
    squared_distances: npt.NDArray[np.float32],
    counts: npt.NDArray[np.int64],
    apart: npt.NDArray[np.int64],
    n_spatial: int,
) -> ChosenHeight:
    """Return the merge height that is meant by a setting.

    It depends on how many basins have which distance at their peak, and how many of these touch no
    other, and not on where they are: blocks of a cluster add up their counts, and find the same.

    `h`: a height in voxels, or ``"auto"``: by the typical radius, the median of the distances at
    the peaks of basins, weighted by the volume (in 2D the area) of balls as large; and by the share
    of that volume in basins that touch no other; before any merges, and of all that there are.
    `squared_distances`: (n,), float32: that basins have at their peak, sorted, each once. `counts`,
    `apart`: (n,), int64: how many, and how many of these touch no other.
    """
    if not isinstance(h, str):
        return ChosenHeight(h)
    radius = np.sqrt(squared_distances.astype(np.float64))
    size = radius**n_spatial
    share = np.cumsum(counts * size)
    if not share.size or not np.isfinite(share[-1]):
        # there is no pore, or no solid
        return ChosenHeight(MOST)
    typical = float(radius[np.searchsorted(share, share[-1] / 2)])
    height = float(np.interp(typical, (SMALL, LARGE), (LEAST, MOST)))
    lies_apart = float((apart * size).sum() / share[-1])
    height = float(np.interp(lies_apart, (0, APART), (height, MOST)))
    return ChosenHeight(height, typical, lies_apart)


def height_of(graph: BasinGraph, h: str | float, n_spatial: int) -> ChosenHeight:
    """Return the merge height that is meant by a setting, for basins; see `find_height`."""
    return find_height(h, *graph.peaks, n_spatial)


@dataclass(frozen=True, eq=False)
class Numbering:
    """Which pore each basin belongs to."""

    # (basins + 1,), int32: label of each basin's pore; 0 for solid and for pores left out
    label_of: npt.NDArray[np.int32]
    # (pores,), int32: the basin with the highest peak of each pore, in the order of labels
    root: npt.NDArray[np.int32]


def find_near(
    peak: npt.NDArray[np.int64],
    squared_distance: npt.NDArray[np.float32],
    a: npt.NDArray[np.integer[Any]],
    b: npt.NDArray[np.integer[Any]],
    shape: Sequence[int],
    spacing: Sequence[float],
) -> npt.NDArray[np.bool_]:
    """Return which pairs of peaks are no farther from each other than from the solid.

    `peak`, `squared_distance`: (n,), int64 and float32: flat index in a volume of this shape, and
    squared distance from the solid in squared voxels of the smallest spacing. `a`, `b`: (pairs,),
    integers: rows of both. `spacing`: voxel size along each axis.
    Returns: (pairs,), bool.
    """
    near = np.empty(a.size, np.bool_)
    sides = np.array(shape, np.int64)
    _find_near(peak, squared_distance, a, b, sides, np.array(spacing) / min(spacing), near)
    return near


def merge_by_height(
    graph: BasinGraph, h: float, near: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.int32]:
    """Merge basins that stand out from each other by at most `h`.

    `graph`: basins 1 to n and their edges. `h`: merge height in voxels of the smallest spacing,
    compared with radii. `near`: (edges,), bool: which join basins that are one whatever `h`.
    Returns: (n + 1,), int32: for each basin, the basin that stands for its pore; 0 for 0.

    Among equally wide necks those with more contacts come first, then those of the lower basins,
    so that the result is one and the same whatever order the edges were found in.
    """
    radius = np.sqrt(graph.peak_squared_distance.astype(np.float64))
    neck = np.sqrt(np.maximum(graph.saddle, 0).astype(np.float64))
    order = graph.by_neck
    if near is not None:
        neck[near] = np.inf
        order = np.concatenate([order[near[order]], order[~near[order]]])
    parent = np.arange(radius.size, dtype=np.int32)
    _merge(parent, radius, graph.a, graph.b, neck, order, float(h))
    return parent


def merge_to_markers(graph: BasinGraph, marked: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Merge basins so that every pore holds one marker: a watershed flooded from markers.

    `graph`: basins 1 to n and their edges. `marked`: (n + 1,), int32: number of the marker in each
    basin, 0 where there is none.
    Returns: (n + 1,), int32: number of the marker whose pore each basin belongs to; 0 where no
    marker can be reached.

    References
    ----------
    F. Meyer (1994), "Minimum spanning forests for morphological segmentation".
    https://doi.org/10.1007/978-94-011-1040-2_11
    """
    found = marked.astype(np.int32)
    parent = np.arange(marked.size, dtype=np.int32)
    _spread(parent, found, graph.a, graph.b, graph.by_neck)
    return found


def number_pores(
    graph: BasinGraph,
    root_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None,
) -> Numbering:
    """Number the pores from 1, in the order in which their peaks lie in memory.

    `root_of`: (n + 1,), int32: the basin that stands for the pore of each basin. `minimum_voxels`:
    pores of fewer voxels get label 0. `left_out`: (n + 1,), bool: pores that hold one of these
    basins get label 0.
    """
    # basins are numbered in that order, and so are their roots
    return Numbering(*_number(graph, root_of, minimum_voxels, left_out))


def number_groups(
    graph: BasinGraph,
    group_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None,
) -> Numbering:
    """Number the pores from 1, in the order of the groups that their basins were given.

    `group_of`: (n + 1,), int32: the group of each basin, from 1; 0 for what belongs to none. The
    others as for `number_pores`.
    """
    label_of, kept = _number(graph, group_of, minimum_voxels, left_out)
    # of each group the highest peak, and of equal ones the first
    order = np.lexsort((-graph.peak_squared_distance, group_of))
    first = order[np.searchsorted(group_of[order], kept)]
    return Numbering(label_of, first.astype(np.int32))


def _number(
    graph: BasinGraph,
    group_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the label of each basin, and which groups got one, in the order of labels."""
    voxels = np.bincount(group_of, graph.voxels)
    voxels[0] = -1
    if left_out is not None:
        voxels[group_of[left_out]] = -1
    kept = np.flatnonzero(voxels >= minimum_voxels)
    label = np.zeros(voxels.size, np.int32)
    label[kept] = np.arange(1, kept.size + 1)
    return label[group_of], kept.astype(np.int32)


@kernel
def _find_near(
    peak: npt.NDArray[np.int64],
    squared_distance: npt.NDArray[np.float32],
    a: npt.NDArray[np.integer[Any]],
    b: npt.NDArray[np.integer[Any]],
    shape: npt.NDArray[np.int64],
    step: npt.NDArray[np.float64],
    near: npt.NDArray[np.bool_],
) -> None:
    for i in range(a.size):
        first, second = peak[a[i]], peak[b[i]]
        squared = 0.0
        for axis in range(shape.size - 1, -1, -1):
            along = step[axis] * (first % shape[axis] - second % shape[axis])
            squared += along * along
            first //= shape[axis]
            second //= shape[axis]
        near[i] = squared <= min(squared_distance[a[i]], squared_distance[b[i]])


@kernel
def _merge(
    parent: npt.NDArray[np.int32],
    radius: npt.NDArray[np.float64],
    a: npt.NDArray[np.int32],
    b: npt.NDArray[np.int32],
    neck: npt.NDArray[np.float64],
    order: npt.NDArray[np.int64],
    h: float,
) -> None:
    for edge in order:
        high = _root(parent, a[edge])
        low = _root(parent, b[edge])
        if high == low:
            continue
        if radius[low] > radius[high] or (radius[low] == radius[high] and low < high):
            high, low = low, high
        if radius[low] - neck[edge] <= h:
            parent[low] = high
    for i in range(parent.size):
        parent[i] = _root(parent, i)


@kernel
def _spread(
    parent: npt.NDArray[np.int32],
    marked: npt.NDArray[np.int32],
    a: npt.NDArray[np.int32],
    b: npt.NDArray[np.int32],
    order: npt.NDArray[np.int64],
) -> None:
    for edge in order:
        first = _root(parent, a[edge])
        second = _root(parent, b[edge])
        if first == second or (marked[first] != 0 and marked[second] != 0):
            continue
        if marked[first] == 0:
            first, second = second, first
        parent[second] = first
    for i in range(marked.size):
        marked[i] = marked[_root(parent, i)]


@inlined
def _root(parent: npt.NDArray[np.int32], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
