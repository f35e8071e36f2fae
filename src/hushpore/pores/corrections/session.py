"""Corrections of a segmentation by hand: merge, split, cut, delete, paint and erase pores.

A correction changes labels; afterwards all of them are measured, as labels of another program are.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.rescaled import held
from hushpore.base.volume import Volume
from hushpore.device.backend import Backend
from hushpore.pores.corrections.operations import (
    Change,
    EditedLabels,
    Operation,
    change_of,
    runs_of,
)
from hushpore.pores.geometry.sums import SUMS
from hushpore.pores.job import find_connection, open_work
from hushpore.pores.labelled.job import GivenLabels
from hushpore.pores.numbering import numbering_of, void_totals
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.pipeline import Pipeline, Stages
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.tables.measures import void_walls
from hushpore.pores.tables.totals import is_of_interval
from hushpore.pores.transport.result import without_transport
from hushpore.pores.void.components import AIR
from hushpore.pores.work import Threshold, spacing_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Int32s, Mask
    from hushpore.pores.pipeline import Segmented
    from hushpore.pores.result import Pores
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import VoidTotals

#: Name of the sample, in place of an exterior that was excluded, while labels are measured.
_SAMPLE = "sample"


class _Step(NamedTuple):
    """Corrections that are undone together, with what each changed."""

    operations: tuple[Operation, ...]
    changes: tuple[Change, ...]
    before: tuple[Int32s, ...]  # values of the changed voxels before each


class Corrections:
    """Corrections of a pore segmentation by hand, with undo and redo.

    Merged pores keep the label of the largest, the largest part of a split pore keeps its label,
    and all other labels stay, so labels may have gaps. Deleted and erased voxels become solid,
    painted ones void; voxels of the exterior stay as they are. `result` measures all pores again.

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
        volume = pores.volume
        self._given = pores
        self._done: list[_Step] = []
        self._undone: list[_Step] = []
        self._threads = KernelThreads()
        self._labels = EditedLabels(
            _values_of(pores),
            _exterior_of(pores, scan),
            volume.n_spatial,
            spacing_of(volume),
            pores.settings.border_is_solid,
        )
        self._scan = _grey_of(pores, scan)
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
        new = (operation for step in self._done for operation in step.operations)
        return (*self._given.corrections, *new)

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
        label = int(self._labels.values.max(initial=0)) + 1 if pore is None else int(pore)
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
        now = self._labels.values.reshape(given.shape)
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
        if not operations:
            raise InputError("Nothing to change: the labels are those of the result.")
        changes: list[Change] = []
        before: list[Int32s] = []
        flat = self._labels.flat
        try:
            for operation in operations:
                with self._threads:
                    change = change_of(self._labels, operation, self._threads)
                if not change.at.size:
                    raise InputError(f"Nothing to change: {operation.text}.")
                changes.append(change)
                before.append(flat[change.at])
                flat[change.at] = change.values
        except InputError:
            self._revert(changes, before)
            raise
        self._done.append(_Step(operations, tuple(changes), tuple(before)))
        self._undone.clear()
        self._result = None

    def undo(self) -> None:
        """Revert the last correction, if there is one."""
        if self._done:
            step = self._done.pop()
            self._revert(step.changes, step.before)
            self._undone.append(step)
            self._result = None

    def redo(self) -> None:
        """Make the last reverted correction again, if there is one."""
        if self._undone:
            step = self._undone.pop()
            for change in step.changes:
                self._labels.flat[change.at] = change.values
            self._done.append(step)
            self._result = None

    def _revert(self, changes: Sequence[Change], before: Sequence[Int32s]) -> None:
        """Write the values back that voxels had before some changes."""
        for change, values in zip(reversed(changes), reversed(before), strict=True):
            self._labels.flat[change.at] = values

    # ---- measuring

    def _measured(self) -> Pores:
        given, values = self._given, self._labels.values
        labels = np.maximum(values, 0).reshape(given.volume.shape)
        changes_void = not np.array_equal(values != 0, given.basins != 0)
        segmented, connection = self._measure(values, connects=changes_void)
        graph = dataclasses.replace(segmented.graph, rounding=given.graph.rounding)
        if self._scan is None:
            graph = self._with_known_grey(graph, labels)
        record = given.provenance["result"]
        totals = {name: value for name, value in record.items() if not is_of_interval(name)}
        if changes_void:
            totals = {name: value for name, value in totals.items() if "_thickness" not in name}
            totals = without_transport(totals)
            totals |= self._void_totals(segmented, graph)
            totals |= {name: value for name, value in connection.items() if name in record}
        settings = {**given.provenance["settings"]}
        for name in ("intervals", "detection_limit"):
            if name in settings:
                settings[name] = False
        return given.measured_again(
            numbering_of(labels, graph),
            totals,
            graph=graph,
            settings=dataclasses.replace(given.settings, intervals=False, detection_limit=False),
            labels=labels,
            thickness={} if changes_void else given.thickness,
            transport=None if changes_void else given.transport,
            curve={},
            provenance={
                **given.provenance,
                "settings": settings,
                "corrections": [operation.to_dict() for operation in self.operations],
            },
            _basins=segmented.basins,
        )

    def _measure(
        self, values: Int32s, *, connects: bool = False
    ) -> tuple[Segmented, dict[str, Any]]:
        """Measure labels as those of another program, with one basin for each value.

        Returns: the basins and their graph, and the Euler number and tortuosity if requested by
        `connects`.
        """
        given, exterior, scan = self._given, self._labels.exterior, self._scan
        lowest = int(values.min())
        voxels = np.bincount((values - lowest).reshape(-1))
        voxels[-lowest] = 0
        rank = np.cumsum(voxels > 0, dtype=np.int32)
        rank[voxels == 0] = 0
        stack = Stack.of(rank[values - lowest])
        rounding = None if scan is None else given.graph.rounding
        labels = GivenLabels(stack, int(rank.max()), scan, rounding)
        settings = PoreSettings(
            exterior="keep",
            sample_mask="" if exterior is None else _SAMPLE,
            minimum_voxels=1,
            merge_overlapping=False,
            connectivity=given.settings.connectivity,
            border_is_solid=given.settings.border_is_solid,
            tortuosity=given.settings.tortuosity,
        )
        void, shape = values != 0, given.volume.shape
        auxiliary = {}
        if exterior is not None:
            void |= exterior
            auxiliary[_SAMPLE] = (~exterior).reshape(shape)
        volume = Volume(
            void.reshape(shape), given.volume.spacing, given.volume.unit, auxiliary=auxiliary
        )
        stages, slabs = Stages(volume), Slabs(len(values), len(values))
        with open_work(volume, settings, slabs, Backend(), stages, labels=labels) as work:
            segmented = result_of(Pipeline(work, Backend(), stages, []).run())
            connection = find_connection(work, segmented.basins, stages) if connects else None
            return segmented, result_of(connection) if connection else {}

    @cached_property
    def _given_void(self) -> VoidTotals:
        """The void of the given labels, measured as that of the corrected ones."""
        return self._measure(_values_of(self._given))[0].void

    def _void_totals(self, segmented: Segmented, graph: BasinGraph) -> dict[str, Any]:
        """Return the totals of the void after it has changed."""
        given, void = self._given, segmented.void
        record = given.provenance["result"]
        if given.settings.pore_type != "all":
            # void of the other type, which was not segmented
            first, size = self._given_void, record["sample_voxels"]
            void = void._replace(
                open_voxels=void.open_voxels
                + round(record["open_porosity"] * size)
                - first.open_voxels,
                closed_voxels=void.closed_voxels
                + round(record["closed_porosity"] * size)
                - first.closed_voxels,
                components=void.components + record["components"] - first.components,
            )
        totals = void_totals(void, Threshold(None), void_walls(graph), graph, given.volume)
        of_threshold = ("threshold", "threshold_groups")
        return {name: value for name, value in totals.items() if name not in of_threshold}

    def _with_known_grey(self, graph: BasinGraph, labels: Int32s) -> BasinGraph:
        """Return a graph with the grey values of pores that are as in the given result."""
        given = self._given
        changed = labels != given.labels
        touched = np.union1d(labels[changed], given.labels[changed])
        before, now = numbering_of(given.labels, given.graph), numbering_of(labels, graph)
        of_grey = [k for k, each in enumerate(SUMS) if each.powers[3]]
        known = np.zeros((before.names.size, len(of_grey)), np.int64)
        np.add.at(known, before.label_of, given.graph.sums[:, of_grey])
        rows = now.root[~np.isin(now.names[1:], touched)]
        sums = graph.sums.copy()
        same = np.searchsorted(before.names, now.names[now.label_of[rows]])
        sums[rows[:, None], of_grey] = known[same]
        return dataclasses.replace(graph, sums=sums)

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


def _values_of(pores: Pores) -> Int32s:
    """Return the labels of a result, with void of no pore as its basins below 0, (z, y, x)."""
    basins = pores.basins
    labels = pores.labels.reshape(basins.shape)
    values: Int32s = np.where(labels > 0, labels, -basins)
    return values


def _grey_of(pores: Pores, scan: Volume | None) -> Volume | None:
    """Return the scan with the grey values of a result; None if they are not known.

    `scan`: replaces the volume of the result.
    """
    volume: Any = pores.volume if scan is None else scan
    if scan is None and pores.provenance["job"] == "measure":
        # the volume holds the given labels
        volume = volume.auxiliary.get(pores.provenance["settings"].get("image"))
    has_grey = (
        isinstance(volume, Volume)
        and volume.data is not pores.labels
        and volume.dtype != np.bool_
        and volume.shape == pores.volume.shape
    )
    if not has_grey:
        return None
    # read once, since each correction is measured with it
    grey: Volume = volume
    return grey if isinstance(held(grey.data), np.ndarray) else grey.replace(grey.array())


def _exterior_of(pores: Pores, scan: Volume | None) -> Mask | None:
    """Return the voxels that were excluded as exterior, (z, y, x); None if there are none.

    `scan`: replaces the volume of the result.
    Raises InputError if the scan is missing or does not belong to the result.
    """
    totals = pores.provenance["result"]
    settings = dataclasses.replace(
        pores.settings,
        exterior=totals.get("exterior", "keep"),
        ball_radius=totals.get("ball_radius", pores.settings.ball_radius),
        local_thickness="none",
        intervals=False,
        detection_limit=False,
    )
    padding = totals.get("padding_value")
    if not (settings.removes_air or settings.sample_mask or padding is not None):
        return None
    if pores.provenance["job"] != "pores":
        raise InputError(
            "Labels that were measured with a sample mask cannot be corrected by hand. Set them to "
            "0 outside the sample and measure them without a mask."
        )
    volume = pores.volume if scan is None else scan
    if volume.data is pores.labels:
        raise InputError(
            "The exterior of these pores was excluded and is not stored with them. Correcting them "
            "needs the scan as well: open it beside them; in Python, Corrections(pores, scan)."
        )
    if volume.shape != pores.volume.shape:
        raise InputError(
            f"The scan has shape {volume.shape}, but the pores have shape {pores.volume.shape}."
        )
    stages, slabs = Stages(volume), Slabs(len(pores.basins), len(pores.basins))
    with open_work(volume, settings, slabs, Backend(), stages, padding) as work:
        exterior: Mask
        exterior = result_of(Pipeline(work, Backend(), stages, []).find_phase()).array() >= AIR
    if (exterior & (pores.basins != 0)).any():
        raise InputError("The scan does not belong to these pores: its exterior is another one.")
    return exterior


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
