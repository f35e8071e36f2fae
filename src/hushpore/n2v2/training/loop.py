"""The training loop: steps, curves, previews, checkpoints, and its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.events import Attention, Batch, Event, Job, Metric, Progress, StopEarly
from hushpore.device.readback import Readback
from hushpore.n2v2.inference.tiles import predict_images
from hushpore.n2v2.model import Architecture, build_network
from hushpore.n2v2.training.checkpoint import TrainingState
from hushpore.n2v2.training.preview import PreviewPace
from hushpore.n2v2.training.schedule import Schedule, learning_rate, to_parts
from hushpore.n2v2.training.step import BatchSampler, Learner

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer
    from hushpore.n2v2.images import Images
    from hushpore.n2v2.model import UNet
    from hushpore.n2v2.settings import DenoiseSettings
    from hushpore.n2v2.trained import Model
    from hushpore.n2v2.training.checkpoint import Checkpoint
    from hushpore.n2v2.training.preview import PreviewSlice

#: Steps between two readings of the loss.
LOG_INTERVAL = 25

#: Seconds between two reported batches.
BATCH_INTERVAL = 0.2


@dataclass
class TrainingLoop:
    """One training: what it works with, and what it has come to."""

    settings: DenoiseSettings  # steps, rate, time budget, seed
    # where it runs, and its clock
    backend: Backend
    timer: StageTimer
    images: Callable[[int], Images]  # returns the `Images` to learn from in a step
    batch_sampler: BatchSampler  # what a step draws from them; its generator is part of the state
    dtype: torch.dtype  # arithmetic of the network
    preview_slice: PreviewSlice | None  # what previews show; None: there are none
    to_model: Callable[[UNet], Model]  # makes a `Model` of a network
    share: float = 1.0  # of the whole job, for progress
    notes: list[str] = field(default_factory=list)  # what was said; added to
    # returns the `PreviewSlice` of the slice at a position on the volume's leading axes
    read_preview_slice: Callable[[tuple[int, ...]], PreviewSlice] | None = None
    # makes a `Batch` of a step and of `Learner.patch_losses`; None: batches are not reported
    to_batch: Callable[[int, npt.NDArray[np.float64]], Batch] | None = None
    schedule: Schedule = field(init=False)  # how far it is at each step, as the settings ask for
    _wanted: tuple[int, ...] | None = field(default=None, init=False)
    _seen: tuple[int, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.schedule = Schedule.of(self.settings)

    def start(self, architecture: Architecture) -> TrainingState:
        """Return the state before the first step."""
        weights = torch.Generator().manual_seed(self.settings.seed)
        two = architecture.dimensions == 2
        layout = torch.channels_last if two else torch.channels_last_3d
        network = build_network(architecture, weights).to(self.backend.device)
        network = network.to(memory_format=layout)  # type: ignore[call-overload]
        generator = self.batch_sampler.generator
        assert generator is not None
        total = torch.zeros((), device=self.backend.device)
        return TrainingState(Learner(network, self.dtype, self.backend), generator, total)

    def run(self, state: TrainingState, checkpoint: Checkpoint | None = None) -> Job:
        """Train from a state on, to the last step or until `StopEarly`.

        Yields: of the slice last named by an `Attention` that was sent in.
        """
        try:
            yield from self._run(state, checkpoint)
        except GeneratorExit:
            # cancelled between two steps: what was learnt can be applied, or gone on from
            self._keep(state, checkpoint)
            raise
        self._keep(state, checkpoint)

    def _keep(self, state: TrainingState, checkpoint: Checkpoint | None) -> None:
        if checkpoint is not None and state.step:
            with self.timer.stage("checkpoint"):
                checkpoint.save(state, self.to_model(state.learner.average))

    def _run(self, state: TrainingState, checkpoint: Checkpoint | None) -> Job:
        settings, learner = self.settings, state.learner
        readback = Readback(self.backend, self.timer)
        pace = PreviewPace(self.preview_slice, self.batch_sampler.voxels)
        start = time.monotonic() - state.elapsed
        fraction, batch_due = self.schedule.fraction_done(state.step, state.elapsed), start
        while fraction < 1:
            learner.keeps_patch_losses = (
                self.to_batch is not None and start + state.elapsed >= batch_due
            )
            rate = learning_rate(fraction, settings.learning_rate)
            with self.timer.stage("training", voxels=self.batch_sampler.voxels):
                state.total += learner.step(
                    self.images(state.step), self.batch_sampler, rate, state.step
                )
            state.step += 1
            state.shares.append(to_parts(fraction))
            state.elapsed = elapsed = time.monotonic() - start
            fraction = self.schedule.fraction_done(state.step, elapsed)
            if learner.keeps_patch_losses and learner.patch_losses is not None:
                readback.push(("batch", state.step), learner.patch_losses)
                learner.keeps_patch_losses, batch_due = False, start + elapsed + BATCH_INTERVAL
            if state.step % LOG_INTERVAL == 0:
                self._log_losses(state, readback)
            try:
                if state.logged_steps == state.step:
                    yield self.timer.timing()
                yield from self._report(readback.arrived(), state)
                if checkpoint is not None and checkpoint.due:
                    yield from self._report(readback.drain(), state)
                    self._keep(state, checkpoint)
                sent = yield self._progress(state, fraction)
                if isinstance(sent, Attention):
                    self._wanted = sent.index
                # after the progress of the step, so that a cancel need not wait for both
                if pace.due(elapsed / state.step, elapsed):
                    before = time.monotonic()
                    with self.timer.stage("preview"):
                        self._follow_attention()
                        readback.push(("preview", self.preview_slice), self._preview(learner))
                    pace.done(time.monotonic() - before, elapsed)
                    yield from self._report(readback.arrived(), state)
            except StopEarly:
                self.notes.append(f"Stopped early, after {state.step} of {settings.steps} steps.")
                break
        # a last mean over a few steps alone would jump
        if state.step - state.logged_steps > LOG_INTERVAL // 2 or not state.logged_steps:
            self._log_losses(state, readback)
        yield self.timer.timing()
        yield from self._report(readback.drain(), state)

    def _log_losses(self, state: TrainingState, readback: Readback) -> None:
        count = state.step - state.logged_steps
        if not count:
            return
        # the same patches and blind spots each time, so that the curve is smooth
        generator = torch.Generator(self.backend.device).manual_seed(self.settings.seed + 1)
        fixed = replace(self.batch_sampler, generator=generator)
        with self.timer.stage("validation"):
            validation = state.learner.validate(self.images(state.step - 1), fixed)
        # both in one copy
        readback.push(("losses", state.step), torch.stack([state.total / count, validation]))
        state.logged_steps = state.step
        state.total.zero_()

    def _report(self, arrived: list[tuple[Any, npt.NDArray[Any]]], state: TrainingState) -> Job:
        events: list[Event] = []
        for (kind, step), value in arrived:
            if kind == "preview":
                # what was shown when it was asked for: by now it may be another slice
                events.append(step.preview(value))
                continue
            if kind == "batch":
                assert self.to_batch is not None
                events.append(self.to_batch(step, value))
                continue
            if not np.isfinite(value).all():
                raise InputError(
                    "Training diverged: the loss is no longer a number. "
                    "Choose a smaller learning_rate."
                )
            for name, each in zip(("loss", "validation"), value, strict=True):
                state.curves.setdefault(name, []).append((step, float(each)))
                events.append(Metric(name, step, float(each)))
        # all is noted before the first of these, at which the job may be cancelled
        yield from events

    def _follow_attention(self) -> None:
        """Turn to the slice that is being looked at."""
        if (
            self._wanted is not None
            and self._wanted != self._seen
            and self.read_preview_slice is not None
        ):
            self._seen = self._wanted
            self.preview_slice = self.read_preview_slice(self._wanted)

    def _preview(self, learner: Learner) -> torch.Tensor:
        """Denoise the slice to be shown as well as the network can by now."""
        assert self.preview_slice is not None
        architecture = learner.average.architecture
        result = predict_images(
            learner.average, self.preview_slice.image, dtype=self.dtype, architecture=architecture
        )
        return result[0, self.preview_slice.output].reshape(-1, *result.shape[-2:])[
            self.preview_slice.row
        ]

    def _progress(self, state: TrainingState, fraction: float) -> Progress:
        total, step = self.schedule.ends_after or self.schedule.steps, state.step
        if self.schedule.time_budget is not None:
            total = max(step, min(total, round(step / fraction)))
        # what the device has finished, not what it has been asked to do
        losses = state.curves.get("loss", [])
        finished = losses[-1][0] if self.backend.is_cuda and losses else step
        share = self.share * min(fraction, 1) * (finished / step)  # never beyond by rounding
        return Progress("training", finished, total, "steps", share)
