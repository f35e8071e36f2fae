"""The stages of a segmentation in blocks, and the work of the client between them.

The stages are those of `hushpore.pores.slab_steps`, with a task for each slab. Between stages the
client combines the few numbers that slabs exchange.
"""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Note, by_importance, result_of
from hushpore.base.provenance import make_provenance
from hushpore.base.volume import Volume, require_range
from hushpore.cluster.blocks import Blocks, save_arrays
from hushpore.cluster.merging import join_shared, peaks_of
from hushpore.cluster.setup import set_up
from hushpore.cluster.void import histogram_of, range_of, room_of
from hushpore.cluster.watershed import (
    Finished,
    collect,
    count_layers,
    follow_through,
    join_marks,
    open_labels,
    profile_of,
    write_table,
)
from hushpore.pores.advice import examine_sample, remarks_of, warnings_of
from hushpore.pores.forms.findings import Findings
from hushpore.pores.forms.limits import columns_of, judged, read_limits
from hushpore.pores.forms.tables import depth_column, form_tables, has_profiles
from hushpore.pores.noise import find_noise, with_minimum
from hushpore.pores.numbering import (
    excluded_basins,
    measured,
    outside_totals,
    small_totals,
    totals_of,
    void_totals,
)
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.tables.measures import walls_of
from hushpore.pores.tables.totals import headline_of, totals_columns
from hushpore.pores.void.threshold import Range, Rounding, narrowed, require_steps
from hushpore.pores.watershed.merging import (
    find_height,
    middle_of,
    number_groups,
    number_pores,
    widest,
)
from hushpore.pores.work import (
    NO_AIR,
    Threshold,
    VoidTotals,
    check_hysteresis,
    local_threshold,
    require_sample,
    require_solid,
    threshold_of,
)
from hushpore.scan.exterior import make_thumbnail

if TYPE_CHECKING:
    from collections.abc import Generator

    from distributed import Client

    from hushpore.base.arrays import Array, Int64s, UInt8s
    from hushpore.base.events import Event, Subject
    from hushpore.cluster.blocks import Report
    from hushpore.cluster.merging import Joined
    from hushpore.cluster.setup import Setup
    from hushpore.cluster.task_runner import Gpus
    from hushpore.io.output_target import Unfinished
    from hushpore.pores.numbering import Columns
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.watershed.merging import Numbering
    from hushpore.scan.histogram import Histogram


class _Basins(NamedTuple):
    """Combined reports of the slabs after the search for basins."""

    crossings: Int64s  # void surface crossings, by direction
    border_crossings: Int64s  # those at the border of the volume
    euler_number: int
    merge_height: float
    merged_by: dict[str, Any]  # entry in the record on how basins were merged
    # sorted basins with a marker, and the lowest marker of each; None: no markers
    marks: tuple[Int64s, Int64s] | None


def in_blocks(
    client: Client,
    work: Unfinished,
    volume: Volume,
    settings: PoreSettings,
    threads: int,
    thickness: int | None,
    gpus: Gpus,
    where: str,
) -> Generator[Event, Any, Finished]:
    """Segment a volume in blocks."""
    setup = yield from set_up(client, work, volume, settings, threads, thickness, gpus)
    segmentation = _Segmentation(setup, work, volume, settings, gpus.problem)
    return (yield from segmentation.run(where))


class _Segmentation:
    """A segmentation in blocks: its plan, its workers, and the combined reports so far."""

    def __init__(
        self, setup: Setup, work: Unfinished, volume: Volume, settings: PoreSettings, problem: str
    ) -> None:
        self.given, self.volume, self.problem = settings, volume, problem
        self.scratch, self.content = work.scratch, work.content
        self.runner, self.exterior, self.most_basins, self.digest, self.earlier = setup
        self.plan = self.runner.plan
        self.settings, self.slabs = self.plan.settings, len(self.plan.slabs)
        self.notes: list[Note] = []
        self.ran_out: set[int] = set()
        self.padded = np.zeros(0, np.int64)
        self.grey_range = (0.0, 1.0)
        self.points: UInt8s | None = None

    def run(self, where: str) -> Generator[Event, Any, Finished]:
        """Run all stages."""
        if self.problem:
            yield from self._note(self.problem, warning=True)
        yield from self._note(
            f"Worked on in {self.slabs} blocks of {self.plan.thickness} slices, on {where}."
        )
        if self.earlier:
            yield from self._note(f"Resumed an earlier run with {self.earlier} finished tasks.")
        threshold, phase, reports = yield from self._find_void()
        sample, parts = yield from self._classify_void(phase, reports)
        voxels = math.prod(self.plan.shape)
        share = float(voxels - sample.sum()) / voxels
        for warning in warnings_of(self.volume, self.given, self.exterior, share):
            self.notes.append(warning)
            yield warning
        found = yield from self._find_basins()
        graph, root = yield from self._merge(found.border_crossings, found.merge_height)
        rounding = Rounding.of(self.volume.dtype, *self.grey_range)
        graph = dataclasses.replace(graph, rounding=rounding)
        noise = self._find_noise(threshold, share)
        settings = with_minimum(self.settings, self.volume, threshold, noise)
        numbering = self._number(graph, root, found.marks, settings)
        save_arrays(
            self.scratch / "labels-0.arrays", {"root": root, "label": numbering.label_of[1:]}
        )
        with ThreadPoolExecutor(1, "hushpore-tables") as pool:
            # in a thread, while workers write the labels
            tables = pool.submit(self._tables, graph, numbering)
            pore_voxels = yield from self._write_labels()
            columns = tables.result()
        write_table(self.content, "profile", profile_of(self.volume, sample, pore_voxels))
        walls = walls_of(found.crossings, found.border_crossings)
        void = VoidTotals(*parts.voxels, parts.components, sample, share)
        known = void_totals(void, threshold, walls, graph, self.volume)
        small = make_thumbnail(self.volume)
        examined = examine_sample(self.volume, self.settings, self.exterior, small, known).totals()
        known |= {**noise, **examined, **small_totals(numbering, graph, settings)}
        totals = totals_of(
            columns,
            self.volume,
            {
                **known,
                "euler_number": found.euler_number,
                "merged_by": found.merged_by,
                **outside_totals(self.exterior, share),
            },
            self.settings.edge_pores,
        )
        write_table(self.content, "totals", totals_columns(totals))
        form = self.settings.report_form
        findings = Findings(totals, *columns, self.volume, self.settings, phases=self.points)
        if self.settings.limits:
            totals |= judged(read_limits(self.settings.limits), findings)
            write_table(self.content, "limits", columns_of(totals))
        write_table(self.content, "pores", columns.pores | depth_column(form, findings))
        if form != "none":
            for name, table in form_tables(form, findings).items():
                write_table(self.content, name, table)
        yield from self._note(
            f"{self.runner.computed} tasks were computed, "
            f"{self.runner.reused} were taken from an earlier run."
        )
        timing = self.runner.timing()
        yield timing
        provenance = make_provenance(
            "pores", self.volume, self.given, where, timing, self.notes, self.digest
        )
        provenance["result"] = totals
        remarks = by_importance([*remarks_of(totals, self.settings), *self.notes])
        return Finished(provenance, headline_of(totals, self.settings), remarks)

    def _number(
        self,
        graph: BasinGraph,
        root: Int64s,
        marks: tuple[Int64s, Int64s] | None,
        settings: PoreSettings,
    ) -> Numbering:
        """Merge basins to their markers, if any, and number the pores.

        `root`: merged basin of each node of the graph. `settings`: with a number of voxels as the
        minimum pore size.
        """
        group_of = np.arange(graph.count + 1, dtype=np.int32)
        if marks is not None:
            marked, marker = marks
            group_of[:] = 0
            has_one = np.isin(root, marked)
            own = marker[np.searchsorted(marked, root[has_one])]
            group_of[1:][has_one] = np.unique(own, return_inverse=True)[1] + 1
        left_out = excluded_basins(graph, settings, self.volume)
        number = number_pores if marks is None else number_groups
        return number(graph, group_of, settings.minimum_voxels or 1, left_out)

    def _find_noise(self, threshold: Threshold, share: float) -> dict[str, Any]:
        """Return the entries of the record about noise."""
        how = self.volume, self.settings, threshold, share, self.plan.padding
        with KernelThreads() as threads:
            return find_noise(*how, threads)

    def _find_void(self) -> Generator[Event, Any, tuple[Threshold, str, list[Report]]]:
        """Separate void and solid.

        Returns the threshold, the name of the stack of phases, and the reports of the slabs.
        """
        settings, dtype = self.settings, self.volume.dtype.newbyteorder("=")
        is_void, method = dtype.kind == "b", settings.threshold
        is_local = not is_void and settings.is_local
        wants = isinstance(method, str) and not is_void
        threshold, local, strict = Threshold(None), None, None
        if not is_void:
            reports = yield from self._slabs("survey", "threshold", 0.08, with_histogram=wants)
            found, histogram = range_of(reports, dtype)
            require_range(self.volume, found.low, found.high, found.bad)
            require_steps(self.volume, found)
            if wants and histogram is None:
                histogram = yield from self._count(found)
                found, histogram = yield from narrowed(found, histogram, dtype, self._count)
            self.grey_range = float(found.low), float(found.high)
            if is_local:
                depth, padding = self.plan.shape[0], self.plan.padding
                local = local_threshold(self.volume, settings, depth, found, padding)
            else:
                threshold = threshold_of(settings, found.low, found.high, histogram)
                check_hysteresis(settings, threshold.value)
                strict = settings.hysteresis
                if threshold.problem:
                    yield from self._note(threshold.problem, True, "result")
        phase = "raw"
        how: dict[str, Any] = {"threshold": threshold.value, "local": local, "strict": strict}
        reports = yield from self._slabs("threshold", "void", 0.18, target=phase, **how)
        all_void = all(bool(part["is_all_void"]) for part in reports)
        # voxels of fill value per slice; empty if there is none
        self.padded = np.concatenate(
            [part.get("padded", np.zeros(0, np.int64)) for part in reports]
        )
        if strict is not None:
            joined = yield from self._join("hysteresis-parts", reports, 0.19)
            each = [{"kept": part} for part in joined.marked]
            yield from self._slabs(
                "hysteresis", "void", 0.2, each=each, source=phase, target="kept"
            )
            self._remove(f"{phase}-*.slab")
            phase = "kept"
        if settings.removes_air and not settings.sample_mask:
            require_solid(self.volume, not all_void)
        return threshold, phase, reports

    def _classify_void(
        self, phase: str, reports: list[Report]
    ) -> Generator[Event, Any, tuple[Int64s, Joined]]:
        """Separate open and closed void; returns sample voxels of each slice and the components.

        `phase`: name of the stack of phases. `reports`: reports of the slabs on the void.
        """
        sample = np.full(self.plan.shape[0], math.prod(self.plan.shape[1:]), np.int64)
        settings = self.settings
        if settings.removes_air or settings.sample_mask:
            stage = "mask" if settings.sample_mask else "air"
            if stage == "air" and settings.exterior == "remove":
                stage = yield from self._roll_ball(phase)
            reports = yield from self._slabs(stage, "void", 0.22, source=phase, target="aired")
            self._remove(f"{phase}-*.slab")
            self._remove("reached-*.slab")
            phase = "aired"
            air = np.concatenate([each["air"] for each in reports])
            sample -= air
            if settings.sample_mask:
                require_sample(self.volume, settings, air)
            elif not air.any():
                yield from self._note(NO_AIR, True, "result")
        elif self.padded.size:
            sample -= self.padded
        if "shared_marked" not in reports[0] or self.settings.hysteresis is not None:
            reports = yield from self._slabs("parts", "void", 0.25, source=phase)
        joined = yield from self._join("join", reports, 0.27)
        self.void, self.is_open = phase, [{"shared_open": part} for part in joined.marked]
        if self.settings.pore_type != "all":
            yield from self._slabs("paint", "void", 0.3, each=self.is_open, source=phase)
            self._remove(f"{phase}-*.slab")
            self.void = "void"
        elif has_profiles(settings.report_form) or settings.limits:
            found = yield from self._slabs("points", "void", 0.3, source=phase)
            self.points = np.concatenate([each["points"] for each in found])
        return sample, joined

    def _roll_ball(self, phase: str) -> Generator[Event, Any, str]:
        """Find the region that the rolling ball reaches; returns the stage that marks it."""
        with Blocks(self.plan) as blocks, room_of(blocks) as (room, _):
            slabs = range(len(room.plan.slabs))
        balls = [(slab, {"source": phase}) for slab in slabs]
        reports = yield from self.runner.run("balls", "void", 0.205, balls)
        joined = yield from self._join("balls-join", reports, 0.21)
        reached = [(slab, {"shared_outside": joined.marked[slab]}) for slab in slabs]
        yield from self.runner.run("reach", "void", 0.215, reached)
        self._remove("balls-*.slab")
        return "covered"

    def _join(
        self, stage: str, reports: list[Report], until: float
    ) -> Generator[Event, Any, Joined]:
        """Join connected components across the faces between slabs."""
        faces: list[Any] = [(slab, {}) for slab in range(len(reports) - 1)]
        pairs = yield from self.runner.run(stage, "void", until, faces)
        return join_shared(reports, pairs)

    def _find_basins(self) -> Generator[Event, Any, _Basins]:
        """Find basins and their graphs."""
        bands: list[Any] = [(band, {}) for band in range(self.plan.bands)]
        yield from self.runner.run("along", "distance", 0.32, bands)
        self._remove("along-*.planes")
        grey: dict[str, Any] = {"grey_range": self.grey_range}
        how = {"source": self.void, "most_basins": self.most_basins, **grey}
        found = yield from self._slabs("basins", "basins", 0.68, each=self.is_open, **how)
        if self.ran_out:
            yield from self._note(
                f"The GPUs' memory ran out in {len(self.ran_out)} of {self.slabs} blocks, which "
                "were computed on the CPU instead.",
                warning=True,
            )
        self._remove(f"{self.void}-*.slab")
        self._remove("carried-*.planes")
        basins = np.cumsum([0, *(int(each["count"]) for each in found)])
        back = np.array([int(each["back"]) for each in found])
        exits = np.cumsum([0, *(back + [int(each["ahead"]) for each in found])])
        if basins[-1] >= 2**31 - 1:
            raise InputError("There are too many basins to number. Denoise or crop the volume.")
        counts = {"basins_before": basins.tolist(), "exits_before": exits.tolist()}
        faces = [(slab, counts) for slab in range(self.slabs - 1)]
        met = yield from self.runner.run("stitch", "merging", 0.7, faces)
        if any(each["through"].size for each in met):
            through = np.unique(np.concatenate([each["through"] for each in met]))
            follow_through(self.scratch, through, int(basins[-1]), exits, back)
        reduced = yield from self._slabs(
            "reduce", "merging", 0.74, basins_before=basins.tolist(), **grey
        )
        self._remove("grey-*.slab")
        # the merge height is the same in all slabs, so it must be known before merging
        height = find_height(self.settings.merge_height, *peaks_of(reduced), self.volume.n_spatial)
        merged_by, marks = height.to_dict(), None
        if self.settings.markers:
            marks = join_marks(reduced)
            merged_by = {"markers": np.unique(marks[1]).size}
        elif self.settings.by_snow:
            peaks = yield from self._find_peaks(basins.tolist())
            marks = peaks, np.arange(peaks.size)
            merged_by = {"peaks": peaks.size}
        marked = None if marks is None else marks[0]
        how = {"h": height.merge_height, "purpose": "pores"}
        yield from self._slabs("merge", "merging", 0.75, marked=marked, **how)
        self._remove("undecided-*.arrays")
        crossings, border_crossings = np.zeros((2, 13), np.int64)
        for each in [*found, *reduced]:
            if "border_crossings" in each:
                crossings += each["crossings"]
                border_crossings += each["border_crossings"]
        euler_number = sum(int(each["euler_number"]) for each in found)
        return _Basins(
            crossings, border_crossings, euler_number, height.merge_height, merged_by, marks
        )

    def _merge(
        self, border_crossings: Int64s, h: float
    ) -> Generator[Event, Any, tuple[BasinGraph, Int64s]]:
        """Merge basins up the tree of slabs; returns the graph of all pores and their roots."""
        levels = yield from self._unite(0.76, h=h, purpose="pores")
        yield from self._slabs("finish", "measuring", 0.8, levels=levels)
        return collect(self.scratch, self.slabs, border_crossings)

    def _unite(self, until: float, **how: Any) -> Generator[Event, Any, int]:
        """Run the merges of all levels of the tree of slabs; returns the number of levels."""
        level, count = 0, self.slabs
        while count > 1:
            level, count = level + 1, -(-count // 2)
            nodes = [(number, {"level": level, **how}) for number in range(count)]
            yield from self.runner.run(f"union {how['purpose']} {level}", "merging", until, nodes)
        return level + 1

    def _find_peaks(self, basins_before: list[int]) -> Generator[Event, Any, Array]:
        """Find the basins that contain a SNOW peak; returns their sorted numbers."""
        how: dict[str, Any] = {"h": 0.0, "purpose": "flat"}
        yield from self._slabs("merge flat", "merging", 0.742, marked=None, **how)
        levels = yield from self._unite(0.743, **how)
        of_basins: dict[str, Any] = {
            "basins_before": basins_before,
            "levels": levels,
            "purpose": "flat",
        }
        found = yield from self._slabs("peaks", "merging", 0.746, **of_basins)
        basin, middle = middle_of(
            *(np.concatenate([each[name] for each in found]) for name in ("place", "basin"))
        )
        slab = middle[:, 0] // self.plan.thickness
        each = [{"place": middle[slab == number]} for number in range(self.slabs)]
        told = yield from self._slabs("widths", "merging", 0.748, each=each)
        squared = np.empty(basin.size, np.float32)
        for number, own in enumerate(told):
            squared[slab == number] = own["squared"]
        self._remove("distance-*.slab")
        with Blocks(self.plan) as blocks:
            return basin[widest(middle, squared, blocks.work.spacing)]

    def _tables(self, graph: BasinGraph, numbering: Numbering) -> Columns:
        """Measure pores and throats, and write the table of throats."""
        columns = result_of(measured(graph, numbering, self.settings, self.volume))
        write_table(self.content, "throats", columns.throats)
        return columns

    def _write_labels(self) -> Generator[Event, Any, Int64s]:
        """Write the labels and their coarser levels; returns the voxels of pores in each slice."""
        image = open_labels(self.content, self.volume)
        layers = [(layer, {"thickness": image.depth}) for layer in range(count_layers(image, 0))]
        reports = yield from self.runner.run("labels", "labels", 0.96, layers)
        for level in range(1, len(image.levels)):
            coarser = [(layer, {"level": level}) for layer in range(count_layers(image, level))]
            yield from self.runner.run(f"coarser {level}", "coarser levels", 0.99, coarser)
        return np.concatenate([each["pore_voxels"] for each in reports])

    def _count(self, among: Range) -> Generator[Event, Any, Histogram]:
        """Count the grey values in the bins of a range."""
        stage = f"levels {float(among.low)} {float(among.high)}"
        how = {"low": among.low, "high": among.high}
        reports = yield from self._slabs(stage, "threshold", 0.12, **how)
        return histogram_of(reports)

    def _slabs(
        self,
        stage: str,
        shown: str,
        until: float,
        each: list[dict[str, Any]] | None = None,
        **arguments: Any,
    ) -> Generator[Event, Any, list[Report]]:
        """Run a stage with a task for each slab, with shared and individual arguments."""
        own = each or [{}] * self.slabs
        keys = [(slab, {**arguments, **own[slab]}) for slab in range(self.slabs)]
        reports = yield from self.runner.run(stage, shown, until, keys)
        self.ran_out.update(slab for slab, each in enumerate(reports) if "ran_out" in each)
        return reports

    def _note(
        self, message: str, warning: bool = False, subject: Subject = "run"
    ) -> Generator[Event, Any, None]:
        self.notes.append(Note(message, warning, subject))
        yield self.notes[-1]

    def _remove(self, pattern: str) -> None:
        """Delete files that are no longer needed."""
        for file in self.scratch.glob(pattern):
            file.unlink(missing_ok=True)
