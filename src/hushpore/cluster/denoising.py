"""Denoising on a cluster: training on one worker, prediction in blocks on all workers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from hushpore._version import __version__
from hushpore.base.atomic import new_file
from hushpore.base.events import Note, Progress, Timing, mapped, part_of
from hushpore.base.provenance import make_provenance
from hushpore.base.volume import Volume
from hushpore.cluster import denoise_tasks as remote
from hushpore.cluster.blocks import as_source, as_zarr, inputs_of, stamp_of, whole
from hushpore.cluster.connection import connect
from hushpore.cluster.denoise_tasks import Paths, PredictionOptions, scale_of
from hushpore.cluster.task_runner import in_words, loss_explained, memory_of, spread, watch
from hushpore.denoising.fill_value import PADDED, find_fill_value
from hushpore.denoising.inference.volumes import CORES, FREE_SHARE, TILE_SHARE, core_within
from hushpore.denoising.noise import NOT_RESTORED
from hushpore.denoising.pairs import load_second_scan
from hushpore.denoising.plane_reader import PlaneReader, Scale
from hushpore.denoising.result import (
    Denoised,
    NoiseRecord,
    TrainingOutcome,
    TrainingResult,
    make_result,
)
from hushpore.denoising.rings import ring_facts, slice_ranges
from hushpore.denoising.trained_model import load_model
from hushpore.device.timing import StageTimer
from hushpore.io.guards import trusting
from hushpore.io.output_target import check_target, require_apart, require_zarr, resumable_directory
from hushpore.io.registry import EXPORTERS
from hushpore.io.results import check_provenance_target, write_json
from hushpore.io.zarr import ZarrImage, import_zarr
from hushpore.io.zarr_reader import open_zarr
from hushpore.scan.noise_model import NoiseDiagnosis

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Iterable

    from distributed import Client

    from hushpore.base.events import Event, Job, Subject
    from hushpore.cluster.blocks import Scan
    from hushpore.denoising.noise import Residual
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.denoising.trained_model import Model
    from hushpore.io.zarr import Block
    from hushpore.runs.scan_recipe import ScanRecipe

    #: Yields progress; returns the results of all tasks.
    Counted: TypeAlias = Generator[Event, None, list[Any]]

#: Fraction of the job that is complete after each stage.
_CONVERTED, _MEASURED, _LEARNT, _PREDICTED, _RESTORED = 0.05, 0.1, 0.4, 0.85, 0.9
_COARSER = 0.97


def denoise_on(
    where: str | Client,
    scan: Scan,
    path: str | os.PathLike[str],
    settings: DenoiseSettings,
    *,
    device: str = "auto",
    series: int | str | None = None,
    memory: float | None = None,
    overwrite: bool = False,
    trust: bool = False,
) -> Job:
    """Denoise a scan on a cluster, as `hushpore.denoise` does on one machine.

    The result has the values that one machine predicts with the same model. If the client dies or
    the cluster is lost, the same call resumes from the blocks that were written.

    `where`: see `hushpore.cluster.connection.connect`. `scan`: an OME-Zarr folder under a path that
    is the same on all workers; other formats are converted first, beside the result. The same holds
    for a repeat scan, which the settings name by path or which is attached to the volume.
    `path`: path of the result, ending in ``.zarr``, on a disk that all workers see. The record of
    the job is written beside it as JSON. `settings`: settings of the denoising; detail restoration
    needs 4 more bytes per voxel on this disk while the job runs. `device`: device of each worker,
    as for `hushpore.denoise`. `series`: which of several image stacks, as for `hushpore.read`.
    `memory`: memory limit in GB of each process that is started here. `overwrite`: replace an
    existing OME-Zarr folder. `trust`: as for `hushpore.read`, for the scan and the files named in
    the settings.
    Yields: as on one machine; timings are those of the workers.
    Returns: the result, with its volume as a lazy array.
    Raises InputError, OutputError, MemoryLimitError: as on one machine; DeviceError if the cluster
    cannot be reached or is lost, and the same call then resumes the job; MissingPackageError if
    dask.distributed or zarr is not installed.
    """
    import_zarr()
    target = check_target(path, overwrite, suffixes=EXPORTERS["ome-zarr"].endings)
    beside = check_provenance_target(target, overwrite)
    scan = as_source(scan, series, trust)
    require_apart([target, beside], inputs_of(scan, settings))

    def work() -> Job:
        stamp = stamp_of(scan)
        key = {"hushpore": __version__, "settings": settings.to_dict(), "scan": stamp}
        second = _second(scan, settings, trust)
        if second is not None:
            key["pair"] = stamp_of(second)
        with (
            new_file(check_provenance_target(target, overwrite), overwrite) as part,
            resumable_directory(target, key, overwrite, require_zarr) as begun,
            connect(where, memory) as client,
        ):
            yield Note(f"Running on {in_words(client)}.")
            converted = as_zarr(scan, begun.scratch, trust=trust)
            image = yield from part_of(converted, 0.0, _CONVERTED)
            pair = None
            if second is not None:
                converted = as_zarr(second, begun.scratch, "pair", trust=trust)
                pair = settings.pair, (yield from part_of(converted, _CONVERTED, _CONVERTED))
            paths = Paths(image, str(begun.content), str(begun.scratch), pair, trust=trust)
            run = _Denoising(client, paths, settings, device)
            found = yield from run.run()
            write_json(part, found.provenance)
        with trusting(trust):
            (volume, *_) = open_zarr(target)
        volume = dataclasses.replace(volume, source=str(target))
        return dataclasses.replace(found, volume=volume)

    return work()


def _second(
    scan: ScanRecipe | Volume, settings: DenoiseSettings, trust: bool
) -> ScanRecipe | Volume | None:
    """Return the repeat scan named in the settings, to be opened like the scan."""
    if not settings.pair:
        return None
    if isinstance(scan, Volume):
        return as_source(scan.auxiliary.get(settings.pair, settings.pair), None, trust)
    return dataclasses.replace(scan, path=settings.pair)


class _Denoising:
    """A denoising job on a cluster, controlled by the client."""

    def __init__(
        self, client: Client, paths: Paths, settings: DenoiseSettings, device: str
    ) -> None:
        self.client, self.paths, self.settings, self.device = client, paths, settings, device
        self.timer = StageTimer()
        self.notes = [Note(f"Computed on {in_words(client)}.")]
        self.volume = paths.volume()
        self.progress = Progress("preparing", 0, 0, "", _CONVERTED)
        self.rings: list[dict[str, Any]] | None = None

    def run(self) -> Job:
        """Run the job and return its result, still with the noisy volume."""
        empty = np.broadcast_to(np.float32(0), self.volume.shape)
        # no memory limit for a layer of blocks, since blocks are written one by one
        self.image = ZarrImage.begin(
            self.paths.content, self.volume.as_denoised(empty), are_labels=False, memory=math.inf
        )
        # report unusable inputs before anything is computed
        self.volume = self.paths.attach(self.volume, self.settings)
        PlaneReader(
            self.volume, self.settings.dimensions, load_second_scan(self.volume, self.settings)
        )
        with loss_explained():
            arithmetic = self.client.run(
                remote.arithmetic, self.device, self.settings.precision, self.settings.dimensions
            )
        self.devices = ", ".join(sorted({name for name, _ in arithmetic.values()}))
        dtypes = {dtype for _, dtype in arithmetic.values()}
        # blocks computed in different precisions would show seams
        self.dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
        padding = find_fill_value(self.volume)
        if padding is not None:
            yield self._note(PADDED.format(padding), subject="result")
        self.paths = dataclasses.replace(self.paths, padding=padding)
        yield from self._correct_rings()
        trained = yield from self._learn()
        model, noise = trained.outcome.model, trained.noise.diagnosis
        if self.settings.restore_detail and model.network.architecture.hides_pixels:
            yield from self._keep_unrestored(noise)
        blocks = yield from self._predict(model)
        if self.paths.unrestored:
            yield from self._restore(noise)
        written = [_found_in(self.paths.done(block)) for block in self.image.blocks()]
        yield from self._make_coarser()
        count, total, square = (
            sum(each[k] for each in written) for k in ("count", "sum", "square")
        )
        mean = total / count
        moments = mean, math.sqrt(max(square / count - mean**2, 0.0))
        self.progress = Progress("examining", 0, 0, "", _COARSER)
        how = self.paths, self.settings, model.context
        tasks = spread(self.client, remote.examine, [moments], *how)
        (residual,) = yield from self._timed(tasks)
        for message in residual.problems:
            yield self._note(message, warning=True, subject="result")
        yield self.timer.timing()
        return self._result(trained, residual, written, blocks)

    def _correct_rings(self) -> Job:
        """Find the rings in all slices; all later tasks work on the corrected scan."""
        if not self.settings.correct_rings:
            return
        files = []
        for number, scan in enumerate(self.paths.scans()):
            file = Path(self.paths.scratch, f"rings-{number}.npz")
            if not file.exists():
                self.progress = Progress("ring correction", 0, 0, "", _CONVERTED)
                tasks = spread(self.client, remote.ring_centre, [number], self.paths)
                ((centre,),) = ((yield from self._timed(tasks, _CONVERTED)),)
                which = [(number, centre, *part) for part in slice_ranges(scan)]
                self.progress = Progress("ring correction", 0, len(which), "parts", _CONVERTED)
                tasks = spread(self.client, remote.slice_rings, which, self.paths)
                found = yield from self._timed(tasks, _CONVERTED)
                remote.keep_rings(file, centre, found)
            files.append(str(file))
        self.paths = dataclasses.replace(self.paths, rings=tuple(files))
        self.volume = self.paths.attach(self.paths.volume(), self.settings)
        self.rings = []
        for scan in self.paths.scans():
            facts, said = ring_facts(scan)
            self.rings.append(facts)
            yield self._note(said)

    def _learn(self) -> Generator[Event, None, TrainingResult]:
        file = Path(self.paths.scratch) / "outcome.json"
        model = file.with_name("model.safetensors")
        if file.exists():
            with whole(file):
                known = json.loads(file.read_text(encoding="utf-8"))
                diagnosis = NoiseDiagnosis(**known["noise"].pop("diagnosis"))
                noise = NoiseRecord(diagnosis, **known["noise"])
                outcome = TrainingOutcome(load_model(model), **known["outcome"])
                notes, where = tuple(map(Note.of_dict, known["notes"])), known["device"]
            yield self._note("Resumed an interrupted run: its trained model is used.")
            self.notes += notes
            return TrainingResult(outcome, noise, notes, where)
        settings = self.settings
        # measured with a given model too, since values that are not finite are an error
        scale = yield from self._measure()
        if settings.model:
            # workers may not be able to read the user's file
            given = file.with_name("given.safetensors")
            trained = load_model(settings.model)
            trained.save(given, overwrite=True)
            settings, scale = dataclasses.replace(settings, model=str(given)), trained.scale
        limit = memory_of(self.client)
        if limit and settings.denoise_memory is None:
            settings = dataclasses.replace(settings, denoise_memory=limit / 4e9)
        watched = watch(
            self.client, remote.learn_on_worker, self.paths, settings, self.device, scale
        )
        training: TrainingResult = yield from mapped(
            part_of(watched, _MEASURED, _LEARNT), self._collect
        )
        # some notes are kept without being sent as events
        self.notes += [each for each in training.notes if each not in self.notes]
        training.outcome.model.save(model, overwrite=True)
        facts = {name: value for name, value in vars(training.outcome).items() if name != "model"}
        known = {
            **vars(training),
            "outcome": facts,
            "noise": dataclasses.asdict(training.noise),
            "notes": [note.to_dict() for note in training.notes],
        }
        # written last: its presence implies the model
        with new_file(file, overwrite=True) as part:
            write_json(part, known)
        # read back as the workers do: rounding in PyTorch depends on the memory layout of weights
        outcome = dataclasses.replace(training.outcome, model=load_model(model))
        return dataclasses.replace(training, outcome=outcome)

    def _measure(self) -> Generator[Event, None, Scale]:
        """Return the grey scale of the volume, measured from all values."""
        blocks = list(self.image.blocks())
        self.progress = Progress("measuring", 0, len(blocks), "blocks", _CONVERTED)
        tasks = spread(self.client, remote.measure_block, blocks, self.paths)
        found: list[list[remote.Measured]] = yield from self._timed(tasks, _MEASURED)
        scans = [self.volume, self.paths.second(self.volume)]
        # the first scan gives the scale of both; the second is only checked
        scale, *_ = [
            scale_of(measured, volume or self.volume)
            for measured, volume in zip(zip(*found, strict=True), scans, strict=False)
        ]
        return scale

    def _keep_unrestored(self, noise: NoiseDiagnosis) -> Generator[Event, None, None]:
        """Write predictions to a separate image first, if the noise allows detail restoration."""
        if not noise.is_independent:
            yield self._note(NOT_RESTORED, True, "result")
            return
        folder = Path(self.paths.scratch, "unrestored.ome.zarr")
        empty = self.volume.replace(np.broadcast_to(np.float32(0), self.volume.shape))
        # with the same blocks as the result
        ZarrImage.begin(folder, empty, are_labels=False, memory=math.inf)
        self.paths = dataclasses.replace(self.paths, unrestored=str(folder))

    def _restore(self, noise: NoiseDiagnosis) -> Generator[Event, None, None]:
        """Restore detail in all blocks, each with a margin of the prediction around it."""
        blocks = list(self.image.blocks())
        missing = [block for block in blocks if not self._is_done(block)]
        done = len(blocks) - len(missing)
        self.progress = Progress("detail restoration", done, len(blocks), "blocks", _PREDICTED)
        tasks = spread(self.client, remote.restore_block, missing, self.paths, noise)
        yield from self._timed(tasks, _RESTORED)

    def _is_done(self, block: Block) -> bool:
        """Whether a block of the result and its report are written."""
        return self.paths.done(block).exists() and self.image.is_written(block)

    def _predict(self, model: Model) -> Generator[Event, None, int]:
        """Predict the missing blocks; returns the number of blocks that existed."""
        blocks, predicted = list(self.image.blocks()), self.paths.predicted()
        of_result = not self.paths.unrestored
        missing = [
            block
            for block in blocks
            if not (self._is_done(block) if of_result else predicted.is_written(block))
        ]
        written = len(blocks) - len(missing)
        if written:
            yield self._note(
                f"Resumed: {written} of {len(blocks)} blocks were written by an earlier run."
            )
        dimensions = self.settings.dimensions
        memory = TILE_SHARE * FREE_SHARE * (memory_of(self.client) or math.inf)
        core = core_within(memory, model.network.architecture, self.dtype)
        if core != CORES[dimensions]:
            yield self._note(
                f"Prediction in tiles of {' x '.join(map(str, core[1:]))} to fit the memory of the "
                "workers: values may differ from those of one machine in the last digits."
            )
        augment = model.augments(self.settings, self.volume.shape)
        options = PredictionOptions(self.device, self.dtype, core, augment)
        self.progress = Progress("denoising", written, len(blocks), "blocks", _LEARNT)
        with loss_explained():
            # loaded from its file, so that a lost worker's copy can be loaded again; each worker
            # receives it once
            file = str(Path(self.paths.scratch, "model.safetensors"))
            shared = self.client.submit(load_model, file, pure=False)
        tasks = spread(self.client, remote.denoise_block, missing, self.paths, options, shared)
        yield from self._timed(tasks, _PREDICTED)
        return written

    def _make_coarser(self) -> Job:
        total = sum(math.prod(level.shape) for level in self.image.levels[1:])
        begin, done = _RESTORED, 0
        for level in range(1, len(self.image.levels)):
            blocks = [(level, block) for block in self.image.blocks(level)]
            missing = [each for each in blocks if not self.image.is_written(each[1], level)]
            done += math.prod(self.image.levels[level].shape)
            end = _RESTORED + (_COARSER - _RESTORED) * done / total
            written = len(blocks) - len(missing)
            self.progress = Progress("coarser levels", written, len(blocks), "blocks", begin)
            yield from self._timed(
                spread(self.client, remote.reduce_block, missing, self.paths), end
            )
            begin = end

    def _timed(self, tasks: Iterable[Any], end: float = _COARSER) -> Counted:
        """Wait for tasks, yielding progress; collect their timings and return their results."""
        found, begin = [], self.progress
        yield begin
        for finished_task in tasks:
            if finished_task is not None:
                result, timing = finished_task
                found.append(result)
                self.timer.merge(timing)
                yield self.timer.timing()
                done = begin.done + len(found)
                share = len(found) / max(begin.total - begin.done, 1)
                fraction = begin.fraction + (end - begin.fraction) * min(share, 1.0)
                self.progress = dataclasses.replace(begin, done=done, fraction=fraction)
            # yield while waiting too, so that a cancel takes effect
            yield self.progress
        return found

    def _collect(self, event: Event) -> Event:
        """Collect notes and timings of a job on a worker."""
        if isinstance(event, Note):
            self.notes.append(event)
        elif isinstance(event, Timing):
            self.timer.merge(event)
            return self.timer.timing()
        return event

    def _note(self, message: str, warning: bool = False, subject: Subject = "run") -> Note:
        self.notes.append(Note(message, warning, subject))
        return self.notes[-1]

    def _result(
        self,
        trained: TrainingResult,
        residual: Residual,
        written: list[dict[str, Any]],
        earlier: int,
    ) -> Denoised:
        own, *others = (
            {"blake2b_of_blocks": _digest(blocks)}
            for blocks in zip(*(each["blake2b"] for each in written), strict=True)
        )
        provenance = make_provenance(
            "denoise", self.volume, self.settings, f"{self.devices} ({in_words(self.client)})",
            self.timer.timing(), self.notes, own, dict(zip(("pair",), others, strict=False)),
        )  # fmt: skip
        provenance["cluster"] = {"blocks": len(written), "written_before": earlier}
        return make_result(
            self.volume, trained.outcome, trained.noise, provenance, residual=residual,
            precision=self.dtype, rings=self.rings, padding=self.paths.padding,
        )  # fmt: skip


def _found_in(file: Path) -> Any:
    """Return the report of a finished block."""
    with whole(file):
        return json.loads(file.read_text(encoding="utf-8"))


def _digest(blocks: Iterable[str]) -> str:
    """Return the fingerprint of a scan from the digests of its blocks."""
    digest = hashlib.blake2b(digest_size=16)
    for each in blocks:
        digest.update(bytes.fromhex(each))
    return digest.hexdigest()
