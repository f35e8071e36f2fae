"""Tables of basins and of the edges between them, added up where rows are of the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.geometry.sums import add_rows
from hushpore.pores.watershed.graph import number_keys

if TYPE_CHECKING:
    import numpy.typing as npt

#: Columns of the tables: of basins, of which the first are of their peaks, and of the edges between
#: them; see `BasinGraph`.
PEAKS = ("peak_squared_distance", "peak")
BASINS = (*PEAKS, "closed_voxels", "sums", "crossings", "bounds")
EDGES = ("a", "b", "saddle", "saddle_at", "contacts")

#: A peak that lies in no slab: exits have theirs elsewhere.
ELSEWHERE = np.iinfo(np.int64).max


def join_tables(
    pieces: list[tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]],
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """Add up tables whose rows are of the same basins, by their numbers; row 0 is left out.

    `pieces`: number of each row of a table of basins, and the columns of it and of its edges.
    Returns: (n,), int64, sorted; as given, but that edges join numbers (not rows), ``a < b``.
    """
    basin, row = np.unique(
        np.concatenate([numbers[1:] for numbers, _ in pieces]), return_inverse=True
    )
    rows = np.split(row, np.cumsum([numbers.size - 1 for numbers, _ in pieces])[:-1])
    joined: dict[str, npt.NDArray[Any]] = {}
    for name in BASINS:
        parts = [columns[name][1:] for _, columns in pieces]
        if name == "peak":
            # of the rows of a basin the peak of the highest, and of these the first
            heights = [columns["peak_squared_distance"][1:] for _, columns in pieces]
            parts = [
                np.where(height == joined["peak_squared_distance"][row], part, ELSEWHERE)
                for part, height, row in zip(parts, heights, rows, strict=True)
            ]
        joined[name] = _add_up(name, parts, rows, basin.size)
    edges = []
    for numbers, columns in pieces:
        a, b = numbers[columns["a"]], numbers[columns["b"]]
        same = a == b
        # what was two numbers of one basin has no surface in between
        inner = np.searchsorted(basin, a[same])
        add_rows(-columns["contacts"][same], inner, joined["crossings"])
        apart = ~same
        ends = (np.minimum(a, b)[apart], np.maximum(a, b)[apart])
        edges.append((*ends, *(columns[name][apart] for name in EDGES[2:])))
    together = [np.concatenate(column) for column in zip(*edges, strict=True)]
    return basin, {**joined, **dict(zip(EDGES, join_edges(*together), strict=True))}


def join_edges(
    a: npt.NDArray[np.int64],
    b: npt.NDArray[np.int64],
    saddle: npt.NDArray[np.float32],
    saddle_at: npt.NDArray[np.int64],
    contacts: npt.NDArray[Any],
) -> tuple[npt.NDArray[Any], ...]:
    """Join edges between the same two: the highest saddle, the first place of it, all contacts."""
    key, which = number_keys((a << 32) | b)
    highest = np.full(key.size, -1, np.float32)
    np.maximum.at(highest, which, saddle)
    is_highest = saddle == highest[which]
    place = np.full(key.size, ELSEWHERE)
    np.minimum.at(place, which[is_highest], saddle_at[is_highest])
    total = np.zeros((key.size, contacts.shape[1]), np.int64)
    add_rows(contacts, which, total)
    return key >> 32, key & 0xFFFFFFFF, highest, place, total


def _add_up(
    name: str, columns: list[npt.NDArray[Any]], rows: list[npt.NDArray[np.intp]], count: int
) -> npt.NDArray[Any]:
    """Add up a column of several tables by rows."""
    kind = np.dtype(np.int64) if name == "crossings" else columns[0].dtype
    total = np.zeros((count, *columns[0].shape[1:]), kind)
    if name == "peak":
        total[:] = ELSEWHERE
    if name == "bounds":
        total[:, :3] = np.iinfo(np.int32).max
    joins = {"peak": np.minimum, "peak_squared_distance": np.maximum}
    for row, column in zip(rows, columns, strict=True):
        if name == "bounds":
            # NumPy does that fast in one dimension alone
            for axis in range(6):
                (np.minimum if axis < 3 else np.maximum).at(total[:, axis], row, column[:, axis])
        elif column.ndim > 1:
            add_rows(column, row, total)
        else:
            joins.get(name, np.add).at(total, row, column)
    return total
