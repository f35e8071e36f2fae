"""Merging of watershed basins into pores, on their graph, and numbering of the pores.

Edges are processed from the widest neck to the narrowest. Two basins are merged if the lower of
their peaks rises above the neck by at most the merge height h; radii are compared, in voxels of the
smallest spacing. The higher peak represents the merged pore.

Basins with overlapping maximal balls, whose peaks are no farther from each other than from the
solid, can be merged whatever h: the neck between them counts as infinitely wide. Rough walls and
residual noise create such peaks. SNOW trims them; Silin and Patzek call the smaller ball the slave
of the larger.

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

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Int64s, Mask
    from hushpore.pores.watershed.graph import BasinGraph

#: Automatic merge height, in voxels: `LEAST` up to a typical pore radius of `SMALL`, `MOST` from
#: `LARGE` on, and linear in between; raised towards `MOST` by the share of isolated pores, which
#: reaches it at `ISOLATED`. Windows between small connected pores are hardly narrower than the
#: pores; where most pores are isolated, two basins that touch are usually one pore.
LEAST, MOST = 0.1, 0.5
SMALL, LARGE = 3.25, 5.0
ISOLATED = 0.5


@dataclass(frozen=True)
class ChosenHeight:
    """A merge height, and the figures that it was chosen from.

    `merge_height`: in voxels of the smallest spacing. `radius`: typical pore radius, in the same
    unit; None if the height was given. `isolated`: share of the pore volume in isolated pores.
    """

    merge_height: float
    radius: float | None = None
    isolated: float = 0.0

    @property
    def reason(self) -> str:
        """Sentence on why this height was chosen; empty if it was given."""
        if self.radius is None:
            return ""
        h = float(f"{self.merge_height:.2g}")
        ends = {LEAST: ", its minimum", MOST: ", its maximum"}
        return (
            f"Auto used {h:g} voxels{ends.get(h, '')} (typical pore radius {self.radius:.3g} "
            f"voxels; {readable_percent(self.isolated)} of the pore volume is isolated)."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries of the record about the merging."""
        if self.radius is None:
            return {"merge_height": self.merge_height}
        found = {"typical_radius": self.radius, "isolated_share": self.isolated}
        return {"merge_height": self.merge_height, **found, "why": self.reason}


def find_height(
    h: str | float, squared_distances: Float32s, counts: Int64s, isolated: Int64s, n_spatial: int
) -> ChosenHeight:
    """Return the merge height for a setting and the peaks of all basins.

    It depends only on the counts of basins by peak distance, so the blocks of a cluster can add up
    their counts and get the same height.

    `h`: a height in voxels, or ``"auto"``: chosen from the typical pore radius (median peak
    distance of the basins before merging, weighted by the volume, in 2D area, of balls of that
    radius) and from the share of that volume in isolated basins. `squared_distances`: (n,),
    float32: distinct squared peak distances, ascending. `counts`, `isolated`: (n,), int64: number
    of basins with each, and of isolated basins among them.
    """
    if not isinstance(h, str):
        return ChosenHeight(h)
    radius = np.sqrt(squared_distances.astype(np.float64))
    size = radius**n_spatial
    share = np.cumsum(counts * size)
    if not share.size or not np.isfinite(share[-1]):
        # no pores, or no solid
        return ChosenHeight(MOST)
    typical = float(radius[np.searchsorted(share, share[-1] / 2)])
    height = float(np.interp(typical, (SMALL, LARGE), (LEAST, MOST)))
    alone = float((isolated * size).sum() / share[-1])
    height = float(np.interp(alone, (0, ISOLATED), (height, MOST)))
    return ChosenHeight(height, typical, alone)


def height_of(graph: BasinGraph, h: str | float, n_spatial: int) -> ChosenHeight:
    """Return the merge height for a setting and the basins of a graph; see `find_height`."""
    return find_height(h, *graph.peaks, n_spatial)


@dataclass(frozen=True, eq=False)
class Numbering:
    """Assignment of basins to pores."""

    # (basins + 1,), int32: label of each basin's pore; 0 for solid and excluded pores
    label_of: Int32s
    # (pores,), int32: basin with the highest peak of each pore, in the order of labels
    root: Int32s
    # (pores + 1,), int32: labels of corrected pores, from 0 up, if they have gaps; `label_of` then
    # counts pores
    gapped: Int32s | None = None
    # number and voxels of the pores below the minimum size
    small: tuple[int, int] = (0, 0)

    @property
    def names(self) -> Int32s:
        """Label of each pore in the order of labels; 0 first, for solid and excluded pores."""
        return np.arange(self.root.size + 1, dtype=np.int32) if self.gapped is None else self.gapped

    @property
    def labels_of(self) -> Int32s:
        """Label of each basin in the volume of labels (basins + 1,); 0 for excluded pores."""
        return self.label_of if self.gapped is None else self.gapped[self.label_of]


def find_overlapping(
    peak: Int64s,
    squared_distance: Float32s,
    a: npt.NDArray[np.integer[Any]],
    b: npt.NDArray[np.integer[Any]],
    shape: Sequence[int],
    spacing: Sequence[float],
) -> Mask:
    """Return which pairs of peaks are no farther from each other than from the solid.

    `peak`, `squared_distance`: (n,), int64 and float32: flat index in a volume of this shape, and
    squared distance to the solid in squared voxels of the smallest spacing. `a`, `b`: (pairs,),
    integers: rows of the two peaks of each pair. `spacing`: voxel size along each axis.
    Returns: (pairs,), bool.
    """
    overlaps = np.empty(a.size, np.bool_)
    sides, steps = np.array(shape, np.int64), np.array(spacing) / min(spacing)
    _find_overlapping(peak, squared_distance, a, b, sides, steps, overlaps)
    return overlaps


def merge_by_height(graph: BasinGraph, h: float, overlapping: Mask | None = None) -> Int32s:
    """Merge basins of which the lower peak rises above the neck by at most `h`.

    `graph`: basins 1 to n and their edges. `h`: merge height in voxels of the smallest spacing,
    compared with radii. `overlapping`: (edges,), bool: edges whose basins are merged whatever `h`.
    Returns: (n + 1,), int32: for each basin, the basin that represents its pore; 0 for 0.

    Among equally wide necks those with more contacts come first, then those of lower basin numbers,
    so that the result does not depend on the order in which edges were found.
    """
    radius = np.sqrt(graph.peak_squared_distance.astype(np.float64))
    neck = np.sqrt(np.maximum(graph.saddle, 0).astype(np.float64))
    order = graph.by_neck
    if overlapping is not None:
        neck[overlapping] = np.inf
        order = np.concatenate([order[overlapping[order]], order[~overlapping[order]]])
    parent = np.arange(radius.size, dtype=np.int32)
    _merge(parent, radius, graph.a, graph.b, neck, order, float(h))
    return parent


def merge_to_markers(graph: BasinGraph, marked: Int32s) -> Int32s:
    """Merge basins into one pore for each marker: a watershed flooded from markers.

    `graph`: basins 1 to n and their edges. `marked`: (n + 1,), int32: number of the marker in each
    basin; 0 if it has none.
    Returns: (n + 1,), int32: number of the marker whose pore each basin belongs to; 0 if no
    marker reaches it.

    References
    ----------
    F. Meyer (1994), "Minimum spanning forests for morphological segmentation".
    https://doi.org/10.1007/978-94-011-1040-2_11
    """
    return flood(marked, graph.a, graph.b, graph.by_neck)


def flood(marked: Int32s, a: Int32s, b: Int32s, order: Int64s) -> Int32s:
    """Return the marker that reaches each node of a graph along its edges.

    `marked`: (nodes,), int32: number of the marker in each node; 0 if it has none. `a`, `b`:
    (edges,), int32: the nodes of each edge. `order`: (edges,), int64: edges from the widest to the
    narrowest.
    Returns: (nodes,), int32; 0 if no marker reaches the node.
    """
    found = marked.astype(np.int32)
    _spread(np.arange(marked.size, dtype=np.int32), found, a, b, order)
    return found


def number_pores(
    graph: BasinGraph, root_of: Int32s, minimum_voxels: int, left_out: Mask | None
) -> Numbering:
    """Number the pores from 1, by the flat index of their peaks.

    `root_of`: (n + 1,), int32: the basin that represents the pore of each basin. `minimum_voxels`:
    pores of fewer voxels get label 0. `left_out`: (n + 1,), bool: pores that hold one of these
    basins get label 0.
    """
    # basins, and so their roots, are numbered in that order
    label_of, kept, small = _number(graph, root_of, minimum_voxels, left_out)
    return Numbering(label_of, kept, small=small)


def number_groups(
    graph: BasinGraph, group_of: Int32s, minimum_voxels: int, left_out: Mask | None
) -> Numbering:
    """Number the pores from 1, in the order of the groups of their basins.

    `group_of`: (n + 1,), int32: the group of each basin, from 1; 0 for basins without one. Other
    parameters as for `number_pores`.
    """
    label_of, kept, small = _number(graph, group_of, minimum_voxels, left_out)
    # the highest peak of each group; of equal peaks the first
    order = np.lexsort((-graph.peak_squared_distance, group_of))
    first = order[np.searchsorted(group_of[order], kept)]
    return Numbering(label_of, first.astype(np.int32), small=small)


def _number(
    graph: BasinGraph, group_of: Int32s, minimum_voxels: int, left_out: Mask | None
) -> tuple[Int32s, Int32s, tuple[int, int]]:
    """Return labels of basins, groups with a label in its order, and `Numbering.small`."""
    voxels = np.bincount(group_of, graph.voxels)
    voxels[0] = -1
    if left_out is not None:
        voxels[group_of[left_out]] = -1
    kept = np.flatnonzero(voxels >= minimum_voxels)
    label = np.zeros(voxels.size, np.int32)
    label[kept] = np.arange(1, kept.size + 1)
    small = voxels[(voxels > 0) & (voxels < minimum_voxels)]
    return label[group_of], kept.astype(np.int32), (small.size, int(small.sum()))


@kernel
def _find_overlapping(
    peak: Int64s,
    squared_distance: Float32s,
    a: npt.NDArray[np.integer[Any]],
    b: npt.NDArray[np.integer[Any]],
    shape: Int64s,
    step: Float64s,
    overlaps: Mask,
) -> None:
    for i in range(a.size):
        first, second = peak[a[i]], peak[b[i]]
        squared = 0.0
        for axis in range(shape.size - 1, -1, -1):
            along = step[axis] * (first % shape[axis] - second % shape[axis])
            squared += along * along
            first //= shape[axis]
            second //= shape[axis]
        overlaps[i] = squared <= min(squared_distance[a[i]], squared_distance[b[i]])


@kernel
def _merge(
    parent: Int32s, radius: Float64s, a: Int32s, b: Int32s, neck: Float64s, order: Int64s, h: float
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
def _spread(parent: Int32s, marked: Int32s, a: Int32s, b: Int32s, order: Int64s) -> None:
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
def _root(parent: Int32s, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
