"""The void and its parts: open, connected to a face of the volume, and closed, which is not.

Components are 6-connected. They are found on runs, stretches of void along x, of which there are
far fewer than voxels.

References
----------
L. He, Y. Chao and K. Suzuki (2008), "A run-based two-scan labeling algorithm".
https://doi.org/10.1109/TIP.2008.919369
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.parallel import Workers


@dataclass(frozen=True, eq=False)
class Components:
    """The 6-connected components of a void, as runs along x.

    Attributes
    ----------
    shape : tuple of int
        (z, y, x) of the volume.
    row_start : numpy.ndarray
        (z * y + 1,), int64: first run of each row.
    begin, end : numpy.ndarray
        (runs,), int32: first voxel of a run, and the one after its last.
    component : numpy.ndarray
        (runs,), int32: which component a run belongs to, from 0.
    voxels : numpy.ndarray
        (components,), int64.
    is_open : numpy.ndarray
        (components,), bool: whether it touches a face of the volume.
    """

    shape: tuple[int, int, int]
    row_start: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    component: npt.NDArray[np.int32]
    voxels: npt.NDArray[np.int64]
    is_open: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of components."""
        return int(self.voxels.size)

    @property
    def open_voxels(self) -> int:
        """Void voxels that are connected to a face of the volume."""
        return int(self.voxels[self.is_open].sum())

    @property
    def closed_voxels(self) -> int:
        """Void voxels that are not."""
        return int(self.voxels[~self.is_open].sum())

    def is_open_at(self, voxels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether the void at some voxels (flat indices) is connected to a face of the volume."""
        width = self.shape[2]
        rows = np.repeat(np.arange(self.row_start.size - 1), np.diff(self.row_start))
        run = np.searchsorted(rows * width + self.begin, voxels, side="right") - 1
        return self.is_open[self.component[run]]


def make_void(
    values: npt.NDArray[Any], threshold: float | None, bright: bool, workers: Workers
) -> npt.NDArray[np.bool_]:
    """Return where the pores are.

    Parameters
    ----------
    values : numpy.ndarray
        (z, y, x), any real dtype.
    threshold : float or None
        Dark pores are at or below it, bright ones above; None: `values` is the void itself.
    bright : bool
        Whether the pores are the bright phase.
    workers : Workers
        Threads to run on.

    Returns
    -------
    numpy.ndarray
        (z, y, x), bool, C order, owned by the caller.
    """
    if threshold is None:
        return np.array(values, np.bool_, order="C")
    limit: Any = np.float64(threshold)
    if values.dtype.kind in "iu":
        # whole numbers are compared as such: exact at any size, and no conversion
        info = np.iinfo(values.dtype)
        if threshold < info.min or threshold >= info.max:
            return np.full(values.shape, (threshold < info.min) == bright)
        limit = values.dtype.type(np.floor(threshold))
    void = np.empty(values.shape, np.bool_)
    compare = np.greater if bright else np.less_equal

    def compare_slices(first: int, last: int) -> None:
        compare(values[first:last], limit, out=void[first:last])

    workers.over(len(values), compare_slices)
    return void


def find_components(
    void: npt.NDArray[np.bool_], faces: tuple[bool, bool, bool], workers: Workers
) -> Components:
    """Find the 6-connected components of a void.

    Parameters
    ----------
    void : numpy.ndarray
        (z, y, x), bool, C order.
    faces : tuple of bool
        For each axis, whether its two faces count as an opening (in a 2D image those of z do not).
    workers : Workers
        Threads to run on.
    """
    depth, height, width = void.shape
    rows = void.view(np.uint8).reshape(-1, width)
    pieces = workers.over(len(rows), _find_runs, rows, smallest=256)
    row_start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.concatenate([counts for counts, _, _ in pieces]), out=row_start[1:])
    begin = np.concatenate([begins for _, begins, _ in pieces])
    end = np.concatenate([ends for _, _, ends in pieces])
    component, count = _connect(depth, height, row_start, begin, end)
    voxels = np.bincount(component, end - begin, count).astype(np.int64)
    is_open = _touching(void.shape, faces, row_start, begin, end, component, count)
    return Components(void.shape, row_start, begin, end, component, voxels, is_open)


def keep_components(
    void: npt.NDArray[np.bool_], components: Components, kept: npt.NDArray[np.bool_]
) -> None:
    """Make solid, in place, every component that is not `kept` (one bool a component)."""
    rows = void.view(np.uint8).reshape(-1, void.shape[-1])
    _erase_runs(
        rows,
        components.row_start,
        components.begin,
        components.end,
        kept[components.component],
    )


def holding(components: Components, strict: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which components hold a voxel of `strict` (z, y, x), one bool a component."""
    rows = strict.view(np.uint8).reshape(-1, strict.shape[-1])
    marked = np.zeros(components.count, np.bool_)
    marked[
        components.component[_marked(rows, components.row_start, components.begin, components.end)]
    ] = True
    return marked


@kernel
def _marked(
    rows: npt.NDArray[np.uint8],
    row_start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
) -> npt.NDArray[np.bool_]:
    """Return which runs hold a voxel above zero."""
    found = np.zeros(begin.size, np.bool_)
    for row in range(len(rows)):
        for run in range(row_start[row], row_start[row + 1]):
            found[run] = rows[row, begin[run] : end[run]].any()
    return found


@kernel
def _find_runs(
    rows: npt.NDArray[np.uint8], first: int, last: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return runs a row, and their begins and ends, for a range of rows."""
    width = rows.shape[1]
    counts = np.zeros(last - first, np.int64)
    total = 0
    for row in range(first, last):
        line = rows[row]
        previous = np.uint8(0)
        count = 0
        for x in range(width):
            count += line[x] > previous
            previous = line[x]
        counts[row - first] = count
        total += count
    begin = np.empty(total, np.int32)
    end = np.empty(total, np.int32)
    run = 0
    for row in range(first, last):
        if counts[row - first] == 0:
            continue
        line = rows[row]
        x = 0
        while x < width:
            if line[x] == 0:
                x += 1
                continue
            begin[run] = x
            while x < width and line[x] != 0:
                x += 1
            end[run] = x
            run += 1
    return counts, begin, end


@kernel
def _connect(
    depth: int,
    height: int,
    row_start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int32], int]:
    """Number the components of runs from 0, in the order of their first runs, by union-find."""
    parent = np.arange(begin.size, dtype=np.int32)
    for row in range(depth * height):
        if row % height:
            _unite_rows(parent, row_start, begin, end, row, row - 1)
        if row >= height:
            _unite_rows(parent, row_start, begin, end, row, row - height)
    count = 0
    for run in range(begin.size):
        # parents come first: the smaller index is the root
        if parent[run] == run:
            parent[run] = count
            count += 1
        else:
            parent[run] = parent[parent[run]]
    return parent, count


@kernel
def _unite_rows(
    parent: npt.NDArray[np.int32],
    row_start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    row: int,
    other: int,
) -> None:
    """Join all runs of two rows that overlap in x."""
    a = row_start[row]
    b = row_start[other]
    while a < row_start[row + 1] and b < row_start[other + 1]:
        if begin[a] < end[b] and begin[b] < end[a]:
            _unite(parent, a, b)
        if end[a] < end[b]:
            a += 1
        else:
            b += 1


@kernel
def _unite(parent: npt.NDArray[np.int32], a: int, b: int) -> None:
    """Join the trees of `a` and `b` under the smaller root, halving the paths on the way."""
    while parent[a] != a:
        parent[a] = parent[parent[a]]
        a = parent[a]
    while parent[b] != b:
        parent[b] = parent[parent[b]]
        b = parent[b]
    if a < b:
        parent[b] = a
    else:
        parent[a] = b


def _touching(
    shape: tuple[int, ...],
    faces: tuple[bool, bool, bool],
    row_start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    component: npt.NDArray[np.int32],
    count: int,
) -> npt.NDArray[np.bool_]:
    depth, height, width = shape
    touches = np.zeros(count, np.bool_)
    if faces[2]:
        touches[component[(begin == 0) | (end == width)]] = True
    rows = np.arange(depth * height).reshape(depth, height)
    edge: list[npt.NDArray[np.int64]] = []
    if faces[0]:
        edge += [rows[0], rows[-1]]
    if faces[1]:
        edge += [rows[:, 0], rows[:, -1]]
    for row in np.unique(np.concatenate(edge)) if edge else ():
        touches[component[row_start[row] : row_start[row + 1]]] = True
    return touches


@kernel
def _erase_runs(
    rows: npt.NDArray[np.uint8],
    row_start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    kept: npt.NDArray[np.bool_],
) -> None:
    for row in range(len(rows)):
        for run in range(row_start[row], row_start[row + 1]):
            if not kept[run]:
                rows[row, begin[run] : end[run]] = 0
