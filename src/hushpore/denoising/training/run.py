"""The training of a denoising job, with smaller batches if memory runs out.

The steps of a job share a state: notes, times, device and images. Most patches are drawn in the
sample of a scan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import Batch, Job, Note, Progress, mapped
from hushpore.base.formatting import readable_count, readable_percent
from hushpore.base.provenance import fingerprint
from hushpore.denoising.automatic import BATCH, architecture_for, masked_share
from hushpore.denoising.images import Images, TrainingRegions, has_regions, regions_fingerprint
from hushpore.denoising.inference.volumes import FREE_SHARE, IMAGES_SHARE
from hushpore.denoising.pairs import Noise2Noise, Recorruption
from hushpore.denoising.result import ALL_OF_IT, TrainingOutcome
from hushpore.denoising.trained_model import Model
from hushpore.denoising.training.blocks import BlockSampler
from hushpore.denoising.training.loop import FREE, Checkpoint, TrainingLoop, read_preview_slice
from hushpore.denoising.training.schedule import Schedule
from hushpore.denoising.training.step import BatchSampler, PairMaker, choose_precision
from hushpore.device.backend import Backend
from hushpore.device.memory import is_out_of_memory
from hushpore.patches.places import Places, in_volume

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from hushpore.base.arrays import Float32s
    from hushpore.base.events import Event, Subject
    from hushpore.denoising.automatic import Method, Task
    from hushpore.denoising.images import Arrangement, PatchPlaces
    from hushpore.denoising.model import UNet
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.device.timing import StageTimer

    T = TypeVar("T")
    from hushpore.base.arrays import Float64s, Int64s
    from hushpore.scan.sample import Sample

#: Shares of the original scan in a result from which a note is made, and from which the removed
#: part is too small to be examined.
NOTABLE_SHARE, MOST_OF_IT = 0.25, 0.5


@dataclass
class Training:
    """The training of a network on a volume."""

    task: Task
    source: PlaneReader  # the volume, without its rings where these were taken out
    scale: Scale  # between its grey values and those of the network
    workplace: Workplace  # where its images lie
    method: Method
    log: JobLog

    def run(self) -> Job:
        """Train; if memory runs out, with smaller batches and finally on the CPU.

        Returns: `TrainingOutcome`.
        """
        task, workplace = self.task, self.workplace
        count = asked = task.settings.batch_size or BATCH[task.settings.dimensions]
        while True:
            checkpoint = self._checkpoint(asked)
            if checkpoint is not None and checkpoint.exists:
                count = min(count, checkpoint.batch_size)
            batches = BatchSampler(
                task.size,
                count,
                masked_share(task.settings),
                torch.Generator(workplace.backend.device).manual_seed(task.settings.seed),
                task.replacement,
                self._pair_maker(),
            )
            try:
                return (yield from self._train(batches, checkpoint))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                smaller = batches.halved()
            if smaller is not None:
                count = smaller.count
                patches = readable_count(count, "patch", "patches")
                yield self.log.note(f"Out of memory: batch size reduced to {patches}.")
            else:
                yield workplace.move_to_cpu()

    def _pair_maker(self) -> PairMaker | None:
        """Return the maker of inputs and targets; None for methods that mask pixels."""
        task, method = self.task, self.method
        if method.name == "n2n":
            return Noise2Noise()
        if method.noise is None:
            return None
        device = self.workplace.backend.device
        plane = task.volume.shape[-2:]
        return Recorruption.of(method.noise, self.scale, task.size, task.context, device, plane)

    def _train(self, batches: BatchSampler, checkpoint: Checkpoint | None) -> Job:
        task, workplace, log = self.task, self.workplace, self.log
        blocks, images = yield from self._images()
        volume = (self.source, task.arrangement, self.scale, workplace.backend)
        # of the targets, normalised; None if it is not known
        noise, drawn, maker = None, self.method.noise, batches.pair_maker
        if drawn is not None and maker is not None:
            noise = float(drawn.deviation**2 / self.scale.std[0] ** 2 * maker.target_variance)
        loop = TrainingLoop(
            task.settings, workplace.backend, log.timer, images, batches, workplace.dtype,
            partial(read_preview_slice, *volume), self._to_model, partial(self._to_batch, blocks),
            TRAINING_SHARE, noise=noise, is_comparable=blocks is None,
        )  # fmt: skip
        state = loop.start(
            architecture_for(task.volume, task.settings, self.method.name, task.arrangement)
        )
        if checkpoint is not None and checkpoint.exists:
            checkpoint.load(state, workplace.is_moved)
            yield log.note(f"Resumed from the checkpoint at step {state.step:,}.", False)
        yield PREPARING
        yield from loop.run(state, checkpoint)
        log.notes += loop.notes
        is_full = loop.schedule.is_open and not loop.notes
        if is_full:
            steps = readable_count(state.step, "step")
            yield log.note(f"Training ended after {steps}: {loop.ended}.", warning=False)
        schedule = loop.schedule.record(state.shares)
        outcome = TrainingOutcome(
            self._to_model(state.learner.average), state.curves, state.step, state.elapsed,
            schedule, loop.ended,
        )  # fmt: skip
        if (share := outcome.model.network.input_share) > NOTABLE_SHARE:
            yield log.note(_input_share_note(share, task, outcome, is_full), False, "result")
        return outcome

    def _to_batch(self, blocks: BlockSampler | None, step: int, patch_losses: Float32s) -> Batch:
        """Return the positions in the volume of the patches of a batch."""
        task = self.task
        corners = patch_losses[:, :-1].astype(np.int64)
        if blocks is not None:
            corners = blocks.in_volume(step - 1, corners)
        # all planes predicted from an image have the same patches
        corners[:, 0] = task.arrangement.predicted[corners[:, 0], 0]
        corners = in_volume(corners, task.volume.shape[: -len(task.size)])
        return Batch(step, corners, task.size, patch_losses[:, -1].astype(np.float64))

    def _images(
        self,
    ) -> Generator[Progress, Any, tuple[BlockSampler | None, Callable[[int], Images]]]:
        """Return a function that gives the images of a step, and the sampler of their blocks."""
        task, workplace, timer = self.task, self.workplace, self.log.timer
        regions: PatchPlaces | None = None
        weight = None
        if has_regions(task.settings):
            regions = TrainingRegions(task.volume, task.settings, task.arrangement, task.size)
        elif task.sample is not None and not workplace.backend.is_apple:
            # drawing by weights needs 64-bit numbers, which Apple's GPU lacks
            regions = SamplePlaces(task.sample, task.arrangement, task.size, task.settings.seed)
        if workplace.images is not None:
            whole = workplace.images
            if regions is not None:
                with timer.stage("regions"):
                    every = np.arange(whole.shape[0]), slice(0, whole.shape[1])
                    places = regions.places(*every).to(workplace.backend.device)
                    whole = replace(whole, places=places)
            return None, lambda step: whole
        if regions is not None:
            weight = yield from self.log.run_stage("regions", regions.row_weights())
        blocks = BlockSampler(
            self.source, task.arrangement, self.scale, workplace.backend, timer, workplace.budget,
            task.size[0], task.settings.seed, regions, weight,
        )  # fmt: skip
        return blocks, blocks.at

    def _checkpoint(self, batch_size: int) -> Checkpoint | None:
        """Return the checkpoint of the training; `batch_size`: as in the settings."""
        settings, workplace = self.task.settings, self.workplace
        if not settings.checkpoint:
            return None
        regions = regions_fingerprint(self.task.volume, settings)
        scans = "".join(fingerprint(each.volume.data) for each in self.source.scans)
        key = {
            "volume": scans + regions,
            # devices have different random numbers
            "device": workplace.backend.device.partition(":")[0],
            "arithmetic": str(workplace.dtype),
            **{name: each for name, each in settings.to_dict().items() if name not in FREE},
            "batch_size": batch_size,
        }
        return Checkpoint(settings.checkpoint, key)

    def _to_model(self, network: UNet) -> Model:
        scale, settings = self.scale, self.task.settings
        is_turned = settings.correlated_along == "none"
        return Model(
            network, scale.mean, scale.std, settings.channels, self.task.context, is_turned
        )


def _input_share_note(share: float, task: Task, outcome: TrainingOutcome, is_full: bool) -> str:
    """Return a note that a large share of the result is the original scan.

    `is_full`: whether the training ended because it no longer improved the result.
    """
    kept = f"{readable_percent(share)} of the result is the original scan"
    if share > ALL_OF_IT:
        kept = "The result is the original scan"
    if share > MOST_OF_IT:
        verb = "is" if outcome.steps == 1 else "are"
        few = f"{readable_count(outcome.steps, 'step')} {verb} too few"
        why = "there is little noise" if is_full else f"either there is little noise, or {few}"
        return f"{kept}: {why}."
    if advice := advice_after(task, outcome):
        return f"{kept}: there is little noise, and the training was short for it.{advice}"
    return f"{kept}: there is little noise."


def advice_after(task: Task, outcome: TrainingOutcome) -> str:
    """Return advice for an unsatisfactory result; empty if the user chose a shorter training."""
    if task.trained is not None:
        return " The model was trained on another scan: train on this one."
    if outcome.steps < Schedule.of(task.settings).steps:
        # the user stopped or limited the training, or more steps would not help
        return ""
    return " Train longer (steps)."


#: Share of the training in the progress of the job.
TRAINING_SHARE = 0.9

#: Progress yielded between short steps, so that the job can be cancelled there.
PREPARING = Progress("preparing", 0, 1, "", 0.0)

#: Bytes per voxel in addition to the scan itself, for the whole volume on the device: normalised,
#: padded, and the result.
_WORKING = 12


class JobLog:
    """The times of a job's stages, and its notes.

    `timer`: of the stages.
    """

    def __init__(self, timer: StageTimer) -> None:
        self.timer = timer
        self.notes: list[Note] = []

    def note(self, message: str, warning: bool = True, subject: Subject = "run") -> Note:
        """Record a note, and return it for the caller to yield."""
        self.notes.append(Note(message, warning, subject))
        return self.notes[-1]

    def keep_notes(self, events: Generator[Event, Any, T]) -> Generator[Event, Any, T]:
        """Pass events on, and record the notes among them."""

        def kept(event: Event) -> Event:
            if isinstance(event, Note):
                self.notes.append(event)
            return event

        return (yield from mapped(events, kept))

    def run_stage(
        self, stage: str, work: Generator[float, None, T], nbytes: int = 0, fraction: float = 0.0
    ) -> Generator[Progress, Any, T]:
        """Run work that yields its completed share as a stage, and yield its progress."""

        def progress(share: float) -> Progress:
            return Progress(stage, round(100 * share), 100, "%", fraction)

        return (yield from mapped(self.timer.timed(stage, work, nbytes), progress))


class Workplace:
    """The device of a job and the images on it; falls back to the CPU if memory runs out.

    Attributes
    ----------
    backend : Backend
        The device.
    dtype : torch.dtype
        Number format of the network on the device.
    memory, budget : float
        Maximum number of bytes in total, and for images.
    images : Images or None
        The whole volume, normalised, on the device; None if it is read block by block.
    is_moved : bool
        Whether the job has fallen back to the CPU.
    """

    def __init__(
        self,
        backend: Backend,
        settings: DenoiseSettings,
        source: PlaneReader,
        arrangement: Arrangement,
        scale: Scale,
        log: JobLog,
        more_a_voxel: int = 0,
    ) -> None:
        self._settings, self._source, self._log = settings, source, log
        self._arrangement, self._scale = arrangement, scale
        # further bytes per voxel
        self._more_a_voxel = more_a_voxel
        self.is_moved = False
        self.images: Images | None = None
        self._choose(backend)

    def upload(self) -> Generator[Event, Any, None]:
        """Upload the volume, or fall back to the CPU if the memory of the device is too small."""
        volume = self._source.volume
        try:
            self._fill()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            yield self.move_to_cpu()
        if self.images is None:
            yield self._log.note(
                f"{volume.name} does not fit into {self.memory / 1e9:.3g} GB of memory and is read "
                "block by block.",
                warning=False,
            )

    def move_to_cpu(self) -> Note:
        """Fall back to the CPU.

        Raises MemoryLimitError if the CPU was out of memory.
        """
        volume, gpu = self._source.volume, self.backend
        if not gpu.is_gpu:
            raise MemoryLimitError(
                f"{volume.name} ({volume.facts}) cannot be processed: not even one training patch "
                "fits into memory. Close other programs, crop or bin the volume, or choose a "
                "smaller patch_size."
            )
        self._choose(Backend(reason="the GPU ran out of memory"))
        self._log.timer.run_on(self.backend.clock())
        self._fill()
        self.is_moved = True
        gpu.release()
        return self._log.note("The GPU ran out of memory: fell back to the CPU.")

    def release(self) -> None:
        """Release the memory of the device."""
        self.images = None
        self.backend.release()

    def _choose(self, backend: Backend) -> None:
        self.backend = backend
        self.images = None
        self.dtype = choose_precision(self._settings.precision, backend, self._settings.dimensions)
        wanted = self._settings.denoise_memory
        self.memory = FREE_SHARE * backend.free_memory() if wanted is None else 1e9 * wanted
        self.budget = IMAGES_SHARE * self.memory

    def _fill(self) -> None:
        """Upload the scans in the dtype of the file, and normalise them on the device."""
        source = self._source
        a_voxel = source.bytes_a_voxel(_WORKING) + self._more_a_voxel
        if math.prod(source.volume.shape) * a_voxel > self.budget:
            return
        scans = source.scans
        with self._log.timer.stage("upload", nbytes=sum(each.volume.nbytes for each in scans)):
            every = np.arange(source.count)
            raw = [each.put(each.stored(every), every, self.backend) for each in scans]
            planes = self._scale.normalise_scans(raw, source.channels)
            self.images = Images.of(planes, self._arrangement, len(scans))


#: Weight of a patch outside the sample, relative to one inside: the network sees some of the air.
_OUTSIDE = 0.02

#: Maximum number of patch positions to choose from; in a large volume they are a random selection.
_POSITIONS = 1 << 20


class SamplePlaces:
    """The positions of training patches, most of them in the sample.

    A patch at the surface counts by its share inside, and one outside a little.

    `sample`: of the scan. `arrangement`: of its planes. `size`: of a patch. `seed`: of the random
    selection of positions in a large volume.
    """

    #: Memory for each voxel while positions are determined, in bytes.
    voxel_bytes = 0

    def __init__(
        self, sample: Sample, arrangement: Arrangement, size: tuple[int, ...], seed: int
    ) -> None:
        self._sample, self._size, self._seed = sample, size, seed
        self._planes = arrangement.predicted[:, 0]
        self._plane = sample.shape[-len(size) :]

    def places(self, images: Int64s, rows: slice, shares: Float64s | None = None) -> Places:
        """Return the positions in a part of the scan; see `TrainingRegions.places`."""
        shape = (len(images), rows.stop - rows.start, *self._plane[1:])
        room = [n - m + 1 for n, m in zip(shape, (1, *self._size), strict=True)]
        count = math.prod(room)
        numbers = np.arange(count)
        if count > _POSITIONS:
            numbers = np.random.default_rng(self._seed).integers(0, count, _POSITIONS)
        corners = np.stack(np.unravel_index(numbers, room), 1)
        weights = self._weights(
            images[corners[:, 0]], corners[:, 1:] + [rows.start, *[0] * (len(self._size) - 1)]
        )
        if shares is not None:
            weights = weights * shares[corners[:, 0], corners[:, 1]]
        return Places.from_corners(torch.from_numpy(corners), shape, torch.from_numpy(weights))

    def row_weights(self) -> Generator[float, None, Float64s]:
        """Return the weight of each image and first row; see `TrainingRegions.row_weights`."""
        n_first = self._plane[0] - self._size[0] + 1
        weight = np.zeros((len(self._planes), n_first))
        columns = [
            np.arange(0, n - m + 1, max(m // 4, 1))
            for n, m in zip(self._plane[1:], self._size[1:], strict=True)
        ]
        for image in range(len(weight)):
            rows = np.arange(n_first)
            grid = np.stack(np.meshgrid(rows, *columns, indexing="ij"), -1)
            corners = grid.reshape(-1, len(self._size))
            found = self._weights(np.full(len(corners), image), corners)
            weight[image] = found.reshape(n_first, -1).sum(1)
            yield (image + 1) / len(weight)
        return weight

    def _weights(self, images: Int64s, corners: Int64s) -> Float64s:
        if len(self._size) == 2:
            # a plane is a slice
            corners = np.column_stack([self._planes[images], corners])
        return _OUTSIDE + self._sample.shares(corners, self._size)
