"""The pore segmentation as a job: threshold, void, distance, basins, merging, measurement."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.events import Note, Preview, Progress
from hushpore.base.record import make_record
from hushpore.base.volume import SPATIAL_AXES, require_values
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer
from hushpore.pores.basins import apply_labels, find_basins
from hushpore.pores.distance import squared_distance
from hushpore.pores.graph import DIRECTIONS, build_graph
from hushpore.pores.measure import void_surface
from hushpore.pores.merging import merge_by_height, merge_to_markers
from hushpore.pores.outside import beside, crossings, find_outside, outside_bytes
from hushpore.pores.parallel import Workers
from hushpore.pores.peaks import find_peaks
from hushpore.pores.result import Pores, measured, merged_by, number_basins, totals_of
from hushpore.pores.threshold import find_threshold, make_histogram
from hushpore.pores.void import find_components, holding, keep_components, make_void

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.graph import BasinGraph
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.void import Components

#: Bytes a voxel that are in use at once, besides the input: void 1, distance 4, basins 4, labels 4,
#: and 1 for what goes with the number of basins.
BYTES_A_VOXEL = 14

#: Share of the whole job that is done when a stage is.
_DONE = {
    "preparing": 0.05,
    "threshold": 0.15,
    "void": 0.2,
    "distance": 0.4,
    "basins": 0.6,
    "measuring": 0.9,
    "labels": 1.0,
}


def segment_pores(volume: Volume, settings: PoreSettings, backend: Backend) -> Job:
    """Segment and measure the pores of a volume.

    Parameters
    ----------
    volume : Volume
        2D or 3D grey values of any real dtype, or booleans, which are taken as the void itself.
    settings : PoreSettings
        How to.
    backend : Backend
        Pores are segmented on the CPU, whatever this is; where it is a GPU, that is said.

    Yields
    ------
    Progress, Timing, Note, Preview
        After every stage; `Preview` ``"labels"`` shows the middle slice of the result.

    Returns
    -------
    Pores
        Labels, table and totals.

    Raises
    ------
    InputError
        If the volume has leading axes, is empty or constant, holds NaN, or is too large to index.
    MemoryLimitError
        If it does not fit into memory.

    Notes
    -----
    The labels are the same on any number of threads. A void without any solid is one pore, of
    infinite inscribed diameter; a volume without void has none.
    """
    _check(volume, settings)
    timer = StageTimer()
    notes = []
    if backend.is_cuda:
        backend = Backend(reason="pores are segmented on the CPU")
        notes.append("Pores are segmented on the CPU; the GPU is not used for them yet.")
        yield Note(notes[-1])
    yield Progress("preparing", 0, 1, "", 0.0)
    with timer.stage("preparing"):
        _prepare()
    yield _progress("preparing", volume)
    with Workers() as workers:
        with timer.stage("threshold"):
            values = _stack(volume)
            threshold = _threshold(values, settings, workers)
        problems = [_separates_nothing(values, threshold)]
        yield _progress("threshold", volume)

        with timer.stage("void"):
            void = _find_void(values, threshold, settings, workers)
            del values
            space = _take_apart(void, volume, settings, workers)
        for problem in filter(None, [*problems, space.problem]):
            notes.append(problem)
            yield Note(problem, warning=True)
        yield _progress("void", volume)

        with timer.stage("distance"):
            distance = _distance(void, space.air, volume, settings, workers)
            del void
            space = space._replace(air=None)
        yield _progress("distance", volume)

        with timer.stage("basins"):
            basins, summits = find_basins(distance, workers)
        yield _progress("basins", volume)

        with timer.stage("measuring"):
            graph = _make_graph(basins, summits, distance, space, workers)
            peaks = _peaks(distance, basins, graph, volume, settings, workers)
            del distance
        yield _progress("measuring", volume)

        with timer.stage("labels"):
            basins = basins.reshape(volume.shape)
            numbering = number_basins(graph, settings, volume, peaks)
            merged = measured(basins, graph, numbering, volume, workers)
    timing = timer.timing()
    # of two slices in the middle the first, as viewers open it
    middle = tuple((length - 1) // 2 for length in volume.shape[:-2])
    yield Preview("labels", merged["labels"][middle].copy(), middle)
    yield timing
    totals = totals_of(
        merged,
        volume,
        {
            **_void_totals(space, threshold, graph, volume),
            "merged_by": merged_by(settings, peaks),
        },
    )
    record = make_record("pores", volume, settings, backend.name, timing, notes)
    yield _progress("labels", volume)
    return Pores(
        **merged,
        porosity=totals["porosity"],
        threshold=threshold,
        volume=volume,
        timings={name: stage.seconds for name, stage in timing.stages.items()},
        provenance={**record, "result": totals},
        notes=tuple(notes),
        _sample=space.sample,
        _basins=basins,
        _graph=graph,
        _settings=settings,
    )


def _progress(stage: str, volume: Volume) -> Progress:
    slices = volume.spatial_shape[0] if volume.n_spatial == 3 else 1
    return Progress(stage, slices, slices, "slices", _DONE[stage])


def _check(volume: Volume, settings: PoreSettings) -> None:
    """Refuse what cannot be segmented before any of it is read."""
    if volume.axes not in SPATIAL_AXES:
        leading = volume.axes[: -volume.n_spatial]
        index = ", ".join(f"{axis}=0" for axis in leading)
        raise InputError(
            f"{volume.name} has axes {volume.axes!r}, but pores are segmented in one image at a "
            f"time, 2D or 3D. Take one first, for example volume.at({index})."
        )
    count = math.prod(volume.shape)
    if count >= 2**31:
        raise InputError(
            f"{volume.name} has {count:,} voxels; up to {2**31 - 1:,} can be segmented at once. "
            "Crop it, or bin it 2 x 2 x 2."
        )
    free = Backend().free_memory()
    in_place = isinstance(volume.data, np.ndarray) and volume.data.flags.c_contiguous
    needed = count * BYTES_A_VOXEL
    if settings.outside != "keep":
        shape = (1,) * (3 - volume.n_spatial) + volume.shape
        radius, slicewise = settings.outside_radius, _slicewise(volume, settings)
        needed = max(needed, outside_bytes(shape, _spacing(volume), radius, slicewise))
    needed += 0 if in_place else volume.nbytes
    if needed > free:
        raise MemoryLimitError(
            f"Segmenting {volume.name} needs about {needed / 1e9:.1f} GB of memory, and "
            f"{free / 1e9:.1f} GB are free. Crop the volume or bin it, or close other programs."
        )


def _stack(volume: Volume) -> npt.NDArray[Any]:
    """Return the checked values as a 3D array; an image is a stack of one slice."""
    values = require_values(volume)
    return values.reshape((1,) * (3 - volume.n_spatial) + volume.shape)


def _threshold(values: npt.NDArray[Any], settings: PoreSettings, workers: Workers) -> float | None:
    if values.dtype == np.bool_:
        return None
    if isinstance(settings.threshold, str):
        bright = settings.pores_are == "bright"
        histogram = make_histogram(values, workers)
        return find_threshold(histogram, settings.threshold, settings.phases, bright)
    return float(settings.threshold)


def _find_void(
    values: npt.NDArray[Any], threshold: float | None, settings: PoreSettings, workers: Workers
) -> npt.NDArray[np.bool_]:
    """Return the void beyond the threshold, with hysteresis where that is asked for."""
    bright = settings.pores_are == "bright"
    void = make_void(values, threshold, bright, workers)
    strict = settings.hysteresis
    if threshold is None or strict is None:
        return void
    if (strict < threshold) == bright:
        raise InputError(
            f"hysteresis must be stricter than the threshold, {threshold:g}: "
            f"{'above' if bright else 'below'} it for {settings.pores_are} pores; got {strict:g}."
        )
    parts = find_components(void, (False,) * 3, workers)
    keep_components(void, parts, holding(parts, make_void(values, strict, bright, workers)))
    return void


def _separates_nothing(values: npt.NDArray[Any], threshold: float | None) -> str:
    """Say so where a threshold leaves a single phase."""
    if threshold is None:
        return ""
    low, high = values.min(), values.max()
    if low <= threshold < high:
        return ""
    side = "above" if threshold >= high else "below"
    return (
        f"The threshold {threshold:g} is {side} all grey values ({low:g} to {high:g}): "
        "nothing is separated by it."
    )


def _spacing(volume: Volume) -> tuple[float, ...]:
    """Spacing in z, y, x, also of an image."""
    return (min(volume.spacing),) * (3 - volume.n_spatial) + volume.spacing


def _slicewise(volume: Volume, settings: PoreSettings) -> bool:
    """Whether the air outside is found slice by slice: an image is one slice."""
    return volume.n_spatial == 2 or settings.outside == "remove-slicewise"


def _faces(volume: Volume) -> tuple[bool, bool, bool]:
    """Which axes have faces: in an image not z."""
    return (volume.n_spatial == 3, True, True)


class _Space(NamedTuple):
    """The void of a sample, taken apart."""

    components: Components
    air: npt.NDArray[np.bool_] | None  # around the sample, where it is to be left out
    air_cuts: npt.NDArray[np.int64]  # crossings between void and that air, by direction
    sample: npt.NDArray[np.int64]  # voxels of each slice (row, in 2D) that are not air
    problem: str


def _take_apart(
    void: npt.NDArray[np.bool_], volume: Volume, settings: PoreSettings, workers: Workers
) -> _Space:
    """Leave in `void`, in place, only what is asked for, and say what it is."""
    sample = np.full(len(volume.data), math.prod(volume.shape[1:]), np.int64)
    cuts = np.zeros(len(DIRECTIONS), np.int64)
    air, problem = None, ""
    if settings.outside != "keep":
        air = _find_air(void, volume, settings, workers)
        void ^= air
        sample -= np.array([np.count_nonzero(plane) for plane in air.reshape(volume.shape)])
        if not air.any():
            problem = "No air was found outside the sample: the ball cannot reach any."
    components = find_components(void, _faces(volume), workers)
    if air is not None:
        is_open = components.is_open | holding(components, beside(air))
        components = dataclasses.replace(components, is_open=is_open)
    if settings.mode != "all":
        keep_components(void, components, components.is_open == (settings.mode == "open"))
    if air is not None:
        cuts = crossings(void, air)
    return _Space(components, air, cuts, sample, problem)


def _find_air(
    void: npt.NDArray[np.bool_], volume: Volume, settings: PoreSettings, workers: Workers
) -> npt.NDArray[np.bool_]:
    """Return the air around the sample."""
    if void.all():
        raise InputError(
            f"There is no solid in {volume.name}, so no sample that air could be around. "
            "Set another threshold, or outside to 'keep'."
        )
    radius, slicewise = settings.outside_radius, _slicewise(volume, settings)
    return find_outside(void, _spacing(volume), radius, slicewise, workers)


def _distance(
    void: npt.NDArray[np.bool_],
    air: npt.NDArray[np.bool_] | None,
    volume: Volume,
    settings: PoreSettings,
    workers: Workers,
) -> npt.NDArray[np.float32]:
    """Return the squared distance to the solid, in the void.

    The mouth of a pore is no wall: air around the sample counts like what lies beyond the faces of
    the volume. Changes `void` where there is air.
    """
    solid_outside = tuple(settings.border_is_solid and face for face in _faces(volume))
    if air is None or settings.border_is_solid:
        return squared_distance(void, _spacing(volume), solid_outside, workers)
    void |= air
    distance = squared_distance(void, _spacing(volume), solid_outside, workers)
    distance[air] = 0
    return distance


def _make_graph(
    basins: npt.NDArray[np.int32],
    summits: npt.NDArray[np.int64],
    distance: npt.NDArray[np.float32],
    space: _Space,
    workers: Workers,
) -> BasinGraph:
    """Measure the basins; where they open into air around the sample, they have no surface."""
    is_open = space.components.is_open_at(summits)
    graph = build_graph(basins, summits, distance, is_open, workers)
    return dataclasses.replace(graph, cuts=graph.cuts + space.air_cuts)


def _peaks(
    distance: npt.NDArray[np.float32],
    basins: npt.NDArray[np.int32],
    graph: BasinGraph,
    volume: Volume,
    settings: PoreSettings,
    workers: Workers,
) -> npt.NDArray[np.bool_] | None:
    """Return which basins hold a peak, where pores are parted by peaks."""
    if settings.merging == "height":
        return None
    return find_peaks(distance, basins, graph, _spacing(volume), workers)


def _void_totals(
    space: _Space, threshold: float | None, graph: BasinGraph, volume: Volume
) -> dict[str, Any]:
    """Return the figures of the record that do not change when pores merge."""
    components, size = space.components, int(space.sample.sum())
    return {
        "sample_voxels": size,
        "open_porosity": components.open_voxels / size,
        "closed_porosity": components.closed_voxels / size,
        "components": components.count,
        "threshold": threshold,
        "specific_surface": void_surface(graph, volume) / (size * volume.voxel_size),
    }


_prepared = False


def _prepare() -> None:
    """Compile the kernels, or load them from the disk, so that no stage is timed with it."""
    global _prepared  # noqa: PLW0603 - once a process is enough
    if _prepared:
        return
    with Workers(1) as workers:
        void = make_void(np.ones((3, 3, 3), np.bool_), None, False, workers)
        void[1, 1] = False
        components = find_components(void, (True, True, True), workers)
        keep_components(void, components, holding(components, void))
        distance = squared_distance(void, (1.0, 1.0, 1.0), (True, True, True), workers)
        basins, summits = find_basins(distance, workers)
        graph = build_graph(basins, summits, distance, components.is_open_at(summits), workers)
        apply_labels(basins, merge_by_height(graph, 0.0), workers)
        merge_to_markers(graph, np.zeros(graph.count + 1, np.int32))
        make_histogram(np.arange(8, dtype=np.uint8).reshape(2, 2, 2), workers)
    _prepared = True
