"""The training loop: steps, curves, previews, checkpoints and early stopping.

The state of a training in a file, from which an interrupted run is resumed.

A checkpoint is a model file with additional contents: besides the averaged weights, those of the
network, the moments of the optimiser, the state of the random numbers, and a key of the training.
It contains no code.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.events import (
    Attention,
    Batch,
    Event,
    Job,
    Metric,
    Note,
    Preview,
    Progress,
    StopEarly,
)
from hushpore.denoising.images import Images
from hushpore.denoising.inference.volumes import predict_images
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.trained_model import (
    HEADER,
    TRAINING,
    Model,
    check_file_target,
    read_tensors,
    write_tensors,
)
from hushpore.denoising.training.schedule import (
    CHECK_INTERVAL,
    ENDLESS,
    Schedule,
    learning_rate,
    pack,
    to_parts,
    unpack,
)
from hushpore.denoising.training.step import Learner
from hushpore.device.transfers import Readback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from hushpore.base.arrays import Array, Float32s
    from hushpore.denoising.images import Arrangement
    from hushpore.denoising.model import UNet
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.denoising.trained_model import Model
    from hushpore.denoising.training.step import BatchSampler
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer

#: Steps between two points of the loss curve.
LOG_INTERVAL = 25

#: Seconds between two reported batches.
BATCH_INTERVAL = 0.2

#: Neighbouring slices on either side that are denoised with the preview slice in 3D.
_AROUND = 8


@dataclass
class TrainingLoop:
    """The loop of one training, and its state."""

    settings: DenoiseSettings  # steps, rate, time budget, seed
    backend: Backend
    timer: StageTimer
    images: Callable[[int], Images]  # returns the training images of a step
    batch_sampler: BatchSampler  # draws the batches; its generator is part of the state
    dtype: torch.dtype  # number format of the network
    # returns the `PreviewSlice` at a position on the volume's leading axes; None: the middle slice
    read_preview_slice: Callable[[tuple[int, ...] | None], PreviewSlice]
    to_model: Callable[[UNet], Model]  # makes a `Model` from a network
    # makes a `Batch` from a step and `Learner.patch_losses`
    to_batch: Callable[[int, Float32s], Batch]
    share: float  # of the training in the progress of the job
    # noise variance of the targets; None if unknown
    noise: float | None = None
    # whether all validations use the same patches, which early stopping needs
    is_comparable: bool = True
    notes: list[Note] = field(default_factory=list)  # what was said
    schedule: Schedule = field(init=False)  # how far it is at each step, as the settings ask for
    preview_slice: PreviewSlice = field(init=False)  # what previews show
    ended: str = field(default="", init=False)  # what has ended it, in words
    _wanted: tuple[int, ...] | None = field(default=None, init=False)
    _seen: tuple[int, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.schedule = Schedule.of(self.settings)
        self.preview_slice = self.read_preview_slice(None)

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
        """Train from a state to the last step, or until `StopEarly`.

        Yields: events; previews show the slice of the last `Attention` that was sent in.
        """
        try:
            yield from self._run(state, checkpoint)
        except GeneratorExit:
            # cancelled between two steps: the training so far can be applied or resumed
            self._keep(state, checkpoint)
            raise
        if self.batch_sampler.pair_maker is not None and state.step:
            with self.timer.stage("validation"):
                state.learner.fit_correction_and_shares(
                    self.images(state.step - 1), self._fixed_batches()
                )
        self._keep(state, checkpoint)

    def _keep(self, state: TrainingState, checkpoint: Checkpoint | None) -> None:
        if checkpoint is not None and state.step:
            with self.timer.stage("checkpoint"):
                model = self.to_model(state.learner.average)
                checkpoint.save(state, model, self.batch_sampler.count)

    def _run(self, state: TrainingState, checkpoint: Checkpoint | None) -> Job:
        settings, learner = self.settings, state.learner
        readback = Readback(self.backend.bus(), self.timer)
        pace = PreviewPace(self.preview_slice, self.batch_sampler.voxels)
        start = time.monotonic() - state.elapsed
        self._look_at_curve(state)
        fraction, batch_due = self.schedule.fraction_done(state.step, state.elapsed), start
        while fraction < 1:
            learner.keeps_patch_losses = start + state.elapsed >= batch_due
            rate = learning_rate(fraction, settings.learning_rate)
            with self.timer.stage("training", voxels=self.batch_sampler.voxels):
                state.total += learner.step(
                    self.images(state.step), self.batch_sampler, rate, state.step
                )
            state.step += 1
            state.shares.append(to_parts(fraction))
            state.elapsed = elapsed = time.monotonic() - start
            if learner.keeps_patch_losses and learner.patch_losses is not None:
                readback.push(("batch", state.step), learner.patch_losses)
                learner.keeps_patch_losses, batch_due = False, start + elapsed + BATCH_INTERVAL
            if state.step % LOG_INTERVAL == 0:
                self._log_losses(state, readback)
            try:
                if state.logged_steps == state.step:
                    yield self.timer.timing()
                yield from self._report(readback.arrived(), state)
                is_due = self.schedule.is_open and state.step % CHECK_INTERVAL == 0
                if is_due and state.step < self.schedule.held_until:
                    # wait for late losses, so that the learning rates do not depend on timing
                    yield from self._report(readback.drain(), state)
                    self._look_at_curve(state)
                fraction = self.schedule.fraction_done(state.step, elapsed)
                if checkpoint is not None and checkpoint.due:
                    yield from self._report(readback.drain(), state)
                    self._keep(state, checkpoint)
                sent = yield self._progress(state, fraction)
                if isinstance(sent, Attention):
                    self._wanted = sent.index
                # after the progress event, so that a cancel does not wait for the preview
                if pace.due(elapsed / state.step, elapsed):
                    before = time.monotonic()
                    with self.timer.stage("preview"):
                        self._follow_attention()
                        readback.push(("preview", self.preview_slice), self._preview(learner))
                    pace.done(time.monotonic() - before, elapsed)
                    yield from self._report(readback.arrived(), state)
            except StopEarly:
                self._note_early_end(state.step)
                break
        self.ended = self.ended or self.schedule.ending(state.step)
        # the mean of only a few steps would be an outlier at the end of the curve
        if state.step - state.logged_steps > LOG_INTERVAL // 2 or not state.logged_steps:
            self._log_losses(state, readback)
        yield self.timer.timing()
        yield from self._report(readback.drain(), state)

    def _log_losses(self, state: TrainingState, readback: Readback) -> None:
        count = state.step - state.logged_steps
        if not count:
            return
        # the same patches and blind spots each time, so that the curve is smooth
        with self.timer.stage("validation"):
            validation = state.learner.validate(self.images(state.step - 1), self._fixed_batches())
        # both in one copy
        readback.push(("losses", state.step), torch.stack([state.total / count, validation]))
        state.logged_steps = state.step
        state.total.zero_()

    def _note_early_end(self, step: int) -> None:
        most = self.schedule.most_steps
        of = "" if most == ENDLESS or self.schedule.is_open else f" of {most:,}"
        self.ended = "stopped by the user"
        self.notes.append(Note(f"Training stopped by the user after {step:,}{of} steps."))

    def _look_at_curve(self, state: TrainingState) -> None:
        """Check early stopping."""
        if self.is_comparable:
            # without the extra point of a training that was stopped by the user and resumed
            curve = [
                point for point in state.curves.get("validation", []) if not point[0] % LOG_INTERVAL
            ]
            self.schedule = self.schedule.given(curve, self.noise)

    def _fixed_batches(self) -> BatchSampler:
        """Return a sampler of the validation batches, which are the same at each call."""
        generator = torch.Generator(self.backend.device).manual_seed(self.settings.seed + 1)
        return replace(self.batch_sampler, generator=generator)

    def _report(self, arrived: list[tuple[Any, Array]], state: TrainingState) -> Job:
        events: list[Event] = []
        for (kind, step), value in arrived:
            if kind == "preview":
                # `step` is the slice of this preview; the current one may differ by now
                events.append(step.preview(value))
                continue
            if kind == "batch":
                events.append(self.to_batch(step, value))
                continue
            if not np.isfinite(value).all():
                raise InputError(
                    "Training diverged: the loss is not a finite number. Choose a smaller "
                    "learning_rate."
                )
            for name, each in zip(("loss", "validation"), value, strict=True):
                state.curves.setdefault(name, []).append((step, float(each)))
                events.append(Metric(name, step, float(each)))
        # only now, since the job may be cancelled at the first event
        yield from events

    def _follow_attention(self) -> None:
        """Switch the previews to the slice that the user looks at."""
        if self._wanted not in (None, self._seen):
            self._seen = self._wanted
            self.preview_slice = self.read_preview_slice(self._wanted)

    def _preview(self, learner: Learner) -> torch.Tensor:
        """Denoise the preview slice with the current network."""
        architecture = learner.average.architecture
        result = predict_images(
            learner.average, self.preview_slice.image, dtype=self.dtype, architecture=architecture
        )
        return result[0, self.preview_slice.output].reshape(-1, *result.shape[-2:])[
            self.preview_slice.row
        ]

    def _progress(self, state: TrainingState, fraction: float) -> Progress:
        total, step = self.schedule.most_steps, state.step
        # with a long time limit the share of a single step may round to 0
        if self.schedule.time_budget is not None and fraction:
            total = max(step, min(total, round(step / fraction)))
        # steps that the device has finished, not those that are queued
        losses = state.curves.get("loss", [])
        finished = losses[-1][0] if self.backend.is_cuda and losses else step
        share = self.share * min(fraction, 1) * (finished / step)  # never beyond by rounding
        return Progress("training", finished, total, "steps", share)


@dataclass(frozen=True)
class PreviewSlice:
    """The slice shown in previews."""

    image: Images  # one image, or in 3D a few slices of one
    # index of the predicted plane, and row in it
    output: int
    row: int
    preview: Callable[[Float32s], Preview]  # makes a `Preview` of a normalised slice


def read_preview_slice(
    source: PlaneReader,
    arrangement: Arrangement,
    scale: Scale,
    backend: Backend,
    at: tuple[int, ...] | None,
) -> PreviewSlice:
    """Read the data for previews of a slice.

    `source`, `arrangement`, `scale`, `backend`: the volume, the images of the network, the grey
    scale and the device. `at`: position of the slice on the volume's leading axes; by default the
    middle.
    """
    leading = source.volume.shape[:-2]
    # the first of two middle slices, where viewers open a volume
    number = (math.prod(leading) - 1) // 2
    if at is not None and len(at) == len(leading) and leading:
        number = int(np.ravel_multi_index(at, leading, mode="clip"))
    plane, row, rows = number, 0, slice(None)
    if len(source.size) == 3:
        plane, z = divmod(number, source.size[0])
        rows = slice(max(z - _AROUND, 0), min(z + _AROUND, source.size[0]))
        row = z - rows.start
    image, output = (int(each[plane]) for each in arrangement.predicted_by)
    planes, part = arrangement.part(np.array([image]))
    channels = source.channels
    raw = source.put(source.stored(planes, rows), planes, backend)
    images = Images.of(scale.normalise(raw, channels[planes]), part)
    index = tuple(int(i) for i in np.unravel_index(number, (1, *leading))[1:])

    def preview(value: Float32s) -> Preview:
        restored = scale.restore(value[None], channels[[plane]])[0]
        return Preview("denoised", restored, index)

    return PreviewSlice(images, output, row, preview)


class PreviewPace:
    """Limits previews to a twentieth of the time, and to one per second."""

    def __init__(self, preview_slice: PreviewSlice, batch_voxels: int) -> None:
        # prediction is the forward third of a training step
        self._steps_each = preview_slice.image.planes[0].numel() / batch_voxels / 3
        self._cost: float | None = None
        self._last = 0.0

    def due(self, step_seconds: float, now: float) -> bool:
        """Return whether a preview is due, `now` seconds after the start of the training."""
        cost = self._cost if self._cost is not None else self._steps_each * step_seconds
        return now - self._last >= max(1.0, 20 * cost)

    def done(self, cost: float, now: float) -> None:
        """Record the time that a preview took."""
        self._cost, self._last = cost, now + cost


#: Seconds of training between two checkpoints: the maximum loss of an interrupted run.
SAVE_INTERVAL = 30.0

#: Name of the header entry that identifies the training.
_ENTRY = "training"

#: Parts of the key that differ on another device.
_OF_DEVICE = ("device", "arithmetic")

#: Settings that a resumed training may change: they affect neither weights nor schedule, or only
#: the values to train on, which the key contains.
FREE = (
    "checkpoint", "model", "test_time_augmentation", "restore_detail", "denoise_memory", "pair",
    "correct_rings",
)  # fmt: skip


@dataclass
class TrainingState:
    """All that a training step depends on, and the results of the steps so far."""

    learner: Learner  # network, average and optimiser
    generator: torch.Generator  # source of the random numbers of the steps
    total: torch.Tensor  # sum of the losses since step `logged_steps`, on the device
    # number of completed steps; and number of steps whose loss has been reported
    step: int = 0
    logged_steps: int = 0
    elapsed: float = 0.0  # seconds of training so far
    # step and value for each metric
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    # completed shares before each step, see `hushpore.denoising.training.schedule.Schedule`
    shares: list[int] = field(default_factory=list)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name."""
        learner = self.learner
        found = {f"network.{k}": v for k, v in learner.network.state_dict().items()}
        for (name, parameter), moments in zip(
            learner.network.named_parameters(), learner.optimizer.moments, strict=True
        ):
            assert parameter.shape == moments["exp_avg"].shape
            found |= {f"{kind}.{name}": value for kind, value in moments.items()}
        found["generator"] = self.generator.get_state()
        found["total"] = self.total
        return found

    @torch.no_grad()
    def load(
        self,
        tensors: Mapping[str, torch.Tensor],
        average: Mapping[str, torch.Tensor],
        is_moved: bool = False,
    ) -> None:
        """Set the values from `tensors`, and those of the average, in place.

        `is_moved`: whether they come from another device, with other random numbers.
        """
        learner = self.learner
        learner.average.load_state_dict(average)
        own = learner.network.state_dict()
        learner.network.load_state_dict({name: tensors[f"network.{name}"] for name in own})
        for (name, _), moments in zip(
            learner.network.named_parameters(), learner.optimizer.moments, strict=True
        ):
            for kind, value in moments.items():
                value.copy_(tensors[f"{kind}.{name}"])
        if not is_moved:
            self.generator.set_state(tensors["generator"])
        self.total.copy_(tensors["total"])


class Checkpoint:
    """The file of a training state.

    `path`: the file, which need not exist yet. `key`: all that the training depends on, as JSON
    values: a file with another key is refused.
    Raises OutputError if no file can be written there.
    """

    def __init__(self, path: str, key: Mapping[str, Any]) -> None:
        self._path: Path = check_file_target(path, overwrite=True)
        self._key = dict(key)
        self._last = time.monotonic()

    @property
    def exists(self) -> bool:
        """Whether the file exists."""
        return self._path.exists()

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is due."""
        return time.monotonic() - self._last >= SAVE_INTERVAL

    @property
    def batch_size(self) -> int:
        """Batch size in the file: smaller than requested if memory ran out."""
        facts, _ = self._read(lambda name: False)
        return int(facts.get("batch_size", self._key["batch_size"]))

    def save(self, state: TrainingState, model: Model, batch_size: int) -> None:
        """Write the state, atomically: an older file remains until this one is complete."""
        weights = dict(model.network.state_dict())
        weights |= {TRAINING + name: value for name, value in state.tensors().items()}
        on_host = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
        facts = {
            "key": self._key,
            "batch_size": batch_size,
            "step": state.step,
            "summed_from": state.logged_steps,
            "spent": state.elapsed,
            "curves": state.curves,
            "shares": pack(state.shares),
        }
        write_tensors(self._path, on_host, {HEADER: model.facts(), _ENTRY: facts})
        self._last = time.monotonic()

    def load(self, state: TrainingState, is_moved: bool = False) -> None:
        """Resume from the file.

        `is_moved`: whether the training began on another device.
        Raises InputError if the file is not a checkpoint, or belongs to another volume, other
        settings or another device.
        """
        facts, tensors = self._read()
        self._require_same(facts.get("key", {}), _OF_DEVICE if is_moved else ())
        try:
            own = {
                k.removeprefix(TRAINING): v for k, v in tensors.items() if k.startswith(TRAINING)
            }
            average = {k: v for k, v in tensors.items() if not k.startswith(TRAINING)}
            state.load(own, average, is_moved)
            state.step, state.logged_steps = int(facts["step"]), int(facts["summed_from"])
            state.elapsed = float(facts["spent"])
            state.shares = list(unpack(facts["shares"]))
            _require_sound(state, own, self._key.get("steps"))
            state.curves = {
                name: [(int(step), float(value)) for step, value in curve]
                for name, curve in facts["curves"].items()
            }
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"The checkpoint {self._path.name} is incomplete ({type(error).__name__}). "
                "Delete it and start the training again."
            ) from error

    def _read(
        self, wanted: Callable[[str], bool] = lambda name: True
    ) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        try:
            return read_tensors(self._path, _ENTRY, wanted)
        except InputError as error:
            raise InputError(
                f"{self._path.name} is not a hushpore checkpoint, or it is damaged. Choose another "
                "name for the checkpoint, or delete the file."
            ) from error

    def _require_same(self, key: Mapping[str, Any], but: Collection[str]) -> None:
        differing = [
            f"{name} was {key.get(name)!r} and is now {value!r}"
            for name, value in self._key.items()
            if key.get(name) != value and name not in but
        ]
        if differing:
            raise InputError(
                f"The checkpoint {self._path.name} belongs to another training: {differing[0]}. "
                "Choose another name for the checkpoint, or delete the file to start again."
            )


def _require_sound(
    state: TrainingState, tensors: Mapping[str, torch.Tensor], steps: int | None
) -> None:
    """Raise ValueError if a training of `steps` steps cannot have reached this state."""
    if not all(value.isfinite().all() for value in tensors.values()):
        raise ValueError("values that are no finite numbers")
    if not (0 <= state.logged_steps <= state.step and 0 <= state.elapsed < math.inf):
        raise ValueError("steps and seconds that cannot be")
    if steps is not None and state.step > steps:
        raise ValueError("more steps than are asked for")
    if len(state.shares) != state.step:
        raise ValueError("not as many steps as there were")
