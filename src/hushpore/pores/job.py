"""The pore segmentation as a job: threshold, void, distance, basins, merging, measurement."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import wait
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Note, Progress, mapped
from hushpore.base.provenance import fingerprint_beside, make_provenance
from hushpore.base.rescaled import held
from hushpore.base.volume import SPATIAL_AXES, Volume, how_to_choose
from hushpore.device.backend import Backend
from hushpore.device.memory import arrays_apart, is_out_of_memory, scratch_folder
from hushpore.pores.advice import advise
from hushpore.pores.compiling import compile_beside
from hushpore.pores.detection import (
    PART,
    STAGE,
    Limit,
    as_in_solid,
    at_work,
    find_limit,
    why_no_limit,
)
from hushpore.pores.forms.limits import read_limits
from hushpore.pores.noise import find_noise, middle_of, with_minimum
from hushpore.pores.numbering import (
    excluded_basins,
    mark_basins,
    measured,
    merged_by,
    number_basins,
    number_by_markers,
    outside_totals,
    require_in_void,
    small_totals,
    thickness_totals,
    void_totals,
    whole_markers,
)
from hushpore.pores.parallel import KernelThreads, WarmUp
from hushpore.pores.pipeline import Pipeline, Stages, is_noise
from hushpore.pores.porosity import find_match, find_subvoxel
from hushpore.pores.result import Pores
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import find_local_thickness, write_labels
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.tables.measures import void_walls
from hushpore.pores.topology import find_euler_number, find_tortuosity
from hushpore.pores.uncertainty import FEWEST_PARTS, Merged, find_certainty
from hushpore.pores.watershed.merging import find_peaks
from hushpore.pores.work import Work, check_grey, plan_slabs
from hushpore.scan.exterior import Exterior, find_exterior, make_thumbnail

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from hushpore.base.arrays import Array, Float64s, Int32s
    from hushpore.base.events import Event, Job, Timing
    from hushpore.base.settings import Settings
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.numbering import Columns, Marks
    from hushpore.pores.pipeline import Segmented
    from hushpore.pores.slabs import Stack
    from hushpore.pores.transport.result import Transport
    from hushpore.pores.uncertainty import Certainty
    from hushpore.pores.watershed.merging import Numbering


def segment_pores(volume: Volume, settings: PoreSettings, backend: Backend) -> Job:
    """Segment and measure the pores of a volume.

    `volume`: 2D or 3D grey values of any real dtype, or booleans, True in the void. `backend`: the
    device; labels are the same on a GPU. If a requested GPU cannot be used, the job runs on the CPU
    and yields a note.
    Yields: Progress, Timing, Note, Preview ("labels"), after every slab of a stage. Previews show
    the basins of one slice and then its pores, as soon as its slab is done: the slice of the last
    `Attention` that was sent in, else the middle slice.
    Returns: `Pores`.
    Raises InputError if the volume has leading axes, is empty or constant, holds NaN, or is too
    large to index; MemoryLimitError if it does not fit into memory.

    The labels are the same on any number of threads. A void without any solid is one pore, of
    infinite inscribed diameter; a volume without void has none.
    """
    check_axes(volume)
    check_grey(volume, settings)
    stages = Stages(volume, backend.timer())
    notes: list[Note] = []
    with stages.timer.stage("sample"):
        small = make_thumbnail(volume)
        exterior = find_exterior(volume, settings, small)
    # the job runs with these settings; the record keeps the given ones
    decided = exterior.apply(settings)
    slabs = plan_slabs(volume, decided)
    if slabs.on_disk:
        notes += _notes_on_slabs(slabs, settings)
        yield from notes
    kind = warm_up_kind(decided, volume.dtype == np.bool_, slabs.on_disk)
    yield from stages.prepare(prepare(kind))
    if decided.measured_porosity is not None and volume.dtype != np.bool_:
        with open_work(volume, decided, slabs, backend, stages, exterior.padding) as work:
            match = yield from stages.run("threshold", find_match(work), 0.08)
        notes.append(match.note(decided.measured_porosity / 100))
        yield notes[-1]
        decided = match.apply(decided)
    with open_work(volume, decided, slabs, backend, stages, exterior.padding) as work:
        found = yield from segment(work, backend, stages, notes, measures_noise=True)
    # its values are in memory if they were read
    read, share = found.segmented.work.volume, found.segmented.void.exterior_share
    further, warnings = advise(read, settings, decided, exterior, small, share, found.totals)
    found.totals.update(further)
    for warning in warnings:
        notes.append(warning)
        yield warning
    yield Progress("labels", stages.slices, stages.slices, "slices", 1.0)
    return pores_of(found, settings, exterior, notes)


def _notes_on_slabs(slabs: Slabs, settings: PoreSettings) -> list[Note]:
    """Return the notes on work in slabs on disk, which come before hours of it."""
    text = (
        f"Worked on in {len(slabs)} slabs of {slabs.thickness} slices, with temporary files "
        f"in {scratch_folder()}."
    )
    notes = [Note(text)]
    if settings.intervals:
        # the user may want the job for its intervals
        text = (
            "There are no intervals: they are found of scans that fit into memory. Crop the "
            "scan or bin it, or allow more memory, to have them."
        )
        notes.append(Note(text, warning=True))
    return notes


def segment_as_set(
    volume: Volume, settings: PoreSettings, backend: Backend, slabs: Slabs | None = None
) -> Job:
    """Segment a volume by settings with a fixed treatment of the exterior, without warnings.

    `slabs`: division into slabs; by default planned from the memory.
    """
    stages, notes = Stages(volume, backend.timer()), list[Note]()
    slabs = slabs or plan_slabs(volume, settings)
    with open_work(volume, settings, slabs, backend, stages) as work:
        found = yield from segment(work, backend, stages, notes)
    around = Exterior(settings.exterior, settings.ball_radius)
    return pores_of(found, settings, around, notes)


@contextmanager
def open_work(
    volume: Volume,
    settings: PoreSettings,
    slabs: Slabs,
    backend: Backend,
    stages: Stages,
    padding: float | None = None,
    labels: Any = None,
) -> Iterator[Work]:
    """Open the `Work` of a job, with its scratch folder and threads, for a ``with`` block.

    `labels`: `GivenLabels` in place of a watershed.
    """
    with closing(Scratch(slabs.on_disk)) as scratch, KernelThreads(backend.threads) as threads:
        yield Work(volume, settings, slabs, scratch, threads, stages.timer, padding, labels=labels)


class _Found(NamedTuple):
    """Findings of a segmentation, from which the result is made."""

    segmented: Segmented
    device: str
    labels: Stack
    columns: Columns
    numbering: Numbering
    totals: dict[str, Any]  # except the totals from the tables and of the exterior
    thickness: dict[str, LocalThickness]
    transport: Transport | None
    curve: dict[str, Float64s]
    device_labels: Any
    timing: Timing
    digest: str


def segment(
    work: Work,
    backend: Backend,
    stages: Stages,
    notes: list[Note],
    of: Any = None,
    measures_noise: bool = False,
) -> Generator[Event, Any, _Found]:
    """Find the pores and measure them.

    `of`: values of the input, for its fingerprint; by default those of the volume.
    `measures_noise`: whether the noise may set the minimum pore size.
    """
    settings, slabs = work.settings, work.slabs
    acceptance = {"acceptance": read_limits(settings.limits)} if settings.limits else {}
    with ExitStack() as at_end:
        at_end.callback(backend.release)
        fingerprint = None
        data = work.volume.data if of is None else of
        if type(held(data)) is np.ndarray:
            # start now: hashing takes one thread longer than a GPU takes for the whole job
            fingerprint = at_end.enter_context(fingerprint_beside(data))
        found = yield from Pipeline(work, backend, stages, notes).run()
        work, basins, graph = found.work, found.basins, found.graph
        volume = work.volume
        if fingerprint is None:
            data = volume.data if of is None else of
            fingerprint = at_end.enter_context(fingerprint_beside(data))
        # the first labels; advice and what depends on noise come after them
        yield from stages.show(basins)
        noise = {}
        if measures_noise:
            with stages.timer.stage("noise"):
                share, padding = found.void.exterior_share, work.padding
                noise = find_noise(volume, settings, found.threshold, share, padding, work.threads)
        settings = with_minimum(settings, volume, found.threshold, noise)
        work = dataclasses.replace(work, settings=settings)
        found = found._replace(work=work)
        at_end.enter_context(arrays_apart() if is_noise(work, graph.count) else nullcontext())
        numbering, by, marks = yield from _merge(found, stages)
        if marks is not None:
            require_in_void(marks.voxels, marks.in_solid, marks.is_negative)
        found, device_labels = _label_on_device(found, numbering.label_of, notes)
        thickness = yield from _find_thickness(found, stages)
        # making the tables takes more memory than they do, so labels are not allocated before
        tables = yield from stages.run("labels", measured(graph, numbering, settings, volume), 0.94)
        connection = yield from find_connection(work, basins, stages)
        labels = work.scratch.stack("labels", basins.shape, np.int32)
        written = write_labels(basins, numbering.label_of, slabs, labels, work.threads)
        yield from stages.run("labels", written, 0.99, labels)
        transport, certainty, subvoxel, detection = None, None, {}, {}
        if settings.transport != "none":
            transport = yield from _find_transport(found, backend, stages, notes)
        if settings.subvoxel_porosity:
            subvoxel = yield from _find_subvoxel(found, stages, notes)
        if settings.intervals and not slabs.on_disk:
            certainty = yield from _find_certainty(found, labels, numbering, stages, notes)
        if settings.detection_limit:
            detection = yield from _find_detection_limit(found, stages, notes)
        while not fingerprint.done():
            # the job can be cancelled meanwhile
            wait([fingerprint], 0.05)
            yield Progress("labels", stages.slices, stages.slices, "slices", 0.99)
    timing = stages.timer.timing()
    yield timing
    totals = {
        **void_totals(found.void, found.threshold, void_walls(graph), graph, volume),
        **noise,
        **small_totals(numbering, graph, settings),
        **connection,
        "merged_by": by,
        **thickness_totals(thickness),
        **subvoxel,
        **({} if transport is None else transport.record),
        **({} if certainty is None else certainty.totals),
        **detection,
        **acceptance,
    }
    return _Found(
        found,
        found.backend.description,
        labels,
        tables,
        numbering,
        totals,
        thickness,
        transport,
        {} if certainty is None else certainty.curve,
        device_labels,
        timing,
        fingerprint.result(),
    )


def pores_of(
    found: _Found,
    given: Settings,
    exterior: Exterior,
    notes: list[Note],
    job: str = "pores",
    volume: Volume | None = None,
    further: Mapping[str, Array] | None = None,
) -> Pores:
    """Return the result, with the given settings in its record.

    `job`: key of `hushpore.jobs.JOBS`. `volume`: input; by default the volume of the work.
    `further`: further columns of the table of pores.
    """
    segmented, volume = found.segmented, volume or found.segmented.work.volume
    provenance = make_provenance(
        job, volume, given, found.device, found.timing, notes, {"blake2b": found.digest}
    )
    return Pores.of(
        segmented.graph,
        found.numbering,
        given if isinstance(given, PoreSettings) else segmented.work.settings,
        volume,
        {**found.totals, **outside_totals(exterior, segmented.void.exterior_share)},
        provenance=provenance,
        columns=found.columns,
        further=further,
        labels=found.labels.array().reshape(volume.shape),
        sample=segmented.void.sample,
        thickness=found.thickness,
        transport=found.transport,
        curve=found.curve,
        device_labels=found.device_labels,
        _basins=segmented.basins,
        _slabs=segmented.work.slabs,
    )


def _label_on_device(
    found: Segmented, label_of: Int32s, notes: list[Note]
) -> tuple[Segmented, Any]:
    """Let the basins on the GPU go, and return their labels there, if requested and they fit."""
    labels, relabelled = None, found.relabelled
    if relabelled is not None:
        try:
            labels = relabelled(label_of).reshape(found.work.volume.shape)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            notes.append(Note("The labels do not fit into the GPU's memory: none stay there."))
    return found._replace(relabelled=None), labels


def _merge(
    found: Segmented, stages: Stages
) -> Generator[Event, Any, tuple[Numbering, dict[str, Any], Marks | None]]:
    """Merge basins into pores and number the pores.

    Returns: the numbering, the entry of the record about the merging, and the positions of markers
    if given.
    """
    work, graph = found.work, found.graph
    settings, volume = work.settings, work.volume
    if work.labels is not None:
        excluded = excluded_basins(graph, settings, volume)
        numbering = work.labels.numbering(graph, settings.minimum_voxels or 1, excluded)
        return numbering, {"labels": work.labels.count}, None
    markers = volume.auxiliary_of(settings, "markers")
    if markers is not None:
        with stages.timer.stage("labels"):
            own = found.basins.array().reshape(volume.shape)
            marks = mark_basins(whole_markers(markers), own, graph.count)
            return *number_by_markers(marks, graph, settings, volume), marks
    peaks = None
    if settings.by_snow:
        assert found.distance is not None, "it was kept for this"
        where = found.distance, found.basins, work.slabs, graph, work.spacing, work.threads
        peaks = yield from stages.run("measuring", find_peaks(*where), 0.9)
    with stages.timer.stage("labels"):
        by = merged_by(graph, settings, volume, peaks)
        return number_basins(graph, settings, volume, peaks), by, None


def _find_thickness(
    found: Segmented, stages: Stages
) -> Generator[Event, Any, dict[str, LocalThickness]]:
    """Find the local thickness of the requested phases; closes the distance map of the void."""
    thickness: dict[str, LocalThickness] = {}
    distance = found.distance
    for name in found.work.settings.thickness_of:
        assert found.phase is not None, "it was kept for this"
        finding = find_local_thickness(found.work, found.phase, name, distance)
        thickness[name] = yield from stages.run("thickness", finding, 0.93)
    if found.distance is not None:
        found.distance.close()
    return thickness


def _find_transport(
    found: Segmented, backend: Backend, stages: Stages, notes: list[Note]
) -> Generator[Event, Any, Transport | None]:
    """Solve transport in the void."""
    work, sample = found.work, int(found.void.sample.sum())
    # imported late, because its kernels take 0.1 s to load
    from hushpore.pores.transport.job import transport_of_job

    void, conductivity = (found.basins.array() != 0).view(np.uint8), (0.0, 1.0)
    is_all_sample = sample == math.prod(work.volume.shape)
    how = work.volume, work.settings, work.threads, backend, stages, notes
    return (
        yield from transport_of_job(
            void, conductivity, *how, is_all_sample=is_all_sample, until=0.995
        )
    )


def _find_subvoxel(
    found: Segmented, stages: Stages, notes: list[Note]
) -> Generator[Event, Any, dict[str, Any]]:
    """Find the sub-voxel porosity; a mask of the void has none."""
    work = found.work
    if work.volume.dtype == np.bool_:
        return {}
    assert found.phase is not None, "it was kept for this"
    totals = yield from stages.run("sub-voxel", find_subvoxel(work, found.phase), 0.97)
    if not totals:
        text = (
            "There is no sub-voxel porosity, because void or solid is nowhere thicker than two "
            "voxels, so that its grey value was not found. Set it (void_grey, solid_grey)."
        )
        notes.append(Note(text, True, "result"))
        yield notes[-1]
    return totals


def find_connection(
    work: Work, basins: Stack, stages: Stages
) -> Generator[Event, Any, dict[str, Any]]:
    """Find the Euler number of the void and, if requested, its tortuosity."""
    counting = find_euler_number(basins, work.slabs, work.threads, faces_only=work.faces_only)
    euler_number = yield from stages.run("measuring", counting, 0.95)
    found: dict[str, Any] = {"euler_number": euler_number}
    if work.settings.tortuosity:
        how = work.spacing, work.volume.n_spatial
        ways = find_tortuosity(basins.array() != 0, *how, faces_only=work.faces_only)
        found |= yield from stages.run("tortuosity", ways, 0.96)
    return found


def _find_certainty(
    found: Segmented, labels: Stack, numbering: Numbering, stages: Stages, notes: list[Note]
) -> Generator[Event, None, Certainty | None]:
    """Find the uncertainty intervals; None if there are no pores."""
    work = found.work

    def again(settings: PoreSettings) -> Generator[Event, Any, Merged]:
        """Segment the volume again with other settings."""
        with closing(Scratch(on_disk=False)) as scratch:
            other = dataclasses.replace(work, settings=settings, scratch=scratch)
            quiet, host = Stages(work.volume), Backend(threads=work.threads.count)
            basins = yield from Pipeline(other, host, quiet, []).run()
            # no check of the markers, which may lie in the solid at another threshold
            merged, *_ = yield from _merge(basins, quiet)
            return Merged(basins.graph, merged, int(basins.void.sample.sum()))

    assert found.phase is not None, "it was kept for this"
    phase, grey = found.phase.array(), found.threshold.value
    with stages.timer.stage("intervals"):
        own = Merged(found.graph, numbering, int(found.void.sample.sum()))
        sure = yield from find_certainty(work, phase, labels.array(), own, grey, again)
    found.phase.close()
    if sure is not None and sure.parts < FEWEST_PARTS:
        text = (
            "The intervals are too narrow: the scan is too small for parts of it to be compared, "
            "which takes four typical diameters of its pores along an axis."
        )
        notes.append(Note(text, True, "result"))
        yield notes[-1]
    if sure is not None and sure.is_cut_off:
        text = (
            "The intervals may be too narrow: most voxels of the pores or of the solid have the "
            "lowest or the highest grey value, so that noise and blur cannot be measured. Use the "
            "scan before its grey values were clipped."
        )
        notes.append(Note(text, True, "result"))
        yield notes[-1]
    return sure


def _find_detection_limit(
    found: Segmented, stages: Stages, notes: list[Note]
) -> Generator[Event, Any, dict[str, Any]]:
    """Find the detection limit, as entries of the record, or note why there is none."""
    work = found.work
    settings = as_in_solid(work.settings, found.threshold.value)

    def again(part: Volume) -> Generator[Event, Any, Int32s]:
        """Segment a part of the scan as the whole was, without what is measured besides."""
        host = Backend(threads=work.threads.count)
        pores: Pores = yield from mapped(segment_as_set(part, settings, host), at_work)
        return pores.labels

    limit: Limit | str = why_no_limit(work.volume, work.settings)
    if not limit:
        with stages.timer.stage(STAGE):
            part = middle_of(work.volume, PART)
            outside = np.zeros(part.shape, bool)
            if work.padding is not None:
                outside |= part.array() == work.padding
            mask = work.volume.auxiliary_of(work.settings, "sample_mask")
            if mask is not None:
                outside |= ~(middle_of(work.volume.replace(np.asarray(mask)), PART).array() > 0)
            limit = yield from find_limit(part, outside, again)
    if isinstance(limit, Limit):
        return limit.totals(work.volume)
    notes.append(Note(f"There is no detection limit: {limit}", True, "result"))
    yield notes[-1]
    return {}


def check_axes(volume: Volume) -> None:
    """Raise InputError unless the axes and the shape of the volume allow segmentation."""
    if volume.axes not in SPATIAL_AXES:
        raise InputError(
            f"{volume.name} has axes {volume.axes!r}, but pores are segmented in one image at a "
            f"time, 2D or 3D. {how_to_choose(volume)}"
        )
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")


class WarmUpKind(NamedTuple):
    """Kind of job, which decides what kernels it needs."""

    settings: PoreSettings
    is_void: bool
    on_disk: bool


def warm_up_kind(
    settings: PoreSettings, is_void: bool = False, on_disk: bool = False
) -> WarmUpKind:
    """Return the kind of warm-up for a job with given settings.

    `is_void`: whether the volume is the void itself (booleans).
    """
    threshold: str | float = 127.0
    if isinstance(settings.threshold, str) and settings.hysteresis is None:
        threshold = settings.threshold if settings.is_local else "otsu"
    # void outside a mask is handled like air, and "auto" may choose the way with most kernels
    removes_slicewise = settings.sample_mask or settings.exterior == "auto"
    tiny = PoreSettings(
        threshold="otsu" if is_void else threshold,
        hysteresis=None if settings.hysteresis is None else 60.0,
        local_window=3,
        exterior="remove-slicewise" if removes_slicewise else settings.exterior,
        ball_radius=1,
        # merging to markers and to SNOW peaks calls the same kernels
        merging="snow" if settings.markers else settings.merging,
        connectivity=settings.connectivity,
        # one phase calls the same kernels as both
        local_thickness="solid" if settings.thickness_of else "none",
        # not computed for slabs on disk
        tortuosity=settings.tortuosity and not on_disk,
        transport="none" if on_disk else settings.transport,
    )
    return WarmUpKind(tiny, is_void, on_disk)


def _warm_up(kind: WarmUpKind) -> Generator[object, None, None]:
    """Run a whole job on a tiny volume that calls all kernels of its kind."""
    # the rows are long enough for the table of edges to grow; there is more than one slab
    yield from compile_beside(kind.settings.connectivity == "faces")
    grey = np.random.default_rng(0).integers(0, 256, (6, 8, 78), np.uint8)
    volume = Volume(grey < 128 if kind.is_void else grey, name="warm-up")
    slabs = Slabs(len(grey), 3, kind.on_disk)
    yield from segment_as_set(volume, kind.settings, Backend(), slabs)


def prepare(kind: WarmUpKind) -> Generator[Progress, None, None]:
    """Wait until the kernels of a kind of job are compiled, or loaded from the disk cache."""
    yield Progress("preparing", 0, 0, "", 0.0)
    with closing(WARM_UP.wait(kind)) as waiting:
        for is_compiling in waiting:
            yield Progress(FIRST_TIME if is_compiling else "preparing", 0, 0, "", 0.0)


#: The warm-ups of this process.
WARM_UP = WarmUp(_warm_up)

#: Name of the stage while kernels are compiled, not only loaded.
FIRST_TIME = "preparing, first time only"
