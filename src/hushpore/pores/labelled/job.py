"""The measurement of labels made by another program, as a job."""

from __future__ import annotations

import functools
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.events import Note, Progress, Remedy
from hushpore.base.volume import Volume
from hushpore.device.backend import Backend
from hushpore.pores.job import check_axes, open_work, pores_of, prepare, segment, warm_up_kind
from hushpore.pores.parallel import kernel
from hushpore.pores.pipeline import Stages
from hushpore.pores.slab_steps import UnstitchedBasins
from hushpore.pores.slabs import Scratch
from hushpore.pores.void.threshold import GreyValues, Range, RoundedGrey, Rounding, find_range
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.merging import Numbering
from hushpore.pores.work import plan_slabs
from hushpore.scan.exterior import Exterior
from hushpore.scan.sample import kind_of_values

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s, Mask
    from hushpore.base.events import Event, Job
    from hushpore.pores.engine import Pass
    from hushpore.pores.labelled.settings import MeasureSettings
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs, Stack
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work
    from hushpore.scan.sample import Kind


class GivenLabels:
    """Labels that take the place of the basins of a watershed, one basin for each label.

    `stack`: (z, y, x), int32: labels 1 to n, 0 in the solid; basins afterwards. `count`: n. `scan`:
    of the same shape, for grey values. The basins are numbered by their peaks, as those of a
    watershed; `label_of` holds their labels. `rounding`: of the grey values; by default that of
    their range.
    """

    def __init__(
        self, stack: Stack, count: int, scan: Volume | None = None, rounding: Rounding | None = None
    ) -> None:
        self.stack, self.count, self.scan, self.rounding = stack, count, scan, rounding
        # (basins + 1,), int32: label of each basin
        self.label_of: Int32s = np.arange(count + 1, dtype=np.int32)
        # (pores,), int32: labels that became pores
        self.kept: Int32s = self.label_of[1:]

    def relabel_exits(self, slab: int, basins: Int32s, threads: KernelThreads) -> None:
        """Do nothing: labels do not have exits, unlike `Watershed`."""

    def grey(self, work: Work) -> Pass[RoundedGrey | None]:
        """Return the grey values of the scan rounded for exact sums; None if not known."""
        if self.scan is None:
            return None
        values, found = GreyValues(self.scan, work.slabs, timer=work.timer), []
        if self.rounding is not None:
            return RoundedGrey(values, self.rounding)
        for first, last in work.slabs:
            found.append(find_range(values.read(first, last), work.threads))
            yield last / work.slabs.depth
        ends = functools.reduce(Range.join, found)
        return None if ends.bad else RoundedGrey(values, Rounding.of(values.dtype, *ends[:2]))

    def find(self, work: Work, distance: Stack) -> Pass[UnstitchedBasins]:
        """Find the peak of each label and number the labels by their peaks.

        Voxels without distance, outside the sample, are cleared.
        """
        plane, depth = int(np.prod(work.shape[1:])), work.slabs.depth
        peak = np.full(self.count + 1, -1, np.int64)
        highest = np.zeros(self.count + 1, np.float32)
        for first, last in work.slabs:
            part = self.stack.read(first, last)
            heights = distance.read(first, last).reshape(-1)
            _find_peaks(part.reshape(-1), heights, first * plane, peak, highest)
            self.stack.write(first, part)
            yield 0.5 * last / depth
        kept = np.flatnonzero(peak >= 0)
        order = kept[np.argsort(peak[kept], kind="stable")]
        basin_of = np.zeros(self.count + 1, np.int32)
        basin_of[order] = np.arange(1, order.size + 1)
        self.label_of = np.concatenate([[0], order]).astype(np.int32)
        self.count = order.size
        for first, last in work.slabs:
            part = self.stack.read(first, last)
            self.stack.write(first, apply_labels(part, basin_of, work.threads))
            yield 0.5 + 0.5 * last / depth
        found: Any = self
        return UnstitchedBasins(self.stack, found, peak[order])

    def numbering(self, graph: BasinGraph, minimum_voxels: int, excluded: Mask | None) -> Numbering:
        """Number the pores from 1 in the order of the given labels.

        `minimum_voxels`, `excluded`: as for `hushpore.pores.watershed.merging.number_pores`.
        """
        counts = graph.voxels > 0
        if excluded is not None:
            counts &= ~excluded
        counts[0] = False
        keeps = counts & (graph.voxels >= minimum_voxels)
        small = graph.voxels[counts & ~keeps]
        basins = np.flatnonzero(keeps)
        root = basins[np.argsort(self.label_of[basins])].astype(np.int32)
        label = np.zeros(graph.count + 1, np.int32)
        label[root] = np.arange(1, root.size + 1)
        self.kept = self.label_of[root]
        return Numbering(label, root, small=(small.size, int(small.sum())))


@kernel
def _find_peaks(
    labels: Int32s, distance: Float32s, offset: int, peak: Int64s, highest: Float32s
) -> None:
    """Find the first voxel with the largest distance of each label, in place."""
    for i in range(labels.size):
        label = labels[i]
        if label > 0:
            if distance[i] > highest[label]:
                highest[label] = distance[i]
                peak[label] = offset + i
            elif distance[i] <= 0:
                labels[i] = 0


#: Values that are counted by `numpy.bincount`; larger ones are sorted.
_COUNTED = 1 << 24


def measure_labels(volume: Volume, settings: MeasureSettings, backend: Backend) -> Job:
    """Measure labels of another program as pores, without a threshold or a watershed.

    `volume`: 2D or 3D labels, one whole number above 0 for each pore; or a mask or a probability
    map, whose connected components are the pores. `backend`: ignored apart from its timer; the job
    runs on the CPU.
    Yields: Progress, Timing, Note, Preview ("labels").
    Returns: `Pores`, as `hushpore.pores.job.segment_pores`. Its labels are those of the volume,
    numbered from 1 without gaps.
    Raises InputError if the volume has leading axes, is empty, or holds grey values;
    MemoryLimitError if it does not fit into memory.
    """
    check_axes(volume)
    kind = _kind_of(volume, settings)
    volume = _with_voxel_size_of_scan(volume, settings)
    stages, notes = Stages(volume, backend.timer()), list[Note]()
    how = settings.of_pores()
    slabs = plan_slabs(volume, how)
    yield from stages.prepare(prepare(warm_up_kind(how, True, slabs.on_disk)))
    given, values, pair = yield from _read(volume, settings, kind, slabs, stages)
    for note in _notes(volume, kind, values, pair, settings):
        notes.append(note)
        yield note
    scan = volume.auxiliary_of(settings, "image")
    given.scan = None if scan is None else volume.replace(scan)
    void = volume.replace(_void_of(given.stack, volume, slabs))
    host = Backend(threads=backend.threads)
    around = Exterior("keep", how.ball_radius, pores_are=how.pores_are)
    with open_work(void, how, slabs, host, stages, labels=given) as work:
        found = yield from segment(work, host, stages, notes, of=volume.data)
    label = values[given.kept - 1]
    is_renumbered = not np.array_equal(label, found.columns.pores["label"])
    further = {"given_label": label} if is_renumbered else None
    yield Progress("labels", stages.slices, stages.slices, "slices", 1.0)
    return pores_of(found, settings, around, notes, "measure", volume, further)


def _kind_of(volume: Volume, settings: MeasureSettings) -> Kind:
    """Return how the values become pores; raise InputError if they cannot."""
    if settings.values != "auto":
        return cast("Kind", settings.values)
    if volume.holds_labels and volume.dtype != np.bool_:
        return "labels"
    kind: Kind = kind_of_values(volume)
    if not kind:
        raise InputError(
            f"{volume.name} seems to hold grey values, but labels are needed: whole numbers, one "
            "for each pore; a mask of two values; or probabilities from 0 to 1. Segment a scan "
            "with 'hushpore pores'. If the values are labels all the same, set values='labels'."
        )
    return kind


def _with_voxel_size_of_scan(volume: Volume, settings: MeasureSettings) -> Volume:
    """Return labels without a voxel size with that of the scan."""
    scan = volume.auxiliary.get(settings.image)
    if settings.image:
        # raises an error if the shapes differ
        volume.auxiliary_of(settings, "image")
    if volume.unit != "pixel" or not isinstance(scan, Volume) or scan.unit == "pixel":
        return volume
    return volume.replace(
        volume.data, spacing=scan.spacing, unit=scan.unit, origin=scan.origin,
        notes=[*volume.notes, f"The voxel size, {scan.size_in_words}, is that of {scan.name}."],
    )  # fmt: skip


def _read(
    volume: Volume, settings: MeasureSettings, kind: Kind, slabs: Slabs, stages: Stages
) -> Generator[Event, Any, tuple[GivenLabels, Array, tuple[float, float] | None]]:
    """Read the labels into a stack, numbered from 1 without gaps.

    Returns: the labels; the value of each (n,), for a mask 1 to n; and the two values of a mask.
    """
    from scipy import ndimage

    shape = (1,) * (3 - volume.n_spatial) + volume.shape
    # the stack outlives the job as the basins of the result
    with closing(Scratch(slabs.on_disk)) as scratch:
        stack = scratch.stack("basins", shape, np.int32)
    if kind == "labels":
        values = yield from stages.run("reading", _distinct(volume, slabs), 0.05)
        yield from stages.run("reading", _number(volume, slabs, values, stack), 0.1)
        return GivenLabels(stack, values.size), values, None
    if slabs.on_disk:
        raise MemoryLimitError(
            f"The connected components of {volume.name} are found in memory, where it does not "
            "fit. Crop it or bin it, or number its components with another program."
        )
    with stages.timer.stage("reading"):
        inside, pair = _inside(volume, settings, kind)
        edge = 1 if settings.connectivity == "faces" else volume.n_spatial
        near = ndimage.generate_binary_structure(volume.n_spatial, edge)
        count = int(ndimage.label(inside, near, stack.array().reshape(volume.shape)))
    return GivenLabels(stack, count), np.arange(1, count + 1), pair


def _part(volume: Volume, first: int, last: int) -> Array:
    """Return slices of labels (z, y, x); raise InputError unless they are whole numbers from 0."""
    data: Any = volume.data if volume.n_spatial == 3 else np.asarray(volume.data)[None]
    part = np.asarray(data[first:last])
    if part.dtype.kind == "f" and not (np.isfinite(part).all() and (part == np.rint(part)).all()):
        raise InputError(
            f"Labels must be whole numbers, but {volume.name} contains fractions. For a "
            "probability map, set values='probability'."
        )
    if part.dtype.kind != "u" and part.size and part.min() < 0:
        raise InputError(
            f"Labels must be 0 or above, but {volume.name} contains {part.min():g}. Set negative "
            "values to 0."
        )
    return part.astype(np.int64) if part.dtype.kind in "bf" else part


def _distinct(volume: Volume, slabs: Slabs) -> Pass[Array]:
    """Return the labels above 0, ascending."""
    found: Array = np.zeros(0, np.int64)
    for first, last in slabs:
        part = _part(volume, first, last)
        if part.size and int(part.max()) < _COUNTED:
            own = np.flatnonzero(np.bincount(part.reshape(-1)))
        else:
            own = np.unique(part)
        found = np.union1d(found, own)
        yield last / slabs.depth
    return found[found > 0]


def _number(volume: Volume, slabs: Slabs, values: Array, stack: Stack) -> Pass[None]:
    """Write the rank of each label among all, from 1."""
    known = np.concatenate([np.zeros(1, values.dtype), values])
    by_value = int(known[-1]) < _COUNTED
    if by_value:
        rank = np.zeros(int(known[-1]) + 1, np.int32)
        rank[known.astype(np.int64)] = np.arange(known.size)
    for first, last in slabs:
        part = _part(volume, first, last)
        stack.write(
            first, rank[part] if by_value else np.searchsorted(known, part).astype(np.int32)
        )
        yield last / slabs.depth


def _inside(
    volume: Volume, settings: MeasureSettings, kind: Kind
) -> tuple[Mask, tuple[float, float] | None]:
    """Return the pores of a mask or a probability map, and the values of a mask if it has two."""
    values = volume.array()
    if kind == "probability":
        inside: Mask = values >= max(settings.probability_level, np.finfo(np.float32).tiny)
        return inside, None
    low, high = (values.min(), values.max()) if values.size else (0, 0)
    has_two = low < high and bool(((values == low) | (values == high)).all())
    inside = values > (low if has_two else 0)
    pair = (float(low), float(high)) if has_two else None
    return inside if settings.pores_are == "bright" else ~inside, pair


class _Void:
    """The labelled voxels of a stack in temporary files, as a lazy boolean array."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self.shape, self.dtype = stack, stack.shape, np.dtype(np.bool_)
        self.ndim = len(self.shape)

    def __getitem__(self, key: slice) -> Mask:
        first, last, _ = key.indices(self.shape[0])
        void: Mask = self._stack.read(first, last) != 0
        return void


def _void_of(stack: Stack, volume: Volume, slabs: Slabs) -> Any:
    """Return the labelled voxels as booleans in the shape of the volume."""
    if slabs.on_disk and volume.n_spatial == 3:
        return _Void(stack)
    return (stack.array() != 0).reshape(volume.shape)


def _notes(
    volume: Volume,
    kind: Kind,
    values: Array,
    pair: tuple[float, float] | None,
    settings: MeasureSettings,
) -> list[Note]:
    """Return what was measured as a pore, and that labels were renumbered."""
    count = values.size
    if kind == "labels":
        if not count or values[-1] == count:
            return []
        text = (
            f"The {count:,} labels have numbers up to {values[-1]:,}. They were renumbered 1 to "
            f"{count:,}; the column given_label has the numbers of {volume.name}."
        )
        return [Note(text, subject="result")]
    if kind == "probability":
        text = (
            "Each connected component of probabilities from "
            f"{settings.probability_level:g} was measured as one pore."
        )
        return [Note(text, subject="result")]
    is_bright = settings.pores_are == "bright"
    what = "the values above 0" if is_bright else "the values 0"
    if pair:
        pore, solid = reversed(pair) if is_bright else pair
        what = f"the value {pore:g} ({solid:g} is solid)"
    text = f"The values are a mask: each connected component of {what} was measured as one pore."
    swap = Remedy("Swap pores and solid", {"pores_are": "dark" if is_bright else "bright"})
    return [Note(text, subject="result", remedy=swap)]
