"""The pore segmentation as a job: threshold, void, distance, basins, merging, measurement."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
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
from hushpore.pores.measure import (
    measure_pores,
    measure_throats,
    number_groups,
    number_pores,
    reach_a_face,
    void_surface,
)
from hushpore.pores.merging import merge_by_height, merge_to_markers
from hushpore.pores.outside import beside, crossings, find_outside, outside_bytes
from hushpore.pores.parallel import Workers
from hushpore.pores.peaks import find_peaks
from hushpore.pores.threshold import find_threshold, make_histogram
from hushpore.pores.void import find_components, holding, keep_components, make_void

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.graph import BasinGraph
    from hushpore.pores.measure import Numbering
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


@dataclass(frozen=True, eq=False)
class Pores:
    """A finished pore segmentation.

    Attributes
    ----------
    labels : numpy.ndarray
        int32, of the shape of the input, C order: 0 is not pore, 1 to n are the pores.
    pores : pandas.DataFrame
        One row a pore, sorted by label; see `hushpore.pores.measure.measure_pores`.
    throats : pandas.DataFrame
        One row for each two pores that touch; see `hushpore.pores.measure.measure_throats`.
    porosity : float
        Share of the sample that is pore in `labels`: without pores that are too small or cut by
        the edge, where these are left out, which ``open_porosity`` and ``closed_porosity`` in the
        record count all the same. The sample is the whole volume, but for the air outside where
        that is removed.
    threshold : float or None
        Grey value between pore and solid; None where the input was the void itself.
    volume : Volume
        The input.
    timings : dict of str to float
        Seconds by stage.
    provenance : dict
        The record of the job as JSON values; its ``result`` holds the totals.
    notes : tuple of str
        What was said while it ran.
    """

    labels: npt.NDArray[np.int32]
    pores: pd.DataFrame
    throats: pd.DataFrame
    porosity: float
    threshold: float | None
    volume: Volume
    timings: dict[str, float]
    provenance: dict[str, Any]
    notes: tuple[str, ...]
    _sample: npt.NDArray[np.int64] = dataclasses.field(repr=False)
    _basins: npt.NDArray[np.int32] = dataclasses.field(repr=False)
    _graph: BasinGraph = dataclasses.field(repr=False)
    _settings: PoreSettings = dataclasses.field(repr=False)

    @property
    def labels_volume(self) -> Volume:
        """The labels as a volume in the place of the input."""
        return self.volume.replace(self.labels, name=f"{self.volume.name} pores")

    @property
    def porosity_profile(self) -> npt.NDArray[np.float64]:
        """Share of the sample in each slice (row, in 2D) that is pore; NaN where there is none."""
        pore = np.array([np.count_nonzero(plane) for plane in self.labels], np.float64)
        empty = np.full(pore.shape, np.nan)
        np.divide(pore, self._sample, out=empty, where=self._sample > 0)
        return empty

    def size_distribution(self, bins: int = 20) -> pd.DataFrame:
        """Return how many pores, and how much of their volume, is of which size.

        Parameters
        ----------
        bins : int
            Bins of equivalent diameter, of equal width, from 0 to the largest.

        Returns
        -------
        pandas.DataFrame
            ``diameter_from``, ``diameter_to``, ``number`` of pores, their ``volume``, and both as
            shares: ``number_share``, ``volume_share``.
        """
        import pandas as pd

        diameter = self.pores["equivalent_diameter"].to_numpy()
        size = self.pores["volume"].to_numpy()
        edges = np.linspace(0, diameter.max(initial=0) or 1, bins + 1)
        number = np.histogram(diameter, edges)[0]
        volume = np.histogram(diameter, edges, weights=size)[0]
        return pd.DataFrame(
            {
                "diameter_from": edges[:-1],
                "diameter_to": edges[1:],
                "number": number,
                "volume": volume,
                "number_share": number / max(number.sum(), 1),
                "volume_share": volume / (volume.sum() or 1),
            }
        )

    @property
    def summary(self) -> str:
        """One sentence: porosity, number of pores, median diameter."""
        result = self.provenance["result"]
        count = len(self.pores)
        is_open, is_closed = result["open_porosity"], result["closed_porosity"]
        parts = f"open {100 * is_open:.1f}, closed {100 * is_closed:.1f}"
        void = is_open + is_closed
        if self._settings.mode == "all" and not math.isclose(self.porosity, void, abs_tol=1e-9):
            # pores that are left out are void all the same
            parts = f"all void {100 * void:.1f}: {parts}"
        sentence = (
            f"Porosity {100 * self.porosity:.1f} % "
            f"{'' if self._settings.outside == 'keep' else 'of the sample '}"
            f"({parts}), {count:,} {'pore' if count == 1 else 'pores'}"
        )
        if count:
            sentence += f", median diameter {result['median_diameter']:.3g} {self.volume.unit}"
        return sentence

    def remerge(self, h: float) -> Pores:
        """Return the segmentation merged by another height, from the basins that are kept.

        Parameters
        ----------
        h : float
            Merge height in voxels; see `hushpore.pores.settings.PoreSettings`.

        Returns
        -------
        Pores
            As `segment_pores` gives with this `h`, in the time of one relabelling.

        Raises
        ------
        InputError
            If `h` is below zero.
        """
        settings = dataclasses.replace(self._settings, merging="height", h=h)
        numbering = _number(self._graph, settings, self.volume)
        return self._renumber(numbering, settings, _merged_by(settings, None))

    def remerge_to_markers(self, markers: npt.ArrayLike) -> Pores:
        """Return the segmentation with one pore for each marker, from the basins that are kept.

        This is a watershed that is flooded from the markers, at the grain of basins: of several
        markers in one basin the lowest counts. Void that no marker is connected to is left out.

        Parameters
        ----------
        markers : array_like
            Either labels, whole numbers in the shape of the volume, 0 where there is no marker; or
            points, (n, 3) voxel indices (z, y, x), in 2D (n, 2).

        Returns
        -------
        Pores
            Pore 1 grows from the lowest marker, and so on.

        Raises
        ------
        InputError
            If the markers have another shape, are none, or lie outside the volume or the void.
        """
        marked = _mark_basins(np.asarray(markers), self._basins, self._graph.count)
        group = merge_to_markers(self._graph, marked)
        left_out = _left_out(self._graph, self._settings, self.volume)
        smallest = self._settings.minimum_voxels
        numbering = number_groups(self._graph, group, smallest, left_out)
        count = int(np.unique(marked[marked > 0]).size)
        return self._renumber(numbering, self._settings, {"markers": count})

    def _renumber(
        self, numbering: Numbering, settings: PoreSettings, merged_by: dict[str, Any]
    ) -> Pores:
        with Workers() as workers:
            merged = _measure(self._basins, self._graph, numbering, self.volume, workers)
        totals = _totals(merged, self.volume, {**self.provenance["result"], "merged_by": merged_by})
        record = {**self.provenance, "settings": settings.to_dict(), "result": totals}
        return dataclasses.replace(
            self,
            **merged,
            porosity=totals["porosity"],
            provenance=record,
            _settings=settings,
        )


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
            numbering = _number(graph, settings, volume, peaks)
            merged = _measure(basins, graph, numbering, volume, workers)
    timing = timer.timing()
    # of two slices in the middle the first, as viewers open it
    middle = tuple((length - 1) // 2 for length in volume.shape[:-2])
    yield Preview("labels", merged["labels"][middle].copy(), middle)
    yield timing
    totals = _totals(
        merged,
        volume,
        {
            **_void_totals(space, threshold, graph, volume),
            "merged_by": _merged_by(settings, peaks),
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


def _number(
    graph: BasinGraph,
    settings: PoreSettings,
    volume: Volume,
    peaks: npt.NDArray[np.bool_] | None = None,
) -> Numbering:
    """Merge basins, to the peaks where these are given or else by height, and number the pores."""
    left_out = _left_out(graph, settings, volume)
    if peaks is None:
        chief = merge_by_height(graph, settings.h)
        return number_pores(graph, chief, settings.minimum_voxels, left_out)
    group = merge_to_markers(graph, np.where(peaks, np.cumsum(peaks), 0).astype(np.int32))
    return number_groups(graph, group, settings.minimum_voxels, left_out)


def _merged_by(settings: PoreSettings, peaks: npt.NDArray[np.bool_] | None) -> dict[str, Any]:
    """Return what the record says of the merging."""
    return {"h": settings.h} if peaks is None else {"peaks": int(np.count_nonzero(peaks))}


def _left_out(
    graph: BasinGraph, settings: PoreSettings, volume: Volume
) -> npt.NDArray[np.bool_] | None:
    """Return the basins at the faces of the volume, where their pores are not wanted."""
    if settings.edge_pores == "keep":
        return None
    at_face = reach_a_face(graph.bounds, volume)
    at_face[0] = False
    return at_face


def _measure(
    basins: npt.NDArray[np.int32],
    graph: BasinGraph,
    numbering: Numbering,
    volume: Volume,
    workers: Workers,
) -> dict[str, Any]:
    """Return the fields of `Pores` that come of merging basins into pores."""
    return {
        "labels": apply_labels(basins, numbering.label_of, workers),
        "pores": measure_pores(graph, numbering, volume),
        "throats": measure_throats(graph, numbering, volume),
    }


def _mark_basins(
    markers: npt.NDArray[Any], basins: npt.NDArray[np.int32], count: int
) -> npt.NDArray[np.int32]:
    """Return the lowest marker in each basin, 1 to `count`, and 0 where there is none."""
    if markers.shape == basins.shape and markers.dtype.kind in "iu":
        place = np.nonzero(markers)
        number = markers[place]
    elif markers.ndim == 2 and markers.shape[1] == basins.ndim and markers.dtype.kind in "iu":
        outside = ((markers < 0) | (markers >= basins.shape)).any(axis=1)
        if outside.any():
            raise InputError(
                f"{int(outside.sum())} of {len(markers)} markers lie outside the volume of shape "
                f"{basins.shape}; the first is at {tuple(markers[outside][0].tolist())}."
            )
        place = tuple(markers.T)
        number = np.arange(1, len(markers) + 1)
    else:
        raise InputError(
            f"Markers are whole numbers: labels of shape {basins.shape}, or points of shape "
            f"(n, {basins.ndim}); got {markers.dtype} of shape {markers.shape}."
        )
    basin = basins[place]
    if number.size == 0 or (number < 0).any() or not basin.all():
        in_solid = int((basin == 0).sum())
        raise InputError(
            f"Markers are needed in the void, numbered from 1; got {number.size} marked voxels, "
            f"{in_solid} of them outside the void."
        )
    # labels may be any numbers: their ranks fit int32
    rank = np.unique(number, return_inverse=True)[1].reshape(-1) + 1
    lowest = np.full(count + 1, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(lowest, basin, rank.astype(np.int32))
    lowest[lowest == np.iinfo(np.int32).max] = 0
    return lowest


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


def _totals(merged: dict[str, Any], volume: Volume, void: dict[str, Any]) -> dict[str, Any]:
    """Return all figures of the record."""
    table = merged["pores"]
    return {
        **void,
        "porosity": int(table["num_voxels"].sum()) / void["sample_voxels"],
        "count": len(table),
        "throats": len(merged["throats"]),
        "median_diameter": float(table["equivalent_diameter"].median()) if len(table) else None,
        "unit": volume.unit,
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
