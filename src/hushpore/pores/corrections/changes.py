"""The voxels that a correction changes, and their new labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.corrections.operations import voxels_of
from hushpore.pores.void.components import AIR, SOLID, join_pairs
from hushpore.pores.watershed.merging import flood

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.arrays import Float64s, Int32s, Int64s
    from hushpore.pores.corrections.boxes import Box
    from hushpore.pores.corrections.operations import Operation
    from hushpore.pores.corrections.regions import Regions


class Change(NamedTuple):
    """Voxels and their new labels."""

    at: Int64s  # (n,), flat indices, each once
    values: Int32s  # (n,)


def change_of(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    """Return the voxels that a correction changes.

    Raises
    ------
    InputError
        If the correction does not fit the pores.
    """
    _require_pores(regions, operation)
    find = {
        "merge": _merge,
        "merge-walls": _merge_walls,
        "split": _split,
        "cut": _cut,
        "delete": _delete,
        "paint": _paint,
        "erase": _paint,
    }[operation.kind]
    found = find(regions, operation, n_spatial)
    differs = regions.values.reshape(-1)[found.at] != found.values
    return Change(found.at[differs], found.values[differs])


def _require_pores(regions: Regions, operation: Operation) -> None:
    """Raise InputError unless the pores of a correction exist, and are as many as it needs."""
    given = operation.pores
    least = {"merge": 2, "merge-walls": 2, "erase": 0}.get(operation.kind, 1)
    most = 1 if operation.kind in ("split", "cut", "paint") else len(given)
    if not least <= len(set(given)) <= most:
        need = "two pores or more" if least == 2 else "one pore"
        raise InputError(f"'{operation.kind}' needs {need}; {len(set(given))} are given.")
    if operation.kind == "paint":
        if not 0 < given[0] < 2**31 - 1024:
            raise InputError(f"A pore needs a label from 1; got {given[0]}.")
        return
    unknown = [label for label in given if not regions.voxels(label)]
    if unknown:
        raise InputError(f"There is no pore {unknown[0]}. Labels are listed in the table of pores.")


def _voxels_in(regions: Regions, label: int) -> Int64s:
    """Return the flat indices of the voxels of a pore, ascending."""
    box = regions.bounding_box(label)
    return _flat(np.argwhere(regions.values[box] == label), box, regions)


def _flat(places: Int64s, box: Box, regions: Regions) -> Int64s:
    """Return the flat indices in the volume of voxels (n, 3) of a box."""
    places = places + [part.start for part in box]
    found: Int64s = np.ravel_multi_index(tuple(places.T), regions.shape)
    return found


def _largest(regions: Regions, labels: npt.NDArray[np.integer] | tuple[int, ...]) -> int:
    """Return the pore with the most voxels; of equal ones the lowest label."""
    return min((-regions.voxels(int(label)), int(label)) for label in labels)[1]


def _joined(regions: Regions, labels: tuple[int, ...]) -> Change:
    """Return the change that gives all pores the label of the largest."""
    keeps = _largest(regions, labels)
    at = [_voxels_in(regions, label) for label in sorted(set(labels)) if label != keeps]
    places = np.concatenate([*at, np.zeros(0, np.int64)])
    return Change(places, np.full(places.size, keeps, np.int32))


def _merge(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    return _joined(regions, operation.pores)


def _merge_walls(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    """Merge the pores that walls of one voxel separate; the walls become pore."""
    pores = np.unique(operation.pores)
    boxes = [regions.bounding_box(int(label)) for label in pores]
    z, y, x = (
        slice(min(box[axis].start for box in boxes), max(box[axis].stop for box in boxes))
        for axis in range(3)
    )
    part, phase = regions.values[z, y, x], regions.phase[z, y, x]
    is_ours = np.isin(part, pores)
    walls, pairs = [], []
    for axis in range(3 - n_spatial, 3):
        length = part.shape[axis]
        if length < 3:
            continue
        before, wall, after = (
            tuple(slice(k, length - 2 + k) if a == axis else slice(None) for a in range(3))
            for k in range(3)
        )
        parts = (phase[wall] == SOLID) & is_ours[before] & is_ours[after]
        parts &= part[before] != part[after]
        places = np.argwhere(parts)
        one, other = part[before][parts], part[after][parts]
        pairs.append(np.stack([one, other], axis=-1))
        places[:, axis] += 1
        walls.append(places)
    touching = np.concatenate(pairs)
    if not len(touching):
        raise InputError(
            "No wall of one voxel separates these pores. Merge them without filling walls, or "
            "paint the wall first."
        )
    rows = np.searchsorted(pores, touching)
    group, count = join_pairs(pores.size, rows[:, 0], rows[:, 1])
    # of each group the label of its largest pore
    keeps = np.array([_largest(regions, pores[group == each]) for each in range(count)], np.int32)
    changes = [_joined(regions, tuple(pores[group == each].tolist())) for each in range(count)]
    at = _flat(np.concatenate(walls), (z, y, x), regions)
    # a wall voxel between two pairs of pores joins the first
    at, first = np.unique(at, return_index=True)
    label = keeps[group[rows[first, 0]]]
    return Change(
        np.concatenate([*(change.at for change in changes), at]),
        np.concatenate([*(change.values for change in changes), label]).astype(np.int32),
    )


def _delete(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    at = np.concatenate([_voxels_in(regions, label) for label in sorted(set(operation.pores))])
    return Change(at, np.zeros(at.size, np.int32))


def _paint(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    """Paint or erase voxels; the exterior stays."""
    shape = regions.shape[3 - n_spatial :]
    at = np.unique(voxels_of(operation.runs, shape))
    at = at[regions.phase.reshape(-1)[at] < AIR]
    label = operation.pores[0] if operation.kind == "paint" else 0
    return Change(at, np.full(at.size, label, np.int32))


def _cut(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    """Cut a pore along a line, which goes on straight beyond its ends."""
    label = operation.pores[0]
    ends = np.array(operation.points, np.float64)
    if ends.shape != (2, n_spatial):
        raise InputError(f"A cut needs both ends of a line with {n_spatial} indices each.")
    axes = list(range(3 - n_spatial, 3))
    if n_spatial == 3:
        if operation.axis not in axes:
            raise InputError(f"A cut runs along axis 0, 1 or 2; got {operation.axis}.")
        axes.remove(operation.axis)
    first, last = ends[:, [axis - 3 + n_spatial for axis in axes]]
    along = last - first
    if not along.any():
        raise InputError("The ends of the line of a cut lie on each other. Draw a longer line.")
    at = _voxels_in(regions, label)
    place = np.stack(np.unravel_index(at, regions.shape), axis=-1)[:, axes]
    across = along[0] * (place[:, 1] - first[1]) - along[1] * (place[:, 0] - first[0])
    return _parted(regions, label, at, (across < 0).astype(np.int64), "line")


def _split(regions: Regions, operation: Operation, n_spatial: int) -> Change:
    """Split a pore at points: flooded from them, so that it is cut where it is narrowest."""
    label = operation.pores[0]
    points = np.array(operation.points, np.float64)
    if points.ndim != 2 or points.shape[1] != n_spatial or len(points) < 2:
        raise InputError(f"A split needs at least two points with {n_spatial} indices each.")
    places = np.zeros((len(points), 3), np.int64)
    places[:, 3 - n_spatial :] = np.rint(points)
    box = regions.bounding_box(label)
    start = np.array([part.start for part in box])
    own = regions.values[box] == label
    inside = ((places >= start) & (places < start + own.shape)).all(axis=1)
    inside[inside] = own[tuple((places[inside] - start).T)]
    if not inside.all():
        which = int(np.argmin(inside))
        raise InputError(
            f"Point {which + 1} at {tuple(points[which].tolist())} is not in pore {label}. Put all "
            "points into the pore."
        )
    voxels = np.argwhere(own)
    node = np.zeros(own.shape, np.int32)
    node[own] = np.arange(1, len(voxels) + 1)
    nearest = _nearest(voxels, places - start, regions.spacing)
    marked = np.zeros(len(voxels) + 1, np.int32)
    marked[node[tuple((places - start).T)][::-1]] = np.arange(len(places), 0, -1)
    height = np.append(np.float32(0), regions.distance_in(box)[own])
    away = np.append(0.0, nearest[1])
    a, b = _faces(node)
    # between equally wide necks first those near the points, so that fronts meet halfway
    order = np.lexsort((np.maximum(away[a], away[b]), -np.minimum(height[a], height[b])))
    found = flood(marked, a, b, order)[1:]
    # parts that touch only over edges and corners of voxels
    found = np.where(found == 0, nearest[0] + 1, found)
    return _parted(regions, label, _flat(voxels, box, regions), found - 1, "points")


def _faces(node: Int32s) -> tuple[Int32s, Int32s]:
    """Return the pairs of nodes that share a voxel face."""
    pairs = []
    for axis in range(3):
        one, other = (np.moveaxis(node, axis, 0)[part] for part in (slice(-1), slice(1, None)))
        both = (one > 0) & (other > 0)
        pairs.append((one[both], other[both]))
    a, b = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return a, b


def _nearest(voxels: Int64s, points: Int64s, spacing: tuple[float, ...]) -> tuple[Int64s, Float64s]:
    """Return the nearest point to each voxel, and the squared distance to it."""
    nearest = np.zeros(len(voxels), np.int64)
    least = np.full(len(voxels), np.inf)
    for number, point in enumerate(points):
        squared = (((voxels - point) * np.asarray(spacing)) ** 2).sum(axis=1)
        nearest[squared < least] = number
        np.minimum(least, squared, out=least)
    return nearest, least


def _parted(
    regions: Regions, label: int, at: Int64s, part: npt.NDArray[np.integer], by: str
) -> Change:
    """Return the change that parts a pore; its largest part keeps the label."""
    sizes = np.bincount(part)
    if np.count_nonzero(sizes) < 2:
        raise InputError(f"The {by} leave pore {label} whole. Put the {by} across the pore.")
    free = int(regions.pores.max()) + 1
    new = np.zeros(sizes.size, np.int32)
    others = [k for k in np.flatnonzero(sizes) if k != sizes.argmax()]
    new[sizes.argmax()] = label
    new[others] = free + np.arange(len(others))
    return Change(at, new[part])
