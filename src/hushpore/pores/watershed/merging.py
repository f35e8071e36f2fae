"""Merging of watershed basins into pores, on their graph, and numbering of the pores.

Edges are processed from the widest neck to the narrowest. Two basins are merged if the lower of
their peaks rises above the neck by at most the merge height h; radii are compared, in voxels of the
smallest spacing. The higher peak represents the merged pore.

Basins with overlapping maximal balls, whose peaks are no farther from each other than from the
solid, can be merged whatever h: the neck between them counts as infinitely wide. Rough walls and
residual noise create such peaks. SNOW trims them; Silin and Patzek call the smaller ball the slave
of the larger.

Basins can also be merged to the peaks of SNOW instead, each of which becomes a pore. A voxel is a
peak where the distance map, smoothed a little, is as high as anywhere in a ball around
it; where it does not lie on the slope of, or on a saddle to, a higher place; and where no wider
peak is nearer to it than the solid. PoreSpy's `snow_partitioning` has this rule; on these images it
finds as many regions as there are peaks here (PoreSpy 3.2.0; images of its `generators`, and Berea
sandstone, 200^3 voxels):

=====================================================  =======  ====
image                                                  PoreSpy  here
=====================================================  =======  ====
``~lattice_spheres([110]*3, 15, 27, 20)``                   64    64
``~lattice_spheres([100]*3, 15, 28, 22)``                   27    27
``blobs([100]*3, 0.5, 1, seed=1)``                         582   582
``blobs([120]*3, 0.6, 1.5, seed=2)``                      1338  1338
``blobs([200]*2, 0.6, 1, seed=3)``                          49    49
Berea                                                     1240  1240
=====================================================  =======  ====

The borders between pores are those of basins (`merge_to_markers`),
and not of a flood, which leaks through the solid there.

References
----------
P. Soille (2003), "Morphological Image Analysis", section 6.3.3 (h-maxima), Springer.
https://doi.org/10.1007/978-3-662-05088-0
D. Silin and T. Patzek (2006), "Pore space morphology analysis using maximal inscribed spheres".
https://doi.org/10.1016/j.physa.2006.04.048

J. T. Gostick (2017), "Versatile and efficient pore network extraction method using marker-based
watershed segmentation". https://doi.org/10.1103/PhysRevE.96.023307
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hushpore.base.formatting import readable_percent
from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Float64s, Int32s, Int64s, Mask
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs, Stack
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


def merge_by_height(
    graph: BasinGraph, h: float, overlapping: Mask | None = None, *, squared: bool = True
) -> Int32s:
    """Merge basins of which the lower peak rises above the neck by at most `h`.

    `graph`: basins 1 to n and their edges. `h`: merge height in voxels of the smallest spacing,
    compared with radii. `overlapping`: (edges,), bool: edges whose basins are merged whatever `h`.
    `squared`: whether the heights of the graph are squared, or `h` is compared with them as is.
    Returns: (n + 1,), int32: for each basin, the basin that represents its pore; 0 for 0.

    Among equally wide necks those with more contacts come first, then those of lower basin numbers,
    so that the result does not depend on the order in which edges were found.
    """
    radius = graph.peak_squared_distance.astype(np.float64)
    neck = np.maximum(graph.saddle, 0).astype(np.float64)
    if squared:
        radius, neck = np.sqrt(radius), np.sqrt(neck)
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


class Slices(Protocol):
    """Stack that returns slices clipped to its range."""

    def read(self, first: int, last: int, /) -> Array:
        """Return slices `first` to `last`."""


#: Standard deviation of the smoothing and radius of the ball, in voxels (defaults of SNOW).
SIGMA, RADIUS = 0.4, 4

# slices beside a slab that its peaks depend on: those of the ball, and of the smoothing there
_HALO = 5

# what the solid counts as, so that there are no peaks right beside it
_SOLID = np.float32(2.0)


def find_peaks(
    distance: Stack,
    basins: Stack,
    slabs: Slabs,
    graph: BasinGraph,
    spacing: Sequence[float],
    threads: KernelThreads,
) -> Generator[float, None, Mask]:
    """Find the basins that contain a peak by the rules of SNOW.

    `distance`: (z, y, x), float32: squared distance in squared voxels of the smallest spacing.
    `basins`: (z, y, x), int32: 1 to n, 0 in the solid. `spacing`: voxel size in z, y, x order;
    distances between peaks honour it, smoothing and ball are the same number of voxels along every
    axis.
    Yields: the share that is done.
    Returns: (n + 1,), bool. Void that is narrower than 4 voxels everywhere has no peak.

    Several peaks in one basin count as one, in the middle between them. Takes 4 bytes a voxel.
    """
    # basins merge at height 0 where a plateau leads from one peak up to another
    level = graph.peak_squared_distance[merge_by_height(graph, 0.0)]
    level[0] = -1
    places, owners = [], []
    for first, last in slabs:
        labels = basins.read(first, last)
        place, owner = find_in_slab(distance, first, labels, level, threads)
        places.append(place)
        owners.append(owner)
        yield last / slabs.depth
    basin, middle = middle_of(np.concatenate(places), np.concatenate(owners))
    is_peak = np.zeros(graph.count + 1, np.bool_)
    is_peak[basin[widest(middle, _values_at(distance, slabs, middle), spacing)]] = True
    return is_peak


def find_in_slab(
    distance: Slices, first: int, basins: Int32s, level: Float32s, threads: KernelThreads
) -> tuple[Int64s, Int32s]:
    """Find the voxels of a slab that are peaks, if no other is near them.

    `distance`: as for `find_peaks`, of which slices beside the slab are read too. `basins`: those
    of the slab, from slice `first` on. `level`: (n + 1,): how high each leads; -1 for 0.
    Returns: (m, 3) voxels of the stack; (m,) their basins.
    """
    from scipy import ndimage

    low = max(first - _HALO, 0)
    heights = distance.read(low, first + len(basins) + _HALO)
    place = _peak_plateaus(heights[first - low :], basins, level, threads)
    place[:, 0] += first - low
    smooth = np.sqrt(heights)
    ndimage.gaussian_filter(smooth, SIGMA, output=smooth)
    place = _highest_around(place, smooth, heights)
    place[:, 0] += low
    return place, basins[place[:, 0] - first, place[:, 1], place[:, 2]]


def middle_of(place: Int64s, basin: Array) -> tuple[Array, Int64s]:
    """Return the basins in which voxels (m, 3) lie, sorted, and the middle of those in each."""
    found, which = np.unique(basin, return_inverse=True)
    total = np.zeros((found.size, 3))
    np.add.at(total, which, place)
    middle = np.floor(total / np.bincount(which, minlength=found.size)[:, None])
    return found, middle.astype(np.int64)


def widest(middle: Int64s, squared_distance: Float32s, spacing: Sequence[float]) -> Mask:
    """Return which of the peaks at some voxels (m, 3) no wider one is too near to."""
    radius = np.sqrt(squared_distance.astype(np.float64))
    return _widest(middle * (np.asarray(spacing) / min(spacing)), radius)


def _values_at(stack: Stack, slabs: Slabs, place: Int64s) -> Float32s:
    """Return the values of a stack at voxels (m, 3)."""
    values = np.empty(len(place), np.float32)
    for first, last in slabs:
        inside = (place[:, 0] >= first) & (place[:, 0] < last)
        if inside.any():
            z, y, x = place[inside].T
            values[inside] = stack.read(first, last)[z - first, y, x]
    return values


def _peak_plateaus(
    heights: Float32s, basins: Int32s, level: Float32s, threads: KernelThreads
) -> Int64s:
    """Return the voxels (m, 3) of a slab that are as high as their basin leads, (n + 1,)."""

    def find(first: int, last: int) -> Int64s:
        found = []
        for z in range(first, last):
            y, x = np.nonzero(heights[z] == level[basins[z]])
            found.append(np.stack([np.full(y.size, z), y, x], axis=-1))
        return np.concatenate(found)

    return np.concatenate(threads.over(len(basins), find))


def _highest_around(place: Int64s, smooth: Float32s, distance: Float32s) -> Int64s:
    """Return those voxels (m, 3) that are nowhere exceeded in the ball around them."""
    steps = np.argwhere(np.ones((2 * RADIUS + 1,) * 3)) - RADIUS
    square = (steps**2).sum(axis=1)
    # the nearest first: they rule out most
    order = np.argsort(square, kind="stable")
    for step in steps[order[(square[order] > 0) & (square[order] < RADIUS**2)]]:
        other = place + step
        inside = ((other >= 0) & (other < smooth.shape)).all(axis=1)
        at = tuple(other[inside].T)
        exceeded = np.zeros(len(place), np.bool_)
        height = np.where(distance[at] > 0, smooth[at], _SOLID)
        exceeded[inside] = height > smooth[tuple(place[inside].T)]
        place = place[~exceeded]
    return place


def _widest(position: Float64s, radius: Float64s) -> Mask:
    """Keep the wider of two peaks that are no farther from each other than from the solid."""
    from scipy.spatial import KDTree

    kept = np.ones(len(position), np.bool_)
    if len(position) < 2:
        return kept
    away, nearest = KDTree(position).query(position, k=2)
    near = np.flatnonzero(away[:, 1] <= radius)
    other = nearest[near, 1]
    # of equally wide ones the later
    wider = (radius[other] > radius[near]) | ((radius[other] == radius[near]) & (other > near))
    kept[np.where(wider, near, other)] = False
    return kept
