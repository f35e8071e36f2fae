"""The result of a pore segmentation: labels, tables and totals, and how to merge them again."""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Offer, ResultFiles, result_of
from hushpore.base.provenance import identified
from hushpore.base.readable import (
    percent_digits,
    readable_count,
    readable_number,
    readable_percent,
    readable_unit,
)
from hushpore.pores.geometry.intercepts import intercept_totals
from hushpore.pores.geometry.sums import index_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.passes import write_labels
from hushpore.pores.slabs import Scratch, check_disk
from hushpore.pores.tables.measures import (
    pore_columns,
    reach_a_face,
    surface_of,
    throat_columns,
    void_walls,
)
from hushpore.pores.tables.resizing import is_proportional, resized_curve, resized_totals
from hushpore.pores.tables.totals import intervals_in_words, is_of_interval, totals_columns
from hushpore.pores.watershed.merging import (
    ChosenHeight,
    Numbering,
    find_near,
    height_of,
    merge_by_height,
    merge_to_markers,
    number_groups,
    number_pores,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Slabs, Stack
    from hushpore.pores.watershed.graph import BasinGraph


#: What the set of arrays is called in a result folder from which pores are merged anew.
MERGING = "merging"

#: Voxels that a pore needs for its shape to say anything: of fewer it is that of the grid.
RELIABLE = 8

#: Pores of fewer voxels that nothing is said of, however few others there are.
_FEW = 10


@dataclass(frozen=True, eq=False)
class Pores:
    """A finished pore segmentation.

    Attributes
    ----------
    labels : numpy.ndarray
        int32, of the shape of the input, C order: 0 is not pore, 1 to n are the pores. Where the
        volume did not fit into memory this is a `numpy.memmap` of a temporary file, which is
        removed when nothing refers to it any more.
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
    thickness : dict of str to LocalThickness
        Of the phases of which it was measured, ``"void"`` and ``"solid"``; see
        `hushpore.pores.geometry.thickness.LocalThickness`.
    curve : dict of str to numpy.ndarray
        Figures of cubes of the sample by their edge, where intervals were asked for; see
        `hushpore.pores.uncertainty.subvolumes.curve`.
    """

    labels: npt.NDArray[np.int32]
    porosity: float
    threshold: float | None
    volume: Volume
    timings: dict[str, float]
    provenance: dict[str, Any]
    notes: tuple[str, ...]
    _pore_columns: dict[str, npt.NDArray[Any]] = dataclasses.field(repr=False)
    _throat_columns: dict[str, npt.NDArray[Any]] = dataclasses.field(repr=False)
    _sample: npt.NDArray[np.int64] = dataclasses.field(repr=False)
    _basins: Stack = dataclasses.field(repr=False)
    _slabs: Slabs = dataclasses.field(repr=False)
    _graph: BasinGraph = dataclasses.field(repr=False)
    _settings: PoreSettings = dataclasses.field(repr=False)
    thickness: dict[str, LocalThickness] = dataclasses.field(default_factory=dict, repr=False)
    curve: dict[str, npt.NDArray[np.float64]] = dataclasses.field(default_factory=dict, repr=False)

    # made when they are asked for: to import pandas takes longer than to segment a small volume
    @cached_property
    def pores(self) -> pd.DataFrame:
        """One row a pore, sorted by label; see `hushpore.pores.tables.measures.PORES`."""
        import pandas as pd

        return pd.DataFrame(self._pore_columns)

    @cached_property
    def throats(self) -> pd.DataFrame:
        """One row for each two pores that touch; see `hushpore.pores.tables.measures.THROATS`."""
        import pandas as pd

        return pd.DataFrame(self._throat_columns)

    @property
    def labels_volume(self) -> Volume:
        """The labels as a volume in the place of the input."""
        return self.volume.as_labels(self.labels, f"{self.volume.name} pores")

    @cached_property
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

        Raises
        ------
        InputError
            If `bins` is no whole number of at least 1.
        """
        import pandas as pd

        if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
            raise InputError(f"bins is a whole number of at least 1; got {bins!r}.")
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

    def thickness_volume(self, phase: str) -> Volume:
        """Return the local thickness of a phase as a volume in the place of the input."""
        name = f"{self.volume.name} {thickness_title(phase)}"
        return self.volume.derived(self.thickness[phase].diameter, name)

    @property
    def thickness_distribution(self) -> pd.DataFrame:
        """How much of each phase is how thick, where that was measured.

        ``phase``, ``thickness_from``, ``thickness_to``, ``volume`` and ``volume_share`` of its
        phase, a row for each of the bins of equal width from 0 to the largest.
        """
        import pandas as pd

        columns = ["phase", "thickness_from", "thickness_to", "volume", "volume_share"]
        rows = [
            (phase, low, high, count * self.volume.voxel_size, count / found.counts.sum())
            for phase, found in self.thickness.items()
            for low, high, count in zip(
                found.edges[:-1], found.edges[1:], found.counts, strict=True
            )
        ]
        return pd.DataFrame(rows, columns=columns)

    @property
    def basins(self) -> npt.NDArray[np.int32]:
        """The basins that pores are merged from, (z, y, x): 0 is solid."""
        basins: npt.NDArray[np.int32] = self._basins.array()
        return basins

    @property
    def graph(self) -> BasinGraph:
        """What is known of the basins, and where they touch."""
        return self._graph

    @property
    def sample(self) -> npt.NDArray[np.int64]:
        """Voxels of each slice (row, in 2D) that are of the sample."""
        return self._sample

    @property
    def merging_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Basins and how they touch, for `hushpore.pores.stored.restored`, by their names."""
        return {"basins": self.basins, "sample": self.sample, **self._graph.arrays}

    @property
    def summary(self) -> str:
        """One sentence: porosity, number of pores, median diameter."""
        return summary_of(self.provenance["result"], self._settings)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What else may be done about what was found: with other settings, in a few words."""
        found, totals = [], self.provenance["result"]
        if phases := phases_in_words(totals, self._settings):
            found.append(
                Offer(phases, "Turn it round", {"pores_are": _other_phase(self._settings)})
            )
        around = outside_in_words(totals, bool(self._settings.sample_mask))
        if totals["air_kept_share"]:
            found.append(Offer(around, "Leave it out", {"outside": "auto"}))
        elif around and totals["padding_value"] is None:
            found.append(Offer(around, "Count it as pore", {"outside": "keep"}))
        if tiny := totals["tiny_pores"]:
            sentence = noise_in_words(totals) or (
                f"{tiny:,} of {totals['count']:,} pores {'has' if tiny == 1 else 'have'} fewer "
                f"than {RELIABLE} voxels: their shape is not reliable."
            )
            found.append(Offer(sentence, "Leave them out", {"minimum_voxels": RELIABLE}))
        return tuple(found)

    def files(self) -> ResultFiles:
        """Return what is written of it: labels, tables, thickness, and what to merge anew from."""
        import pandas as pd

        profile = self.porosity_profile
        slices = np.arange(profile.size)
        position = self.volume.origin[0] + self.volume.spacing[0] * slices
        along = pd.DataFrame({"slice": slices, "position": position, "porosity": profile})
        totals = pd.DataFrame(totals_columns(self.provenance["result"]))
        tables = {
            "pores": self.pores,
            "throats": self.throats,
            "totals": totals,
            "profile": along,
        }
        images = {"labels": self.labels_volume}
        if self.curve:
            tables["rev"] = pd.DataFrame(self.curve)
        if self.thickness:
            tables["thickness"] = self.thickness_distribution
            images |= {
                f"{phase}_thickness": self.thickness_volume(phase) for phase in self.thickness
            }
        return ResultFiles(images, tables, arrays={MERGING: self.merging_arrays})

    @property
    def merge_height(self) -> ChosenHeight:
        """The merge height that is set, and why; that of the next merging where it had none."""
        return height_of(self._graph, self._settings.h, self.volume.n_spatial)

    def remerge(self, h: str | float) -> Pores:
        """Return the segmentation merged by another height, from the basins that are kept.

        Parameters
        ----------
        h : float or str
            Merge height in voxels, or ``"auto"``; see `hushpore.pores.settings.PoreSettings`.

        Returns
        -------
        Pores
            As `segment_pores` gives with this `h`, in the time of one relabelling.

        Raises
        ------
        InputError
            If `h` is below zero.
        """
        settings = dataclasses.replace(self._settings, merging="height", h=h, markers="")
        numbering = number_basins(self._graph, settings, self.volume)
        return self._renumber(numbering, settings, merged_by(self._graph, settings, self.volume))

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
            As `segment_pores` gives with these `markers`: pore 1 grows from the lowest, and so on.

        Raises
        ------
        InputError
            If the markers have another shape, are none, or lie outside the volume or the void.
        """
        given = whole_markers(markers)
        settings = dataclasses.replace(self._settings, markers="markers")
        marks = mark_basins(given, self.basins.reshape(self.volume.shape), self._graph.count)
        require_in_void(marks.voxels, marks.in_solid, marks.is_negative)
        numbering, by = number_by_markers(marks, self._graph, settings, self.volume)
        auxiliary = {**self.volume.auxiliary, settings.markers: given}
        marked = dataclasses.replace(self.volume, auxiliary=auxiliary)
        return dataclasses.replace(self, volume=marked)._renumber(numbering, settings, by)

    def resized(self, spacing: Sequence[float], unit: str, note: str = "") -> Pores:
        """Return the same segmentation of voxels of another size.

        Parameters
        ----------
        spacing : sequence of float
            Size of a voxel along each axis, of the same shape as before: with another one pores
            are parted elsewhere.
        unit : str
            Unit of `spacing`.
        note : str, optional
            For the record: who says so.

        Returns
        -------
        Pores
            As `segment_pores` gives of the volume with this spacing, its first voxel at 0.

        Raises
        ------
        InputError
            If voxels have another shape.
        """
        if not is_proportional(self.volume.spacing, spacing):
            raise InputError(
                f"Voxels of {tuple(spacing)} have another shape than those of "
                f"{self.volume.spacing}: segment the pores again."
            )
        notes = [*self.volume.notes, *([note] if note else [])]
        volume = self.volume.replace(
            self.volume.data, spacing=tuple(spacing), unit=unit, origin=(), notes=notes
        )
        numbering = numbering_of(self.labels, self._graph)
        throats = throat_columns(self._graph, numbering, volume)
        columns: dict[str, Any] = {
            "_pore_columns": pore_columns(
                self._graph, numbering, volume, throats, self._settings.minimum_shape_voxels
            ),
            "_throat_columns": throats,
        }
        ratio = float(spacing[0] / self.volume.spacing[0])
        result = resized_totals(self.provenance["result"], ratio, unit)
        columns["curve"] = resized_curve(self.curve, ratio, volume.n_spatial)
        columns["thickness"] = {n: each.scaled(ratio) for n, each in self.thickness.items()}
        walls, sample = void_walls(self._graph), result["sample_voxels"]
        void = int(self._graph.sums[:, index_of("voxels")].sum())
        found = {
            **result,
            "specific_surface": surface_of(walls, volume) / (sample * volume.voxel_size),
            **intercept_totals(walls, void, sample, volume),
        }
        provenance = {
            **self.provenance,
            "input": {
                **self.provenance["input"], "spacing": list(volume.spacing), "unit": volume.unit,
            },
            "notes": [*self.provenance["notes"], *notes[len(self.volume.notes) :]],
            "result": totals_of(columns, volume, found),
        }  # fmt: skip
        return dataclasses.replace(self, **columns, volume=volume, provenance=provenance)

    def _renumber(self, numbering: Numbering, settings: PoreSettings, by: dict[str, Any]) -> Pores:
        if self._slabs.on_disk:
            check_disk(self._basins.nbytes)
        with closing(Scratch(self._slabs.on_disk)) as scratch, KernelThreads() as threads:
            merged = result_of(measured(self._graph, numbering, settings, self.volume))
            labels = scratch.stack("labels", self._basins.shape, np.int32)
            result_of(write_labels(self._basins, numbering.label_of, self._slabs, labels, threads))
            merged["labels"] = labels.array().reshape(self.volume.shape)
        before = self.provenance["result"]
        # intervals are of the pores as they were merged then; who does it again needs none
        settings = dataclasses.replace(settings, intervals=False)
        known = {name: each for name, each in before.items() if not is_of_interval(name)}
        found = {**known, "merged_by": by}
        totals = totals_of(merged, self.volume, found)
        auxiliary = dict(self.provenance.get("auxiliary", {}))
        auxiliary.pop("markers", None)  # of the pores before
        if settings.markers:
            markers = self.volume.auxiliary_of(settings, "markers")
            auxiliary["markers"] = identified(settings.markers, markers)
        provenance = {
            **self.provenance,
            "settings": settings.to_dict(),
            "auxiliary": auxiliary,
            "result": totals,
        }
        return dataclasses.replace(
            self,
            **merged,
            porosity=totals["porosity"],
            provenance=provenance,
            curve={n: each for n, each in self.curve.items() if not n.startswith("density")},
            _settings=settings,
        )


def thickness_title(phase: str) -> str:
    """Return what the local thickness of a phase is called."""
    return f"{'pore' if phase == 'void' else 'solid'} thickness"


def summary_of(result: Mapping[str, Any], settings: PoreSettings) -> str:
    """Return the totals of a record in one sentence."""
    count = result["count"]
    is_open, is_closed = result["open_porosity"], result["closed_porosity"]
    parts = f"open {percent_digits(is_open)}, closed {percent_digits(is_closed)}"
    void, porosity = is_open + is_closed, result["porosity"]
    if settings.mode == "all" and not math.isclose(porosity, void, abs_tol=1e-9):
        # pores that are left out are void all the same
        parts = f"all void {percent_digits(void)}: {parts}"
    around = outside_in_words(result, bool(settings.sample_mask))
    said = phases_in_words(result, settings), around, noise_in_words(result)
    first = " ".join(filter(None, said))
    of_sample = result.get("outside_share") or settings.removes_air or settings.sample_mask
    sentence = (
        f"{first}{' ' if first else ''}"
        f"Porosity {percent_digits(porosity)} % "
        f"{'of the sample ' if of_sample else ''}"
        f"({parts}), {readable_count(count, 'pore')}"
    )
    if count:
        unit = readable_unit(result["unit"])
        sentence += f", median diameter {readable_number(result['median_diameter'])} {unit}"
        by = result.get("merged_by", {})
        if "typical_radius" in by:
            sentence += f", merge height {by['h']:.2g} voxels (auto)"
    between = intervals_in_words(result)
    return f"{sentence}. {between}" if between else sentence


def phases_in_words(result: Mapping[str, Any], settings: PoreSettings) -> str:
    """Return in a sentence which of two values was taken as pore; empty where there are more.

    `result`: the totals of a record.
    """
    values = result.get("only_values")
    if not values:
        return ""
    pore, solid = reversed(values) if settings.pores_are == "bright" else values
    return (
        f"There are two values only: {pore:g} was taken as pore, {solid:g} as solid; "
        f"pores_are={_other_phase(settings)} turns it round."
    )


def _other_phase(settings: PoreSettings) -> str:
    return "dark" if settings.pores_are == "bright" else "bright"


def outside_in_words(
    result: Mapping[str, Any], by_mask: bool = False, kept_as: str = "pore"
) -> str:
    """Return in a sentence what was done about what is around a sample; empty where it is nothing.

    `result`: the totals of a record. `by_mask`: whether a mask says what the sample is; what that
    leaves out is known to whoever gave it. `kept_as`: what air counts as that is not left out.
    """
    share, padding = result.get("outside_share", 0.0), result.get("padding_value")
    kept = result.get("air_kept_share")
    sentences = []
    if kept:
        about = f"about {readable_percent(kept)} of the volume"
        sentences.append(f"Air around the sample ({about}) counts as {kept_as}.")
    left_out = []
    if share and not by_mask and result["outside"] != "keep":
        left_out.append("air around the sample")
    if share and padding is not None:
        left_out.append(f"what is filled in with the value {padding:g}")
    if left_out:
        what = " and ".join(left_out)
        of_volume = "" if by_mask else f" ({readable_percent(share)} of the volume)"
        were = "were" if left_out[1:] else "was"
        sentences.append(f"{what[0].upper()}{what[1:]}{of_volume} {were} left out.")
    return " ".join(sentences)


def noise_in_words(result: Mapping[str, Any]) -> str:
    """Return in a sentence that most pores are a few voxels each; empty where they are not.

    `result`: the totals of a record.
    """
    tiny, count = result.get("tiny_pores", 0), result["count"]
    if tiny < _FEW or 2 * tiny <= count:
        return ""
    return (
        f"Most pores, {tiny:,} of {count:,}, have fewer than {RELIABLE} voxels: their number may "
        "be that of noise. Denoise the scan first, set a stricter threshold, or take "
        f"{RELIABLE} voxels as the smallest pore."
    )


def numbering_of(labels: npt.NDArray[np.int32], graph: BasinGraph) -> Numbering:
    """Return which pore each basin belongs to, however they were merged."""
    label_of = np.zeros(graph.count + 1, np.int32)
    label_of[1:] = labels.reshape(-1)[graph.peak[1:]]
    # of each pore the basin with the highest peak comes last
    order = np.lexsort((graph.peak_squared_distance, label_of))
    last = np.flatnonzero(np.diff(label_of[order], append=-1))
    root = order[last].astype(np.int32)
    return Numbering(label_of, root[label_of[root] > 0])


def number_basins(
    graph: BasinGraph,
    settings: PoreSettings,
    volume: Volume,
    snow_peaks: npt.NDArray[np.bool_] | None = None,
) -> Numbering:
    """Merge basins, to the peaks where these are given or else by height, and number the pores."""
    left_out = basins_left_out(graph, settings, volume)
    if snow_peaks is None:
        near = near_peaks(graph, volume) if settings.joins_near_peaks else None
        root = merge_by_height(graph, height_of(graph, settings.h, volume.n_spatial).h, near)
        return number_pores(graph, root, settings.minimum_voxels, left_out)
    group = merge_to_markers(graph, np.where(snow_peaks, np.cumsum(snow_peaks), 0).astype(np.int32))
    return number_groups(graph, group, settings.minimum_voxels, left_out)


def near_peaks(graph: BasinGraph, volume: Volume) -> npt.NDArray[np.bool_]:
    """Return which edges join peaks that are no farther from each other than from the solid."""
    peaks = graph.peak, graph.peak_squared_distance
    return find_near(*peaks, graph.a, graph.b, volume.shape, volume.spacing)


def number_by_markers(
    marks: Marks, graph: BasinGraph, settings: PoreSettings, volume: Volume
) -> tuple[Numbering, dict[str, Any]]:
    """Merge basins to markers, see `Pores.remerge_to_markers`, and number the pores.

    Returns what the record says of it, too.
    """
    group = merge_to_markers(graph, marks.lowest)
    left_out = basins_left_out(graph, settings, volume)
    numbering = number_groups(graph, group, settings.minimum_voxels, left_out)
    return numbering, {"markers": int(np.unique(marks.lowest[marks.lowest > 0]).size)}


def merged_by(
    graph: BasinGraph,
    settings: PoreSettings,
    volume: Volume,
    snow_peaks: npt.NDArray[np.bool_] | None = None,
) -> dict[str, Any]:
    """Return what the record says of the merging."""
    if snow_peaks is None:
        return height_of(graph, settings.h, volume.n_spatial).to_dict()
    return {"peaks": int(np.count_nonzero(snow_peaks))}


def basins_left_out(
    graph: BasinGraph, settings: PoreSettings, volume: Volume
) -> npt.NDArray[np.bool_] | None:
    """Return the basins at the faces of the volume, where their pores are not wanted."""
    if settings.edge_pores == "keep":
        return None
    at_face = reach_a_face(graph.bounds, volume)
    at_face[0] = False
    return at_face


def measured(
    graph: BasinGraph,
    numbering: Numbering,
    settings: PoreSettings,
    volume: Volume,
) -> Pass[dict[str, Any]]:
    """Return the tables of pores that basins were merged into, one at a time, as in `Pores`."""
    throats = throat_columns(graph, numbering, volume)
    yield 0.5
    pores = pore_columns(graph, numbering, volume, throats, settings.minimum_shape_voxels)
    return {
        "_pore_columns": pores,
        "_throat_columns": throats,
    }


def whole_markers(given: Any) -> npt.NDArray[Any]:
    """Return markers as whole numbers: points lie between voxels, and a mask is of its parts."""
    markers: npt.NDArray[Any] = np.asarray(given)
    if markers.dtype == np.bool_:
        from scipy import ndimage

        parts: npt.NDArray[np.int32] = ndimage.label(markers, np.ones((3,) * markers.ndim))[0]
        return parts
    return np.rint(markers).astype(np.int64) if markers.dtype.kind == "f" else markers


class Marks(NamedTuple):
    """Where markers lie in the void."""

    lowest: npt.NDArray[np.int32]  # in each basin, 1 to n; 0 where there is none, and in row 0
    voxels: int  # that are marked
    in_solid: int  # of these outside the void, where they mark nothing
    is_negative: bool  # whether a marker is below zero


def mark_basins(markers: npt.NDArray[Any], basins: npt.NDArray[np.int32], count: int) -> Marks:
    """Return which of `count` basins hold a marker; `basins`: of the shape of the volume."""
    if markers.shape == basins.shape and markers.dtype.kind in "iu":
        place = np.nonzero(markers)
        number = markers[place]
    else:
        require_points(markers, basins.shape)
        place = tuple(markers.T)
        number = np.arange(1, len(markers) + 1)
    basin = basins[place]
    # labels may be any numbers: their ranks fit int32
    rank = np.unique(number, return_inverse=True)[1].reshape(-1) + 1
    lowest = np.full(count + 1, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(lowest, basin, rank.astype(np.int32))
    lowest[lowest == np.iinfo(np.int32).max] = 0
    lowest[0] = 0
    in_solid = int(np.count_nonzero(basin == 0))
    return Marks(lowest, number.size, in_solid, bool((number < 0).any()))


def require_points(markers: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise `InputError` where markers that are no labels are no points (n, axes) in a volume."""
    if markers.ndim != 2 or markers.shape[1] != len(shape) or markers.dtype.kind not in "iu":
        raise InputError(
            f"Markers are whole numbers: labels of shape {shape}, or points of shape "
            f"(n, {len(shape)}); got {markers.dtype} of shape {markers.shape}."
        )
    outside = ((markers < 0) | (markers >= shape)).any(axis=1)
    if outside.any():
        raise InputError(
            f"{int(outside.sum())} of {len(markers)} markers lie outside the volume of shape "
            f"{shape}; the first is at {tuple(markers[outside][0].tolist())}."
        )


def require_in_void(voxels: int, in_solid: int, is_negative: bool) -> None:
    """Raise `InputError` where no voxel is marked, or one outside the void or with less than 1."""
    if voxels == 0 or in_solid or is_negative:
        raise InputError(
            f"Markers are needed in the void, numbered from 1; got {voxels} marked voxels, "
            f"{in_solid} of them outside the void."
        )


def totals_of(merged: dict[str, Any], volume: Volume, void: dict[str, Any]) -> dict[str, Any]:
    """Return all figures of the record."""
    table, throats = merged["_pore_columns"], merged["_throat_columns"]
    diameter = table["equivalent_diameter"]
    return {
        **void,
        "porosity": int(table["num_voxels"].sum()) / void["sample_voxels"],
        "count": len(diameter),
        "tiny_pores": int(np.count_nonzero(table["num_voxels"] < RELIABLE)),
        "throats": len(throats["pore_1"]),
        "median_diameter": float(np.median(diameter)) if len(diameter) else None,
        "merge_height": void["merged_by"].get("h"),
        "unit": volume.unit,
    }
