"""The pore segmentation as a job: threshold, void, distance, basins, merging, measurement."""

from __future__ import annotations

import dataclasses
from concurrent.futures import wait
from contextlib import ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Note, Progress
from hushpore.base.provenance import fingerprint_beside, make_provenance
from hushpore.base.volume import SPATIAL_AXES, Volume
from hushpore.device.backend import Backend
from hushpore.device.memory import arrays_apart
from hushpore.device.scratch import scratch_folder
from hushpore.pores.geometry.intercepts import intercept_totals
from hushpore.pores.geometry.sums import index_of
from hushpore.pores.gpu.trial import choose_faster
from hushpore.pores.parallel import KernelThreads, WarmUp
from hushpore.pores.passes import (
    Threshold,
    Work,
    check_grey,
    find_local_thickness,
    find_snow_peaks,
    write_labels,
)
from hushpore.pores.pipeline import Pipeline, is_noise
from hushpore.pores.plan import plan_slabs
from hushpore.pores.result import (
    Pores,
    measured,
    merged_by,
    number_basins,
    number_by_markers,
    totals_of,
)
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.stages import Stages
from hushpore.pores.tables.measures import surface_of, void_walls
from hushpore.pores.topology.euler import find_euler_number
from hushpore.pores.topology.percolation import percolation_totals
from hushpore.pores.topology.tortuosity import find_tortuosity
from hushpore.pores.uncertainty.intervals import find_certainty
from hushpore.pores.void.surroundings import Surroundings, find_surroundings

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from concurrent.futures import Future

    import numpy.typing as npt

    from hushpore.base.events import Event, Job
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.slabs import Stack
    from hushpore.pores.uncertainty.intervals import Certainty
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.watershed.merging import Numbering


def segment_pores(volume: Volume, settings: PoreSettings, backend: Backend) -> Job:
    """Segment and measure the pores of a volume.

    `volume`: 2D or 3D grey values of any real dtype, or booleans, which are taken as the void
    itself. `backend`: where to; on a GPU the labels are the same, and where one is asked for that
    cannot be used, the CPU is, and that is said.
    Yields: Progress, Timing, Note, Preview ("labels"), after every slab of a stage. Previews show
    the basins of one slice and then its pores, as soon as its slab is done: of the slice named by
    the last `Attention` that was sent in, else of the middle.
    Returns: `Pores`.
    Raises InputError if the volume has leading axes, is empty or constant, holds NaN, or is too
    large to index; MemoryLimitError if it does not fit into memory.

    The labels are the same on any number of threads. A void without any solid is one pore, of
    infinite inscribed diameter; a volume without void has none.
    """
    _check(volume)
    check_grey(volume, settings)
    stages = Stages(volume, backend.timer())
    notes: list[str] = []
    with stages.timer.stage("sample"):
        surroundings = find_surroundings(volume, settings)
    decided = surroundings.apply(settings)
    slabs = plan_slabs(volume, decided)
    if slabs.on_disk:
        notes.append(
            f"Worked on in {len(slabs)} slabs of {slabs.thickness} slices, with temporary files "
            f"in {scratch_folder()}."
        )
        yield Note(notes[-1])
        if settings.intervals:
            # before hours of work: what is given up may be the reason for it
            notes.append(
                "There are no intervals: they are found of scans that fit into memory. Crop the "
                "scan or bin it, or allow more memory, to have them."
            )
            yield Note(notes[-1], warning=True)
    kind = warm_up_kind(decided, volume.dtype == np.bool_, slabs.on_disk)
    yield from stages.prepare(prepare(kind))
    if backend.on_trial:
        given = backend
        with stages.timer.stage("comparing devices"):
            backend = yield from choose_faster(volume, decided, given, _segment_alone, notes)
        if given.resident is not None and not backend.is_cuda:
            given.resident.release()
    return (yield from _segment(volume, settings, surroundings, backend, slabs, stages, notes))


def _segment_alone(volume: Volume, settings: PoreSettings, backend: Backend) -> Job:
    """Segment a volume whose surroundings are decided, with notes of its own."""
    decided = Surroundings(settings.outside, settings.outside_radius)
    slabs = plan_slabs(volume, settings)
    return _segment(volume, settings, decided, backend, slabs, Stages(volume, backend.timer()), [])


def _segment(
    volume: Volume,
    settings: PoreSettings,
    surroundings: Surroundings,
    backend: Backend,
    slabs: Slabs,
    stages: Stages,
    notes: list[str],
    *,
    ignore_solid: bool = False,
) -> Job:
    """Do all of it; see `segment_pores`.

    `ignore_solid`: whether markers outside the void are passed over, and not refused.
    """
    decided, padding = surroundings.apply(settings), surroundings.padding
    with ExitStack() as at_end:
        at_end.callback(backend.release)
        scratch = at_end.enter_context(closing(Scratch(slabs.on_disk)))
        threads = at_end.enter_context(KernelThreads(backend.threads))
        work = Work(
            volume, decided, slabs, scratch, threads, backend.choices, stages.timer, padding
        )
        pipeline = Pipeline(work, backend, stages, notes)
        found = yield from pipeline.run()
        work = dataclasses.replace(work, volume=pipeline.volume)
        fingerprint = at_end.enter_context(fingerprint_beside(work.volume.data))
        backend, threshold, void_phases, basins, graph, distance, on_gpu, phase = found
        if on_gpu is not None:
            at_end.callback(on_gpu.release)
        at_end.enter_context(arrays_apart() if is_noise(work, graph.count) else nullcontext())
        for warning in warnings_of(volume, settings, surroundings, void_phases.share_outside):
            notes.append(warning)
            yield Note(warning, warning=True)
        yield from stages.show(basins)
        # where pores open into air around the sample, they have no surface
        graph = dataclasses.replace(
            graph, border_crossings=graph.border_crossings + void_phases.air_crossings
        )
        parted = find_snow_peaks(work, basins, distance, graph)
        snow_peaks = yield from stages.run("measuring", parted, 0.9)
        # of a GPU that holds all the distance stays there
        known = None if on_gpu is not None else distance
        thickness = yield from _find_thickness(work, phase, known, stages)
        distance.close()
        with stages.timer.stage("labels"):
            numbering, by = _number(work, basins, graph, snow_peaks, ignore_solid=ignore_solid)
        # on the way to tables more is in use than is left of them: labels have no room yet
        tables = measured(graph, numbering, settings, volume)
        merged = yield from stages.run("labels", tables, 0.94)
        connection = yield from _find_connection(work, basins, stages)
        labels = scratch.stack("labels", basins.shape, np.int32)
        label_of = numbering.label_of
        if on_gpu is None:
            written = write_labels(basins, label_of, slabs, labels, threads)
        else:
            choices = backend.choices
            written = on_gpu.write_labels(work, basins, label_of, labels, stages.timer, choices)
        yield from stages.run("labels", written, 0.99, labels)
        whole = phase, labels, graph, numbering
        certainty = yield from _certainty(work, *whole, threshold, surroundings, notes)
        if phase is not None:
            phase.close()
        scratch.keep(labels)
        scratch.keep(basins)
        digest = yield from _wait_for(fingerprint, stages.slices)
    timing = stages.timer.timing()
    yield timing
    totals = totals_of(
        merged,
        volume,
        {
            **void_totals(
                void_phases.sample,
                (void_phases.open_voxels, void_phases.closed_voxels),
                void_phases.components,
                threshold,
                void_walls(graph),
                graph,
                volume,
            ),
            **connection,
            "merged_by": by,
            **thickness_totals(thickness),
            **outside_totals(surroundings, void_phases.share_outside),
            **({} if certainty is None else certainty.totals),
        },
    )
    how = settings, backend.description, timing, notes
    provenance = make_provenance("pores", volume, *how, {"blake2b": digest})
    yield Progress("labels", stages.slices, stages.slices, "slices", 1.0)
    return Pores(
        labels=labels.array().reshape(volume.shape),
        **merged,
        porosity=totals["porosity"],
        threshold=threshold.value,
        volume=volume,
        timings={name: stage.seconds for name, stage in timing.stages.items()},
        provenance={**provenance, "result": totals},
        notes=tuple(notes),
        _sample=void_phases.sample,
        _basins=basins,
        _slabs=slabs,
        _graph=graph,
        _settings=settings,
        thickness=thickness,
        curve={} if certainty is None else certainty.curve,
    )


def _find_thickness(
    work: Work, phase: Stack | None, distance: Stack | None, stages: Stages
) -> Generator[Event, Any, dict[str, LocalThickness]]:
    """Find the local thickness of what is asked for; see `find_local_thickness`."""
    found: dict[str, LocalThickness] = {}
    for name in work.settings.thick_phases:
        assert phase is not None, "it was kept for this"
        finding = find_local_thickness(work, phase, name, distance)
        found[name] = yield from stages.run("thickness", finding, 0.93)
    return found


def _wait_for(fingerprint: Future[str], slices: int) -> Generator[Event, Any, str]:
    """Return it once it is there; meanwhile the job can be cancelled."""
    while not fingerprint.done():
        wait([fingerprint], 0.05)
        yield Progress("labels", slices, slices, "slices", 0.99)
    return fingerprint.result()


def _find_connection(
    work: Work, basins: Stack, stages: Stages
) -> Generator[Event, Any, dict[str, Any]]:
    """Find the Euler number of the void, and the ways through it where these are asked for."""
    counting = find_euler_number(basins, work.slabs, work.threads, faces_only=work.faces_only)
    euler_number = yield from stages.run("measuring", counting, 0.95)
    found: dict[str, Any] = {"euler_number": euler_number}
    if work.settings.tortuosity:
        how = work.spacing, work.volume.n_spatial
        ways = find_tortuosity(basins.array() != 0, *how, faces_only=work.faces_only)
        found |= yield from stages.run("tortuosity", ways, 0.96)
    return found


def _certainty(
    work: Work,
    phase: Stack | None,
    labels: Stack,
    graph: BasinGraph,
    numbering: Numbering,
    threshold: Threshold,
    surroundings: Surroundings,
    notes: list[str],
) -> Generator[Event, None, Certainty | None]:
    """Find how sure the figures are where it is asked for; not of slabs on disk."""
    volume, slabs = work.volume, work.slabs
    if not work.settings.intervals or slabs.on_disk:
        return None

    def segment(settings: PoreSettings) -> Job:
        host = Backend(threads=work.threads.count)
        # markers in the void lie outside it by another threshold
        alike = volume, settings, surroundings, host, slabs
        return _segment(*alike, Stages(volume), [], ignore_solid=True)

    assert phase is not None, "it was kept for this"
    arrays = phase.array(), labels.array()
    grey = threshold.value
    assert work.timer is not None, "every job has one"
    with work.timer.stage("intervals"):
        found = yield from find_certainty(work, *arrays, graph, numbering, grey, segment)
    if found is not None and found.parts < 2:
        notes.append(
            "The intervals are too narrow: the scan is too small for parts of it to be compared, "
            "which takes four typical diameters of its pores along an axis."
        )
        yield Note(notes[-1], warning=True)
    if found is not None and found.is_cut_off:
        notes.append(
            "The intervals may be too narrow: most grey values of the pores, or of the solid, are "
            "one, the lowest or the highest of all, so that noise and blur cannot be told. Take "
            "the scan as it was before its grey values were cut off."
        )
        yield Note(notes[-1], warning=True)
    return found


def _number(
    work: Work,
    basins: Stack,
    graph: BasinGraph,
    snow_peaks: npt.NDArray[np.bool_] | None,
    *,
    ignore_solid: bool,
) -> tuple[Numbering, dict[str, Any]]:
    """Merge basins into pores and number these; returns what the record says of it, too."""
    settings, volume = work.settings, work.volume
    markers = volume.auxiliary_of(settings, "markers")
    if markers is None:
        by = merged_by(graph, settings, volume, snow_peaks)
        return number_basins(graph, settings, volume, snow_peaks), by
    found = whole_markers(markers), basins, graph, settings, volume
    return number_by_markers(*found, ignore_solid=ignore_solid)


def whole_markers(given: Any) -> npt.NDArray[Any]:
    """Return markers as whole numbers: points lie between voxels."""
    markers: npt.NDArray[Any] = np.asarray(given)
    return np.rint(markers).astype(np.int64) if markers.dtype.kind == "f" else markers


def _check(volume: Volume) -> None:
    """Refuse what cannot be segmented before any of it is read."""
    if volume.axes not in SPATIAL_AXES:
        leading = volume.axes[: -volume.n_spatial]
        index = ", ".join(f"{axis}=0" for axis in leading)
        raise InputError(
            f"{volume.name} has axes {volume.axes!r}, but pores are segmented in one image at a "
            f"time, 2D or 3D. Take one first, for example volume.at({index})."
        )
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")


def void_totals(
    sample: npt.NDArray[np.int64],
    voxels: tuple[int, int],
    components: int,
    threshold: Threshold,
    walls: npt.NDArray[np.int64],
    graph: BasinGraph,
    volume: Volume,
) -> dict[str, Any]:
    """Return the figures of the record that do not change when pores merge.

    `sample`: voxels of each slice (row, in 2D) that are of the sample. `voxels`: of open and of
    closed void. `components`: connected components of the void. `walls`: between void and solid,
    see `hushpore.pores.tables.measures.walls_of`. `graph`: of all the void that is asked for.
    """
    void, size = int(graph.sums[:, index_of("voxels")].sum()), int(sample.sum())
    return {
        "sample_voxels": size,
        "open_porosity": voxels[0] / size,
        "closed_porosity": voxels[1] / size,
        "components": components,
        "threshold": threshold.value,
        "only_values": threshold.only_values and list(threshold.only_values),
        "specific_surface": surface_of(walls, volume) / (size * volume.voxel_size),
        **intercept_totals(walls, void, size, volume),
        **percolation_totals(graph, sample, volume),
    }


def thickness_totals(thickness: Mapping[str, LocalThickness]) -> dict[str, Any]:
    """Return what the record says of local thickness, by phase."""
    return {
        f"{name}_thickness{part}": value
        for name, found in thickness.items()
        for part, value in (("", found.mean), ("_deviation", found.deviation))
    }


def outside_totals(surroundings: Surroundings, share: float) -> dict[str, Any]:
    """Return what the record says of what is around the sample.

    `share`: which share of the volume that is.
    """
    return {
        "outside": surroundings.outside,
        "air_kept_share": surroundings.kept,
        "outside_share": share,
        "outside_radius": surroundings.radius,
        "padding_value": surroundings.padding,
    }


def warnings_of(
    volume: Volume, settings: PoreSettings, surroundings: Surroundings, share: float
) -> list[str]:
    """Return what is to be said where settings change nothing, or the air is not as looked for.

    `settings`: as they were given. `share`: of the volume, which was left out.
    """
    unused = settings.unused_of_void() if volume.dtype == np.bool_ else {}
    found = []
    if unused:
        found.append(
            f"{volume.name} is boolean, the void itself: what is true is pore, and "
            f"{', '.join(f'{name} = {value}' for name, value in unused.items())} had no effect. "
            "Invert it where pores are false."
        )
    elif volume.dtype != np.bool_ and settings.is_local and settings.odd_window != settings.window:
        found.append(
            f"The window of the local threshold was taken as {settings.odd_window} voxels, not "
            f"{settings.window}: it has a voxel in its middle."
        )
    if surroundings.drift:
        found.append(
            f"The grey of the solid differs across the sample by about "
            f"{100 * surroundings.drift:.0f} % of what parts it from the pores, as by beam "
            "hardening: one threshold takes too little for pore in one place and too much in "
            "another. Correct the scan, or take a threshold for each place (threshold = sauvola)."
        )
    if surroundings.groups is not None:
        first, second = surroundings.groups
        found.append(
            f"Grey values that count as pore are of two groups, about {first:.4g} and about "
            f"{second:.4g}: the threshold may part a third material from pores and solid. If only "
            f"the {settings.pores_are}er ones are pores set the number of phases to 3, or a "
            "threshold between the two; what is no sample, as a holder, a sample mask leaves out."
        )
    return found + _warnings_of_air(settings, surroundings, share)


def _warnings_of_air(settings: PoreSettings, surroundings: Surroundings, share: float) -> list[str]:
    if settings.outside != "auto" or surroundings.outside == "keep":
        return []
    found = []
    if surroundings.radius != settings.outside_radius:
        found.append(
            f"The ball that finds the air around the sample has a radius of "
            f"{surroundings.radius:g} voxels here: with {settings.outside_radius:g} it gets into "
            "the pores (Rolling ball radius)."
        )
    if share < _FAR_OFF * surroundings.share:
        found.append(
            f"There seems to be air around the sample, about {100 * surroundings.share:.0f} % of "
            f"the volume, but only {100 * share:.1f} % could be told from its pores: noise in the "
            "air is taken for solid. Denoise the scan first, or set the threshold lower."
        )
    if surroundings.widest:
        found.append(
            "Pores that open at the surface of the sample count only as far as the ball that finds "
            f"the air does not get into them: with a radius of {surroundings.widest:.0f} voxels in "
            f"place of {surroundings.radius:g} (Rolling ball radius) there would be about "
            f"{surroundings.gain:.2f} times as much of them, and in a round sample there is more "
            "still. A sample mask says for certain what belongs to it."
        )
    return found


#: Share of the air that is expected below which it was not found.
_FAR_OFF = 0.6


class WarmUpKind(NamedTuple):
    """What decides which kernels a job needs."""

    settings: PoreSettings
    is_void: bool
    on_disk: bool


def warm_up_kind(
    settings: PoreSettings, is_void: bool = False, on_disk: bool = False
) -> WarmUpKind:
    """Return what to warm up for a job of some settings.

    `is_void`: whether its volume is the void itself.
    """
    threshold: str | float = 127.0
    if isinstance(settings.threshold, str) and settings.hysteresis is None:
        threshold = settings.threshold if settings.is_local else "otsu"
    tiny = PoreSettings(
        threshold="otsu" if is_void else threshold,
        hysteresis=None if settings.hysteresis is None else 60.0,
        window=3,
        # void outside a mask is handled like air
        outside="remove-slicewise" if settings.sample_mask else _as_decided(settings.outside),
        outside_radius=1,
        # markers and peaks are merged to alike
        merging="snow" if settings.markers else settings.merging,
        connectivity=settings.connectivity,
        # of one phase as of both
        local_thickness="solid" if settings.thick_phases else "none",
        # on disk there is none
        tortuosity=settings.tortuosity and not on_disk,
    )
    return WarmUpKind(tiny, is_void, on_disk)


def _as_decided(outside: str) -> str:
    """Return what is made ready for what is not decided yet: the most that is likely."""
    return "remove-slicewise" if outside == "auto" else outside


def _warm_up(kind: WarmUpKind) -> Job:
    """Do a whole job on a volume that is tiny, and has all that a kernel could meet."""
    # a row can find almost as many edges as there is room for first, so that the table of them has
    # to grow; there is more than one slab
    grey = np.random.default_rng(0).integers(0, 256, (6, 8, 78), np.uint8)
    volume = Volume(grey < 128 if kind.is_void else grey, name="warm-up")
    slabs = Slabs(len(grey), 3, kind.on_disk)
    decided = Surroundings(kind.settings.outside, kind.settings.outside_radius)
    return _segment(volume, kind.settings, decided, Backend(), slabs, Stages(volume), [])


def prepare(kind: WarmUpKind) -> Generator[Progress, None, None]:
    """Wait until the kernels that a kind of job needs are compiled, or loaded from the disk."""
    yield Progress("preparing", 0, 0, "", 0.0)
    with closing(WARM_UP.wait(kind)) as waiting:
        for is_compiling in waiting:
            yield Progress(FIRST_TIME if is_compiling else "preparing", 0, 0, "", 0.0)


#: Makes kernels ready, once a process.
WARM_UP = WarmUp(_warm_up)

#: The stage in which kernels are compiled, not just loaded.
FIRST_TIME = "preparing, first time only"
