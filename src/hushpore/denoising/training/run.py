"""The training of a denoising job: on its images, in smaller batches where memory runs out."""

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
from hushpore.denoising.recorruption import Recorruption, Thinning
from hushpore.denoising.regions import TrainingRegions, has_regions, regions_fingerprint
from hushpore.denoising.result import ALL_OF_IT, Learnt
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

    import numpy.typing as npt

    from hushpore.base.events import Progress
    from hushpore.denoising.automatic import Method, Task
    from hushpore.denoising.images import Images
    from hushpore.denoising.model import Architecture, UNet
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.denoising.workplace import Log, Place

#: Shares of the scan itself in a result from which on it is said, and from which on what was
#: removed is too little to look for the image in it.
NOTABLE_SHARE, MOST_OF_IT = 0.25, 0.5


@dataclass
class Training:
    """The training of a network on a volume."""

    task: Task
    source: PlaneReader  # the volume, without its rings where these were taken out
    scale: Scale  # between its grey values and those of the network
    place: Place  # where its images lie
    method: Method
    log: Log

    def run(self) -> Job:
        """Train, in smaller batches and then on the CPU where memory runs out.

        Returns: `Learnt`.
        """
        task, place = self.task, self.place
        count = asked = task.settings.batch_size or BATCH[task.settings.dimensions]
        while True:
            checkpoint = self._checkpoint(asked)
            if checkpoint is not None and checkpoint.exists:
                count = min(count, checkpoint.batch_size)
            batches = BatchSampler(
                task.size,
                count,
                masked_share(task.settings),
                torch.Generator(place.backend.device).manual_seed(task.settings.seed),
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
                yield place.move_to_cpu()

    def _pair_maker(self) -> PairMaker | None:
        """Return what makes inputs and targets, in a training that hides nothing."""
        task, method = self.task, self.method
        if method.name == "n2n":
            return Noise2Noise()
        if method.count is not None:
            return Thinning.of(method.count, self.scale)
        if method.noise is None:
            return None
        device = self.place.backend.device
        return Recorruption.of(method.noise, self.scale, task.size, task.context, device)

    def _train(self, batches: BatchSampler, checkpoint: Checkpoint | None) -> Job:
        task, place, log = self.task, self.place, self.log
        blocks, images = yield from self._images()
        volume = (self.source, task.arrangement, self.scale, place.backend)
        loop = TrainingLoop(
            task.settings, place.backend, log.timer, images, batches, place.dtype,
            partial(read_preview_slice, *volume), self._to_model, partial(self._to_batch, blocks),
            TRAINING_SHARE, noise=self._noise_of_targets(batches), is_comparable=blocks is None,
        )  # fmt: skip
        state = loop.start(self._architecture())
        if checkpoint is not None and checkpoint.exists:
            checkpoint.load(state, place.is_moved)
            yield log.note(f"Resumed from the checkpoint at step {state.step:,}.", False)
        yield PREPARING
        try:
            yield from loop.run(state, checkpoint)
        finally:
            if blocks is not None:
                blocks.close()
        log.notes += loop.notes
        is_full = loop.schedule.is_open and not loop.notes
        if is_full:
            steps = readable_count(state.step, "step")
            yield log.note(f"Training ended after {steps}: {loop.ended}.", warning=False)
        schedule = loop.schedule.record(state.shares)
        learnt = Learnt(
            self._to_model(state.learner.average), state.curves, state.step, state.elapsed,
            schedule, loop.ended,
        )  # fmt: skip
        if (share := learnt.model.network.input_share) > NOTABLE_SHARE:
            yield log.note(_input_share_note(share, task, learnt, is_full), False, "result")
        return learnt

    def _architecture(self) -> Architecture:
        task, method = self.task, self.method
        return architecture_for(
            task.volume, task.settings, method.name, task.arrangement, method.is_independent
        )

    def _noise_of_targets(self, batches: BatchSampler) -> float | None:
        """Return the variance of the noise that a training is to predict, normalised."""
        noise, maker = self.method.noise, batches.pair_maker
        if noise is None or maker is None:
            return None
        own = noise.deviation**2
        if self.method.count is not None:
            own = self.method.count * self.scale.mean[0]  # of counts the variance is the mean
        return float(own / self.scale.std[0] ** 2 * maker.target_variance)

    def _to_batch(
        self, blocks: BlockSampler | None, step: int, patch_losses: npt.NDArray[np.float32]
    ) -> Batch:
        """Say where in the volume the patches of a batch lie."""
        task = self.task
        corners = patch_losses[:, :-1].astype(np.int64)
        if blocks is not None:
            corners = blocks.in_volume(step - 1, corners)
        # all planes that an image predicts have the same patches
        corners[:, 0] = task.arrangement.predicted[corners[:, 0], 0]
        corners = in_volume(corners, task.volume.shape[: -len(task.size)])
        return Batch(step, corners, task.size, patch_losses[:, -1].astype(np.float64))

    def _images(
        self,
    ) -> Generator[Progress, Any, tuple[BlockSampler | None, Callable[[int], Images]]]:
        """Return what gives the images to learn from in a step, and where patches may lie."""
        task, place, timer = self.task, self.place, self.log.timer
        regions: TrainingRegions | None = None
        weight = None
        if has_regions(task.settings):
            regions = TrainingRegions(task.volume, task.settings, task.arrangement, task.size)
        if place.images is not None:
            whole = place.images
            if regions is not None:
                with timer.stage("regions"):
                    every = np.arange(whole.shape[0]), slice(0, whole.shape[1])
                    places = regions.places(*every).to(place.backend.device)
                    whole = replace(whole, places=places)
            return None, lambda step: whole
        if regions is not None:
            weight = yield from self.log.run_stage("regions", regions.row_weights())
        blocks = BlockSampler(
            self.source, task.arrangement, self.scale, place.backend, timer, place.budget,
            task.size[0], task.settings.seed, regions, weight,
        )  # fmt: skip
        return blocks, blocks.at

    def _checkpoint(self, batch_size: int) -> Checkpoint | None:
        """Return the file that the training is kept in, of so many patches a step as asked for."""
        settings, place = self.task.settings, self.place
        if not settings.checkpoint:
            return None
        regions = regions_fingerprint(self.task.volume, settings)
        scans = "".join(fingerprint(each.volume.data) for each in self.source.scans)
        key = {
            "volume": scans + regions,
            # each has its own random numbers
            "device": place.backend.device.partition(":")[0],
            "arithmetic": str(place.dtype),
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


def _input_share_note(share: float, task: Task, learnt: Learnt, is_full: bool) -> str:
    """Return a note that a large share of the result is the original scan.

    `is_full`: whether the training ended because it no longer improved the result.
    """
    kept = f"{readable_percent(share)} of the result is the original scan"
    if share > ALL_OF_IT:
        kept = "The result is the original scan"
    if share > MOST_OF_IT:
        verb = "is" if learnt.steps == 1 else "are"
        few = f"{readable_count(learnt.steps, 'step')} {verb} too few"
        why = "there is little noise" if is_full else f"either there is little noise, or {few}"
        return f"{kept}: {why}."
    if advice := advice_after(task, learnt):
        return f"{kept}: there is little noise, and the training was short for it.{advice}"
    return f"{kept}: there is little noise."


def advice_after(task: Task, learnt: Learnt) -> str:
    """Return advice for an unsatisfactory result; empty if the user chose a shorter training."""
    if task.trained is not None:
        return " The model was trained on another scan: train on this one."
    if learnt.steps < Schedule.of(task.settings).steps:
        # the user stopped or limited the training, or more steps would not help
        return ""
    return " Train longer (steps)."
