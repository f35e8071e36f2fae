"""Corrections by hand as data: what was done to which pores and voxels, for the record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.arrays import Int64s

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
