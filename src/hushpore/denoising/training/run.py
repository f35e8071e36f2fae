"""The training of a denoising job, with smaller batches if memory runs out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.events import Batch, Job
from hushpore.base.formatting import readable_count, readable_percent
from hushpore.base.provenance import fingerprint
from hushpore.denoising.automatic import BATCH, architecture_for, masked_share
from hushpore.denoising.noise2noise import Noise2Noise
from hushpore.denoising.recorruption import Recorruption
from hushpore.denoising.regions import TrainingRegions, has_regions, regions_fingerprint
from hushpore.denoising.result import ALL_OF_IT, TrainingOutcome
from hushpore.denoising.sample import SamplePlaces
from hushpore.denoising.trained_model import Model
from hushpore.denoising.training.blocks import BlockSampler
from hushpore.denoising.training.checkpoint import FREE, Checkpoint
from hushpore.denoising.training.loop import TrainingLoop, read_preview_slice
from hushpore.denoising.training.schedule import Schedule
from hushpore.denoising.training.step import BatchSampler, PairMaker
from hushpore.denoising.workplace import PREPARING, TRAINING_SHARE
from hushpore.device.memory import is_out_of_memory
from hushpore.patches.places import in_volume

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hushpore.base.arrays import Float32s
    from hushpore.base.events import Progress
    from hushpore.denoising.automatic import Method, Task
    from hushpore.denoising.images import Images
    from hushpore.denoising.model import Architecture, UNet
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.denoising.regions import PatchPlaces
    from hushpore.denoising.workplace import JobLog, Workplace

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
        loop = TrainingLoop(
            task.settings, workplace.backend, log.timer, images, batches, workplace.dtype,
            partial(read_preview_slice, *volume), self._to_model, partial(self._to_batch, blocks),
            TRAINING_SHARE, noise=self._noise_of_targets(batches), is_comparable=blocks is None,
        )  # fmt: skip
        state = loop.start(self._architecture())
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

    def _architecture(self) -> Architecture:
        task, method = self.task, self.method
        return architecture_for(task.volume, task.settings, method.name, task.arrangement)

    def _noise_of_targets(self, batches: BatchSampler) -> float | None:
        """Return the normalised noise variance of the training targets; None if unknown."""
        noise, maker = self.method.noise, batches.pair_maker
        if noise is None or maker is None:
            return None
        return float(noise.deviation**2 / self.scale.std[0] ** 2 * maker.target_variance)

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
