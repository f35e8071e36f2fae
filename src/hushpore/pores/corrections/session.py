"""Corrections of a segmentation by hand: merge, split, cut, delete, paint and erase pores."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.device.backend import Backend
from hushpore.pores.corrections.changes import change_of
from hushpore.pores.corrections.exterior import decided_settings, grey_of, padding_of, phase_of
from hushpore.pores.corrections.operations import Operation, runs_of
from hushpore.pores.corrections.regions import Regions
from hushpore.pores.job import open_work
from hushpore.pores.numbering import measured, numbering_of, totals_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.pipeline import Stages
from hushpore.pores.slabs import RenumberedStack, Slabs
from hushpore.pores.tables.measures import void_walls
from hushpore.pores.tables.totals import is_of_interval
from hushpore.pores.topology.tortuosity import find_tortuosity
from hushpore.pores.void_totals import void_totals
from hushpore.pores.work import Threshold, VoidTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Int32s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.pores.watershed.graph import BasinGraph


class _Written(NamedTuple):
    """A change of voxels, and how to revert it."""

    at: Int64s  # flat indices
    before: Int32s  # values before
    changes_void: bool
    euler: int  # added to the Euler number of the void


class _Step(NamedTuple):
    """Corrections that are undone together."""

    operations: tuple[Operation, ...]
    changes: tuple[_Written, ...]


class Corrections:
    """Corrections of a pore segmentation by hand, with undo and redo.

    Merged pores keep the label of the largest, the largest part of a split pore keeps its label,
    and all other labels stay, so labels may have gaps. Deleted and erased voxels become solid,
    painted ones void; voxels of the exterior stay as they are. Only the touched pores are measured
    again, with the result of measuring all of them.

    Parameters
    ----------
    pores : Pores
        Result of `hushpore.segment_pores`, which is not changed. It may be corrected already.
    scan : Volume, optional
        The scan of a result read from a folder: needed if air or padding around the sample was
        excluded. Without it, the grey values of corrected pores are not known (NaN).

    Raises
    ------
    InputError
        If the result was segmented in slabs on disk, or the scan is missing or does not belong to
        the result.

    Examples
    --------
    >>> import numpy as np
    >>> from hushpore import Corrections, Volume, segment_pores
    >>> grey = np.full((9, 9, 19), 200, np.uint8)
    >>> grey[2:7, 2:7, 2:9] = grey[2:7, 2:7, 10:17] = 50
    >>> fix = Corrections(segment_pores(Volume(grey)))
    >>> fix.merge_walls([1, 2])
    >>> fix.result.pores["num_voxels"].tolist()
    [375]
    >>> fix.undo()
    >>> fix.result.pores["num_voxels"].tolist()
    [175, 175]
    """

    def __init__(self, pores: Pores, scan: Volume | None = None) -> None:
        if pores.is_on_disk:
            raise InputError(
                "Pores that were segmented in slabs on disk cannot be corrected by hand. Crop or "
                "bin the scan, or allow more memory."
            )
        self._given = pores
        self._done: list[_Step] = []
        self._undone: list[_Step] = []
        self._threads = KernelThreads()
        volume = pores.volume
        settings = decided_settings(pores)
        shape = (1,) * (3 - volume.n_spatial) + volume.shape
        slabs = Slabs(shape[0], shape[0])
        padding = padding_of(pores)
        with open_work(volume, settings, slabs, Backend(), Stages(volume), padding) as work:
            self._spacing, self._faces_only = work.spacing, work.faces_only
            self._regions = Regions(
                pores.labels.reshape(shape),
                pores.basins,
                pores.graph,
                numbering_of(pores.labels, pores.graph),
                phase_of(pores, work, scan),
                grey_of(pores, slabs, scan),
                work.spacing,
                work.faces,
                work.solid_beyond,
                work.highest_void,
                self._threads,
                faces_only=work.faces_only,
            )
        with self._threads:
            self._counts = self._regions.count_open()
        # void of the other type, if only open or only closed void was segmented
        self._others = self._of_other_type()
        self._result: Pores | None = pores

    # ---- what is known

    @property
    def result(self) -> Pores:
        """The corrected segmentation; without corrections, the given one."""
        if self._result is None:
            self._result = self._measured() if self._done else self._given
        return self._result

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All corrections of the result, in order, including those that it had before."""
        own = (each for step in self._done for each in step.operations)
        return (*self._given.corrections, *own)

    @property
    def next_undo(self) -> str:
        """The correction that `undo` reverts, in words; empty if there is none."""
        return _words(self._done)

    @property
    def next_redo(self) -> str:
        """The correction that `redo` makes again, in words; empty if there is none."""
        return _words(self._undone)

    # ---- corrections

    def merge(self, pores: Sequence[int]) -> None:
        """Merge pores, given by their labels, into one.

        Raises
        ------
        InputError
            If there are fewer than two, or a label does not exist.
        """
        self.apply(Operation("merge", _labels(pores)))

    def merge_walls(self, pores: Sequence[int]) -> None:
        """Merge those of some pores that walls of one voxel separate, and fill these walls.

        A wall is solid with one of the pores before it and another after it along an axis.

        Raises
        ------
        InputError
            If there are fewer than two pores, a label does not exist, or there is no such wall.
        """
        self.apply(Operation("merge-walls", _labels(pores)))

    def split(self, pore: int, points: npt.ArrayLike) -> None:
        """Split a pore into one part per point.

        The pore is flooded from the points, so that it is cut at its necks, and halfway between the
        points where it is equally wide.

        Parameters
        ----------
        pore : int
            Its label.
        points : array_like
            (n, axes): at least two voxel indices (z, y, x), in 2D (y, x), all in the pore.

        Raises
        ------
        InputError
            If the pore does not exist, or a point is not in it.
        """
        self.apply(Operation("split", (int(pore),), _points(points)))

    def cut(self, pore: int, line: npt.ArrayLike, axis: int = 0) -> None:
        """Cut a pore in two along a straight line.

        Parameters
        ----------
        pore : int
            Its label.
        line : array_like
            (2, axes): voxel indices of both ends; the cut goes on straight beyond them.
        axis : int, optional
            In 3D, the axis along which the cut runs through all slices: 0 for a line drawn on a
            slice (y, x).

        Raises
        ------
        InputError
            If the pore does not exist, or the line leaves it whole.
        """
        self.apply(Operation("cut", (int(pore),), _points(line), int(axis)))

    def delete(self, pores: Sequence[int]) -> None:
        """Delete pores: their voxels become solid.

        Raises
        ------
        InputError
            If a label does not exist.
        """
        self.apply(Operation("delete", _labels(pores)))

    def paint(self, voxels: npt.ArrayLike, pore: int | None = None) -> None:
        """Add voxels to a pore.

        Parameters
        ----------
        voxels : array_like
            (n, axes), int: voxel indices (z, y, x), in 2D (y, x); or a boolean mask in the shape of
            the volume. They may be solid or belong to other pores.
        pore : int, optional
            Label of the pore; by default, and if the label is unused, a new pore is made.

        Raises
        ------
        InputError
            If voxels lie outside the volume.
        """
        label = int(self._regions.pores.max(initial=0)) + 1 if pore is None else int(pore)
        self.apply(Operation("paint", (label,), runs=self._runs(voxels)))

    def erase(self, voxels: npt.ArrayLike) -> None:
        """Remove voxels, given as for `paint`, from their pores: they become solid."""
        self.apply(Operation("erase", runs=self._runs(voxels)))

    def paint_labels(self, labels: Array) -> None:
        """Take over labels that were edited elsewhere, as one step.

        Parameters
        ----------
        labels : numpy.ndarray
            Integers in the shape of the volume. Each voxel that differs is painted or erased.

        Raises
        ------
        InputError
            If the shape differs, or nothing differs.
        """
        given = np.asarray(labels)
        if given.shape != self._given.volume.shape or given.dtype.kind not in "iu":
            raise InputError(
                f"Labels must be whole numbers of shape {self._given.volume.shape}; got "
                f"{given.dtype} of shape {given.shape}."
            )
        now = self._regions.values.reshape(given.shape)
        differs = (given != now) & ((given != 0) | (now > 0))
        places, values = np.argwhere(differs), given[differs]
        # erased first, so that the order does not matter
        self.apply(
            *(
                Operation("paint", (int(label),), runs=runs_of(places[values == label]))
                if label
                else Operation("erase", runs=runs_of(places[values == label]))
                for label in np.unique(values)
            )
        )

    def apply(self, *operations: Operation) -> None:
        """Make corrections, which are undone in one step.

        Raises
        ------
        InputError
            If one of them does not fit the pores or changes nothing; then none is made.
        """
        with self._threads:
            changes = self._make(operations)
        self._done.append(_Step(operations, tuple(changes)))
        self._undone.clear()
        self._result = None

    def _make(self, operations: tuple[Operation, ...]) -> list[_Written]:
        changes: list[_Written] = []
        try:
            for operation in operations:
                change = change_of(self._regions, operation, self._given.volume.n_spatial)
                if not change.at.size:
                    raise InputError(f"Nothing to change: {operation.text}.")
                changes.append(self._write(*change))
            if not operations:
                raise InputError("Nothing to change: the labels are those of the result.")
        except InputError:
            for at, before, *_ in reversed(changes):
                self._write(at, before)
            raise
        return changes

    def undo(self) -> None:
        """Revert the last correction, if there is one."""
        if self._done:
            step = self._done.pop()
            with self._threads:
                back = [self._write(at, before) for at, before, *_ in reversed(step.changes)]
            self._undone.append(_Step(step.operations, tuple(reversed(back))))
            self._result = None

    def redo(self) -> None:
        """Make the last reverted correction again, if there is one."""
        if self._undone:
            step = self._undone.pop()
            with self._threads:
                again = [self._write(at, values) for at, values, *_ in step.changes]
            self._done.append(_Step(step.operations, tuple(again)))
            self._result = None

    # ---- measuring

    def _write(self, at: Int64s, values: Int32s) -> _Written:
        """Change voxels, count the open void again if the void changed, and return the way back."""
        changes_void = bool(((self._regions.values.reshape(-1)[at] != 0) != (values != 0)).any())
        before, euler = self._regions.write(at, values)
        if changes_void:
            self._counts = self._regions.count_open()
        return _Written(at, before, changes_void, euler)

    def _of_other_type(self) -> tuple[int, int, int]:
        """Return open and closed voxels and components of void that was not segmented."""
        totals = self._given.provenance["result"]
        size = totals["sample_voxels"]
        known = (
            round(totals["open_porosity"] * size),
            round(totals["closed_porosity"] * size),
            totals["components"],
        )
        opened, closed, components = (a - b for a, b in zip(known, self._counts, strict=True))
        return opened, closed, components

    def _measured(self) -> Pores:
        given, volume = self._given, self._given.volume
        settings = dataclasses.replace(given.settings, intervals=False)
        graph, numbering = self._regions.graph()
        merged = result_of(measured(graph, numbering, settings, volume))
        before = given.provenance["result"]
        known = {name: each for name, each in before.items() if not is_of_interval(name)}
        changes = [change for step in self._done for change in step.changes]
        thickness = given.thickness
        if any(changes_void for _, _, changes_void, _ in changes):
            euler = sum(each for *_, each in changes)
            known |= self._void_totals(graph, euler)
            known = {name: each for name, each in known.items() if "_thickness" not in name}
            thickness = {}
        totals = totals_of(merged, volume, known, settings.edge_pores)
        values = self._regions.values.copy()
        labels = np.maximum(values, 0) if self._regions.has_excluded else values
        known_settings = dict(given.provenance["settings"])
        if "intervals" in known_settings:
            known_settings["intervals"] = False
        provenance = {
            **given.provenance,
            "settings": known_settings,
            "corrections": [each.to_dict() for each in self.operations],
            "result": totals,
        }
        return dataclasses.replace(
            given,
            **merged,
            labels=labels.reshape(volume.shape),
            porosity=totals["porosity"],
            provenance=provenance,
            curve={},
            thickness=thickness,
            _basins=RenumberedStack(values, self._regions.node_of()),
            _graph=graph,
            _settings=settings,
        )

    def _void_totals(self, graph: BasinGraph, euler: int) -> dict[str, Any]:
        """Return the totals of the void after it has changed."""
        given, volume = self._given, self._given.volume
        before = given.provenance["result"]
        opened, closed, count = (a + b for a, b in zip(self._counts, self._others, strict=True))
        share = float(before.get("exterior_share") or 0)
        phases = VoidTotals(opened, closed, count, given.sample, share)
        only = before.get("only_values")
        threshold = Threshold(before["threshold"], only_values=only and tuple(only))
        found = void_totals(phases, threshold, void_walls(graph), graph, volume)
        if "euler_number" in before:
            found["euler_number"] = before["euler_number"] + euler
        if given.settings.tortuosity:
            how = self._spacing, volume.n_spatial
            void = self._regions.values != 0
            ways = find_tortuosity(void, *how, faces_only=self._faces_only)
            found |= result_of(ways)
        return found

    def _runs(self, voxels: npt.ArrayLike) -> tuple[tuple[int, ...], ...]:
        given, shape = np.asarray(voxels), self._given.volume.shape
        if given.dtype == np.bool_ and given.shape == shape:
            given = np.argwhere(given)
        if given.ndim != 2 or given.shape[1] != len(shape) or given.dtype.kind not in "iu":
            raise InputError(
                f"Voxels must be whole numbers of shape (n, {len(shape)}), or a boolean mask of "
                f"shape {shape}; got {given.dtype} of shape {given.shape}."
            )
        return runs_of(given.astype(np.int64))


def correct(pores: Pores, operations: Iterable[Operation], scan: Volume | None = None) -> Pores:
    """Correct a segmentation by recorded corrections.

    Parameters
    ----------
    pores : Pores
        Result of `hushpore.segment_pores`.
    operations : iterable of Operation
        Corrections, in order, as `Pores.corrections` lists them.
    scan : Volume, optional
        See `Corrections`.

    Returns
    -------
    Pores
        The corrected result.

    Raises
    ------
    InputError
        If a correction does not fit the pores.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> labels = np.zeros((8, 8, 8), np.uint8)
    >>> labels[2:5, 2:5, 2:5], labels[5:7, 2:5, 2:5] = 1, 2
    >>> found = hushpore.measure_labels(labels, values="labels")
    >>> hand = hushpore.Corrections(found)
    >>> hand.merge([1, 2])
    >>> len(hushpore.correct(found, hand.result.corrections).pores)
    1
    """
    corrections = Corrections(pores, scan)
    for operation in operations:
        corrections.apply(operation)
    return corrections.result


def _words(steps: list[_Step]) -> str:
    if not steps:
        return ""
    first, *others = steps[-1].operations
    return first.text + (f" and {len(others)} more" if others else "")


def _labels(pores: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({int(label) for label in pores}))


def _points(points: npt.ArrayLike) -> tuple[tuple[float, ...], ...]:
    given = np.asarray(points, np.float64)
    if given.ndim != 2:
        raise InputError(f"Points must be a table of voxel indices; got shape {given.shape}.")
    return tuple(tuple(map(float, point)) for point in given)


def repeat_corrections(pores: Pores, record: Mapping[str, Any]) -> Pores:
    """Return a segmentation with the corrections that a record of the job lists."""
    operations = [Operation.of_dict(each) for each in record.get("corrections", ())]
    return correct(pores, operations) if operations else pores
