"""Corrections by hand: their record, and the voxels that each changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.void.components import AIR, CLOSED, FILLED_IN, join_pairs
from hushpore.pores.watershed.distance import edge_plane, fill_distance
from hushpore.pores.watershed.merging import flood

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Float64s, Int32s, Int64s, Mask
    from hushpore.pores.parallel import KernelThreads

#: The kinds of corrections, and the words for each.
KINDS = {
    "merge": "Merge",
    "merge-walls": "Merge across thin walls",
    "split": "Split at points",
    "cut": "Cut along a line",
    "delete": "Delete",
    "paint": "Paint",
    "erase": "Erase",
}


@dataclass(frozen=True)
class Operation:
    """A correction by hand.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    pores : tuple of int
        Labels of the pores; for ``"paint"`` the label that voxels get, for ``"erase"`` none.
    points : tuple of tuple of float
        For ``"split"`` the points, for ``"cut"`` both ends of the line: voxel indices (z, y, x),
        in 2D (y, x).
    axis : int
        For ``"cut"`` of a volume: axis along which the line was looked at, and along which the cut
        runs through all slices.
    runs : tuple of tuple of int
        For ``"paint"`` and ``"erase"`` the voxels: index of the first voxel of each run along x,
        (z, y, x), in 2D (y, x), and its number of voxels.
    """

    kind: str
    pores: tuple[int, ...] = ()
    points: tuple[tuple[float, ...], ...] = ()
    axis: int = 0
    runs: tuple[tuple[int, ...], ...] = ()

    @property
    def text(self) -> str:
        """The correction in words, for a list or a tooltip."""
        names = ", ".join(map(str, self.pores[:4])) + (" …" if len(self.pores) > 4 else "")
        voxels = f"{sum(run[-1] for run in self.runs):,} voxels"
        if self.kind == "erase":
            return f"Erase {voxels}"
        if self.kind == "paint":
            return f"Paint {voxels} as pore {names}"
        return f"{KINDS[self.kind]}: pore{'s' * (len(self.pores) > 1)} {names}"

    def to_dict(self) -> dict[str, Any]:
        """Return the correction as JSON values, without fields that it does not use."""
        return {name: value for name, value in asdict(self).items() if value or name == "kind"}

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Operation:
        """Return the correction of a record.

        Raises
        ------
        InputError
            If the record does not hold a correction.
        """
        try:
            found = cls(
                str(values["kind"]),
                tuple(int(label) for label in values.get("pores", ())),
                tuple(tuple(float(x) for x in point) for point in values.get("points", ())),
                int(values.get("axis", 0)),
                tuple(tuple(int(n) for n in run) for run in values.get("runs", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"The record holds a damaged correction: {error!r}.") from error
        if found.kind not in KINDS:
            raise InputError(
                f"The record holds an unknown correction {found.kind[:40]!r}; expected one of "
                f"{', '.join(KINDS)}."
            )
        return found


def runs_of(voxels: Int64s) -> tuple[tuple[int, ...], ...]:
    """Return voxels as runs along the last axis.

    Parameters
    ----------
    voxels : numpy.ndarray
        (n, axes), int64: voxel indices, in any order.

    Returns
    -------
    tuple of tuple of int
        Index of the first voxel of each run, and its number of voxels.

    Examples
    --------
    >>> runs_of(np.array([[0, 4], [0, 3], [1, 3]]))
    ((0, 3, 2), (1, 3, 1))
    """
    if not len(voxels):
        return ()
    places = np.unique(voxels, axis=0)
    step = np.diff(places, axis=0)
    goes_on = (step[:, :-1] == 0).all(axis=1) & (step[:, -1] == 1)
    first = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    length = np.diff(np.append(first, len(places)))
    return tuple(
        (*map(int, place), int(count)) for place, count in zip(places[first], length, strict=True)
    )


def voxels_of(runs: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> Int64s:
    """Return the flat indices of the voxels of some runs in a volume of this shape.

    Raises
    ------
    InputError
        If a run lies outside the volume.
    """
    if any(len(run) != len(shape) + 1 for run in runs):
        raise InputError(f"A run of voxels needs {len(shape)} indices and a length.")
    table = np.array(runs, np.int64).reshape(-1, len(shape) + 1)
    first, length = table[:, :-1], table[:, -1]
    last = first.copy()
    last[:, -1] += length - 1
    if ((first < 0) | (last >= shape)).any() or (length < 1).any():
        raise InputError(f"Some voxels lie outside the volume of shape {shape}.")
    start = np.ravel_multi_index(tuple(first.T), shape)
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


# ---- changes of voxels


@dataclass(frozen=True, eq=False)
class EditedLabels:
    """Labels under correction.

    Attributes
    ----------
    values : numpy.ndarray
        (z, y, x), int32: labels of the pores from 1; excluded void is negative, one number for each
        basin; 0 is everything else.
    exterior : numpy.ndarray, optional
        (z, y, x), bool: air and padding around the sample, which cannot be changed.
    n_spatial : int
        3, or 2 for an image.
    spacing : tuple of float
        Voxel size (z, y, x).
    border_is_solid : bool
        Whether there is solid beyond the faces of the volume.
    """

    values: Int32s
    exterior: Mask | None
    n_spatial: int
    spacing: tuple[float, ...]
    border_is_solid: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the volume (z, y, x)."""
        depth, height, width = self.values.shape
        return depth, height, width

    @property
    def flat(self) -> Int32s:
        """The values as a flat view."""
        return self.values.reshape(-1)

    @property
    def sizes(self) -> Int64s:
        """Voxels of each label, from 0."""
        sizes = np.bincount(np.maximum(self.flat, 0))
        sizes[0] = 0
        return sizes

    def squared_distance(self, threads: KernelThreads) -> Float32s:
        """Return the squared distance to the solid, in squared smallest voxels."""
        phase = (self.values != 0).view(np.uint8)
        if self.exterior is not None:
            phase[self.exterior] = AIR
        solid = tuple(self.border_is_solid and k >= 3 - self.n_spatial for k in range(3))
        edge = edge_plane(self.shape, solid[0])
        distance = np.empty(self.shape, np.float32)
        # the mouth of a pore is not a wall, so the exterior counts as void
        highest = CLOSED if self.border_is_solid else FILLED_IN
        fill_distance(phase, distance, edge, edge, self.spacing, solid, threads, highest)
        return distance


class Change(NamedTuple):
    """Voxels and their new labels."""

    at: Int64s  # (n,), flat indices, each once
    values: Int32s  # (n,)


def change_of(labels: EditedLabels, operation: Operation, threads: KernelThreads) -> Change:
    """Return the voxels that a correction changes.

    Raises
    ------
    InputError
        If the correction does not fit the pores.
    """
    sizes = labels.sizes
    _require_pores(sizes, operation)
    if operation.kind == "merge":
        change = _joined(labels, sizes, operation.pores)
    elif operation.kind == "merge-walls":
        change = _merge_walls(labels, sizes, operation)
    elif operation.kind == "split":
        change = _split(labels, operation, threads)
    elif operation.kind == "cut":
        change = _cut(labels, operation)
    elif operation.kind == "delete":
        at = np.flatnonzero(np.isin(labels.flat, operation.pores))
        change = Change(at, np.zeros(at.size, np.int32))
    else:
        change = _paint(labels, operation)
    differs = labels.flat[change.at] != change.values
    return Change(change.at[differs], change.values[differs])


def _require_pores(sizes: Int64s, operation: Operation) -> None:
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
    unknown = [label for label in given if not (0 < label < sizes.size and sizes[label])]
    if unknown:
        raise InputError(f"There is no pore {unknown[0]}. Labels are listed in the table of pores.")


def _largest(sizes: Int64s, pores: Array | tuple[int, ...]) -> int:
    """Return the pore with the most voxels; of equal ones the lowest label."""
    return min((-int(sizes[label]), int(label)) for label in pores)[1]


def _flat(voxels: Int64s, labels: EditedLabels) -> Int64s:
    """Return the flat indices of voxels (n, 3)."""
    at: Int64s = np.ravel_multi_index(tuple(voxels.T), labels.shape)
    return at


def _joined(labels: EditedLabels, sizes: Int64s, pores: tuple[int, ...]) -> Change:
    """Return the change that gives all pores the label of the largest."""
    keeps = _largest(sizes, pores)
    at = np.flatnonzero(np.isin(labels.flat, pores) & (labels.flat != keeps))
    return Change(at, np.full(at.size, keeps, np.int32))


def _merge_walls(labels: EditedLabels, sizes: Int64s, operation: Operation) -> Change:
    """Merge the pores that walls of one voxel separate; the walls become pore."""
    pores = np.unique(operation.pores)
    is_ours, values = np.isin(labels.values, pores), labels.values
    is_solid = values == 0
    if labels.exterior is not None:
        is_solid &= ~labels.exterior
    walls: list[Array] = []
    pairs = [np.zeros((0, 2), np.int32)]
    for axis in range(3 - labels.n_spatial, 3):
        length = labels.shape[axis]
        if length < 3:
            continue
        before, wall, after = (
            tuple(slice(k, length - 2 + k) if a == axis else slice(None) for a in range(3))
            for k in range(3)
        )
        separates = is_solid[wall] & is_ours[before] & is_ours[after]
        separates &= values[before] != values[after]
        places = np.argwhere(separates)
        places[:, axis] += 1
        walls.append(_flat(places, labels))
        pairs.append(np.stack([values[before][separates], values[after][separates]], axis=-1))
    touching = np.concatenate(pairs)
    if not len(touching):
        raise InputError(
            "No wall of one voxel separates these pores. Merge them without filling walls, or "
            "paint the wall first."
        )
    rows = np.searchsorted(pores, touching)
    group, count = join_pairs(pores.size, rows[:, 0], rows[:, 1])
    groups = [tuple(pores[group == number].tolist()) for number in range(count)]
    keeps = np.array([_largest(sizes, members) for members in groups], np.int32)
    changes = [_joined(labels, sizes, members) for members in groups]
    # a wall voxel between two pairs of pores joins the first
    at, first = np.unique(np.concatenate(walls), return_index=True)
    label = keeps[group[rows[first, 0]]]
    return Change(
        np.concatenate([*(change.at for change in changes), at]),
        np.concatenate([*(change.values for change in changes), label]).astype(np.int32),
    )


def _paint(labels: EditedLabels, operation: Operation) -> Change:
    """Paint or erase voxels; the exterior stays."""
    at = np.unique(voxels_of(operation.runs, labels.shape[3 - labels.n_spatial :]))
    if labels.exterior is not None:
        at = at[~labels.exterior.reshape(-1)[at]]
    label = operation.pores[0] if operation.kind == "paint" else 0
    return Change(at, np.full(at.size, label, np.int32))


def _cut(labels: EditedLabels, operation: Operation) -> Change:
    """Cut a pore along a line, which goes on straight beyond its ends."""
    n_spatial = labels.n_spatial
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
    voxels = np.argwhere(labels.values == operation.pores[0])
    place = voxels[:, axes]
    across = along[0] * (place[:, 1] - first[1]) - along[1] * (place[:, 0] - first[0])
    return _parted(labels, operation.pores[0], voxels, (across < 0).astype(np.int64), "line")


def _split(labels: EditedLabels, operation: Operation, threads: KernelThreads) -> Change:
    """Split a pore at points: flooded from them, so that it is cut where it is narrowest."""
    label, n_spatial = operation.pores[0], labels.n_spatial
    points = np.array(operation.points, np.float64)
    if points.ndim != 2 or points.shape[1] != n_spatial or len(points) < 2:
        raise InputError(f"A split needs at least two points with {n_spatial} indices each.")
    places = np.zeros((len(points), 3), np.int64)
    places[:, 3 - n_spatial :] = np.rint(points)
    inside = np.all((places >= 0) & (places < labels.shape), axis=1)
    inside[inside] = labels.values[tuple(places[inside].T)] == label
    if not inside.all():
        number = int(np.argmin(inside))
        raise InputError(
            f"Point {number + 1} at {tuple(points[number].tolist())} is not in pore {label}. Put "
            "all points into the pore."
        )
    voxels = np.argwhere(labels.values == label)
    start = voxels.min(axis=0)
    node = np.zeros(voxels.max(axis=0) - start + 1, np.int32)
    node[tuple((voxels - start).T)] = np.arange(1, len(voxels) + 1)
    nearest, away = _nearest(voxels, places, labels.spacing)
    marked = np.zeros(len(voxels) + 1, np.int32)
    marked[node[tuple((places - start).T)][::-1]] = np.arange(len(places), 0, -1)
    distance = labels.squared_distance(threads)[tuple(voxels.T)]
    height, away = np.append(np.float32(0), distance), np.append(0.0, away)
    a, b = _faces(node)
    # between equally wide necks first those near the points, so that fronts meet halfway
    order = np.lexsort((np.maximum(away[a], away[b]), -np.minimum(height[a], height[b])))
    part = flood(marked, a, b, order)[1:]
    # parts that touch only over edges and corners of voxels
    part = np.where(part == 0, nearest + 1, part)
    return _parted(labels, label, voxels, part - 1, "points")


def _faces(node: Int32s) -> tuple[Int32s, Int32s]:
    """Return the pairs of nodes that share a voxel face."""
    pairs = []
    for axis in range(3):
        one, other = (np.moveaxis(node, axis, 0)[part] for part in (slice(-1), slice(1, None)))
        both = (one > 0) & (other > 0)
        pairs.append((one[both], other[both]))
    a, b = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
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
    labels: EditedLabels, label: int, voxels: Int64s, part: npt.NDArray[np.integer], by: str
) -> Change:
    """Return the change that parts a pore; its largest part keeps the label.

    `voxels`: (n, 3): those of the pore. `part`: (n,): which part each belongs to, from 0.
    """
    sizes = np.bincount(part)
    if np.count_nonzero(sizes) < 2:
        raise InputError(f"The {by} leave pore {label} whole. Put the {by} across the pore.")
    free = int(labels.values.max()) + 1
    new = np.zeros(sizes.size, np.int32)
    others = [k for k in np.flatnonzero(sizes) if k != sizes.argmax()]
    new[sizes.argmax()] = label
    new[others] = free + np.arange(len(others))
    return Change(_flat(voxels, labels), new[part])
