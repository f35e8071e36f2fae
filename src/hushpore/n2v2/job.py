"""The denoising job: train on the user's own volume, then predict it."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.events import Job, Metric, Note, Preview, Progress, StopEarly
from hushpore.base.record import make_record
from hushpore.base.volume import Volume, require_values
from hushpore.device.backend import Backend
from hushpore.device.memory import is_out_of_memory
from hushpore.device.readback import Readback
from hushpore.n2v2.diagnosis import diagnose_noise
from hushpore.n2v2.masking import Line
from hushpore.n2v2.model import build_network
from hushpore.n2v2.prediction import CORES, halve_core, pad, plan_tiles, predict, predict_tile
from hushpore.n2v2.trained import Model, Scale, load_model, require_dimensions
from hushpore.n2v2.training import Batches, Learner, choose_precision, one_cycle
from hushpore.patches.job import require_room

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.device.timing import StageTimer
    from hushpore.n2v2.settings import DenoiseSettings

#: Steps between two readings of the loss.
EPOCH = 25

#: Patches in a batch where the settings leave it open: a step then takes a fraction of a second
#: on a CPU.
BATCH = {2: 16, 3: 4}

#: Share of the job that is training, for the progress bar.
TRAINING_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Denoised:
    """Result of the denoising job.

    Attributes
    ----------
    volume : Volume
        The denoised volume: float32, in the geometry of the input.
    model : Model
        What was trained, to be used on other volumes.
    losses : numpy.ndarray
        float32, shape (n, 2): step, and mean loss of the steps up to it.
    timings : dict of str to float
        Seconds by stage.
    provenance : dict
        The record of the job.
    """

    volume: Volume
    model: Model
    losses: npt.NDArray[np.float32]
    timings: dict[str, float]
    provenance: dict[str, Any]

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        result = self.provenance["result"]
        removed = f"Denoised: {result['noise_removed']:.3g} of noise removed (standard deviation)"
        if not result["steps"]:
            return f"{removed}, with the model {self.provenance['settings']['model']}"
        return f"{removed}, {result['steps']} training steps in {self.timings['training']:.0f} s"


def denoise(volume: Volume, settings: DenoiseSettings, backend: Backend) -> Job:
    """Train N2V2 on a volume and denoise it.

    Noise2Void (https://doi.org/10.1109/CVPR.2019.00223) hides pixels and predicts them from
    their surroundings: noise that is independent from pixel to pixel cannot be predicted, and
    so is left out. N2V2 (https://doi.org/10.1007/978-3-031-25069-9_33) is its form without
    checkerboard artefacts.

    Yields
    ------
    Progress, Timing, Metric ("loss"), Preview ("denoised"), Note

    Returns
    -------
    Denoised
        Also after `StopEarly`: what the network has learnt by then.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.
    MemoryLimitError
        If a single patch does not fit into memory.
    """
    values = _require_greyscale(volume)
    require_dimensions(volume, settings.dimensions)
    trained = load_model(settings.model) if settings.model else None
    size, line = _patch_size(settings), _line(settings)
    if trained is None:
        require_room(volume, size, "patch_size" if len(size) == 2 else "patch_depth or patch_size")
    elif trained.network.dimensions != settings.dimensions:
        raise InputError(
            f"The model {settings.model} was trained in {trained.network.dimensions}D; "
            f"set dimensions to {trained.network.dimensions}."
        )
    yield Progress("preparing", 0, 1, "", 0.0)
    work = _Work(volume, values, settings, backend, trained)
    try:
        yield from work.upload()
        yield from work.diagnose()
        if trained is None:
            yield from work.train(size, line)
        denoised = yield from work.predict()
        yield work.timer.timing()
    finally:
        work.backend.release()
    return work.result(denoised)


class _Work:
    """The state of one denoising job, kept together because running out of memory changes it."""

    def __init__(
        self,
        volume: Volume,
        values: npt.NDArray[Any],
        settings: DenoiseSettings,
        backend: Backend,
        trained: Model | None,
    ) -> None:
        self.volume, self.values, self.settings = volume, values, settings
        self.trained = trained
        self.timer: StageTimer = backend.timer()
        self.notes: list[str] = []
        self.losses: list[tuple[int, float]] = []
        self.steps = 0
        self.backend = backend

    def upload(self) -> Job:
        """Move the volume to the device, or leave it on the CPU where the device is too small."""
        try:
            self._use(self.backend)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            yield self._to_cpu()

    def _use(self, backend: Backend) -> None:
        """Move to a device: upload once, in the dtype of the file, and normalise there."""
        self.backend = backend
        self.dtype = choose_precision(self.settings.precision, backend, self.settings.dimensions)
        with self.timer.stage("upload"):
            raw = backend.put(self.values)
            if self.trained is None:
                self.scale = Scale(self.volume, *_statistics(raw, self.volume))
            else:
                self.scale = Scale(self.volume, self.trained.mean, self.trained.std)
                self.network = self.trained.network.to(backend.device)
            self.images = self.scale.normalise(raw, self.settings.dimensions)

    def diagnose(self) -> Job:
        """Say so where the noise is not what Noise2Void assumes."""
        with self.timer.stage("diagnosis"):
            self.noise = diagnose_noise(self.volume, self.settings.seed)
        axes = self.noise.correlated_axes
        if axes and axes != self.settings.correlated_along:
            yield self._note(self.noise.summary.capitalize() + ".")

    def train(self, size: tuple[int, ...], line: Line | None) -> Job:
        """Train, in smaller batches and then on the CPU where memory runs out."""
        count = self.settings.batch_size or BATCH[self.settings.dimensions]
        while True:
            generator = torch.Generator(self.backend.device).manual_seed(self.settings.seed)
            batches = Batches(size, count, self.settings.masked_share, generator, line)
            try:
                yield from self._train(batches)
                return
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                smaller = batches.halved()
            if smaller is not None:
                count = smaller.count
                yield self._note(f"Memory ran out: training with {count} patches a step.")
            else:
                yield self._to_cpu()

    def _train(self, batches: Batches) -> Job:
        settings, device = self.settings, self.backend.device
        weights = torch.Generator().manual_seed(settings.seed)
        layout = torch.channels_last if settings.dimensions == 2 else torch.channels_last_3d
        network = build_network(settings.dimensions, weights)
        network = network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
        learner = Learner(network, self.dtype)
        self.network = learner.average
        readback = Readback(self.backend)
        previews = _PreviewPace(self.images, batches.voxels)
        self.losses, done = [], 0
        total = torch.zeros((), device=device)
        start = time.monotonic()
        fraction, step = 0.0, 0
        while fraction < 1:
            step = self.steps = step + 1
            rate = one_cycle(fraction, settings.learning_rate)
            with self.timer.stage("training"):
                total += learner.step(self.images, batches, rate, step - 1)
            spent = time.monotonic() - start
            fraction = step / settings.steps
            if settings.time_budget is not None:
                fraction = max(fraction, spent / settings.time_budget)
            if step % EPOCH == 0:
                readback.push(("loss", step), total / EPOCH)
                done = step
                total.zero_()
            if previews.due(spent / step, spent):
                with self.timer.stage("preview"):
                    readback.push(("preview", step), self._preview())
                previews.shown(time.monotonic() - start - spent, spent)
            try:
                if done == step:
                    yield self.timer.timing()
                yield from self._report(readback.arrived())
                yield self._progress(fraction)
            except StopEarly:
                self.notes.append(f"Stopped early, after {step} of {settings.steps} steps.")
                break
        # a last mean over a few steps alone would jump
        if step - done > EPOCH // 2 or not done:
            readback.push(("loss", step), total / (step - done))
        yield self.timer.timing()
        yield from self._report(readback.rest())

    def _report(self, arrived: list[tuple[Any, npt.NDArray[Any]]]) -> Job:
        for (kind, step), value in arrived:
            if kind == "loss":
                loss = float(value)
                if not np.isfinite(loss):
                    raise InputError(
                        "Training diverged: the loss is no longer a number. "
                        "Choose a smaller learning_rate."
                    )
                self.losses.append((step, loss))
                yield Metric("loss", step, loss)
            else:
                index = tuple(int(i) for i in np.unravel_index(self._shown, self.volume.shape[:-2]))
                channel = index[self.volume.axes.index("c")] if "c" in self.volume.axes else 0
                image = value * self.scale.std[channel] + self.scale.mean[channel]
                yield Preview("denoised", image, index)

    def _progress(self, fraction: float) -> Progress:
        total = self.settings.steps
        if self.settings.time_budget is not None:
            total = max(self.steps, min(total, round(self.steps / fraction)))
        # what the device has finished, not what it has been asked to do
        finished = self.losses[-1][0] if self.backend.is_cuda and self.losses else self.steps
        share = TRAINING_SHARE * (min(fraction, 1) * (finished / self.steps))
        return Progress("training", finished, total, "steps", share)

    @property
    def _shown(self) -> int:
        """Number of the slice in the middle, over all leading axes."""
        # of two middle slices the first: there a viewer opens the volume
        return (int(np.prod(self.volume.shape[:-2])) - 1) // 2

    def _preview(self) -> torch.Tensor:
        """Denoise the slice in the middle as well as the network can by now."""
        if self.settings.dimensions == 2:
            image = self.images[self._shown][None]
            return predict(self.network, image, dtype=self.dtype)[0]
        n, z = divmod(self._shown, self.images.shape[1])
        near = slice(max(z - 8, 0), z + 8)
        slab = predict(self.network, self.images[n : n + 1, near], dtype=self.dtype)
        return slab[0, z - near.start]

    def predict(self) -> Job:
        """Predict the whole volume, in smaller tiles and then on the CPU where memory runs out."""
        core: tuple[int, ...] | None = CORES[self.settings.dimensions]
        while core is not None:
            try:
                result = yield from self._predict(core)
                return result
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            core = halve_core(core)
            if core is not None:
                yield self._note(f"Memory ran out: predicting in tiles of {core[1:]}.")
            else:
                yield self._to_cpu()
                self.network.to("cpu")
                core = CORES[self.settings.dimensions]
        return None

    def _predict(self, core: tuple[int, ...]) -> Job:
        padded = pad(self.images)
        result = torch.empty(self.images.shape, device=self.backend.device)
        tiles = plan_tiles(self.images.shape, core)
        for number, tile in enumerate(tiles):
            fraction = TRAINING_SHARE + (1 - TRAINING_SHARE) * number / len(tiles)
            yield Progress("denoising", number, len(tiles), "tiles", fraction)
            with self.timer.stage("denoising"):
                result[tile.target] = predict_tile(
                    self.network, padded, tile, self.dtype, self.settings.symmetries
                )
        with self.timer.stage("download"):
            values = self.backend.get(result)
        yield Progress("denoising", len(tiles), len(tiles), "tiles", 1.0)
        return self.scale.restore(values)

    def _to_cpu(self) -> Note:
        if not self.backend.is_cuda:
            raise MemoryLimitError(
                f"{self.volume.name} does not fit into memory, even one patch at a time "
                f"({self.volume.facts}). Close other programs, crop or bin the volume, or "
                "choose a smaller patch_size."
            )
        gpu = self.backend
        self._use(Backend(reason="the GPU's memory ran out"))
        gpu.release()
        return self._note("The GPU's memory ran out: continuing on the CPU.")

    def _note(self, message: str) -> Note:
        self.notes.append(message)
        return Note(message, warning=True)

    def result(self, denoised: npt.NDArray[np.float32]) -> Denoised:
        """Put the result and its record together."""
        record = make_record(
            "denoise",
            self.volume,
            self.settings,
            f"{self.backend.name} ({self.backend.reason})",
            self.timer.timing(),
            self.notes,
        )
        record["noise"] = dataclasses.asdict(self.noise)
        record["result"] = {
            "steps": self.steps,
            "final_loss": self.losses[-1][1] if self.losses else None,
            "noise_removed": float(np.std(self.values.astype(np.float32) - denoised)),
            "precision": str(self.dtype).removeprefix("torch."),
        }
        model = Model(self.network.cpu(), self.scale.mean, self.scale.std)
        return Denoised(
            self.volume.replace(denoised, name=f"{self.volume.name} denoised"),
            model,
            np.array(self.losses, np.float32).reshape(-1, 2),
            record["timings"],
            record,
        )


class _PreviewPace:
    """Lets previews take a twentieth of the time at most, and come once a second at most."""

    def __init__(self, images: torch.Tensor, batch_voxels: int) -> None:
        depth = 1 if images.ndim == 3 else min(16, images.shape[1])
        slice_voxels = images.shape[-1] * images.shape[-2] * depth
        # prediction is the forward third of a training step
        self._steps_each = slice_voxels / batch_voxels / 3
        self._cost: float | None = None
        self._last = 0.0

    def due(self, step_seconds: float, now: float) -> bool:
        """Whether a preview may be made now, `now` seconds into the training."""
        cost = self._cost if self._cost is not None else self._steps_each * step_seconds
        return now - self._last >= max(1.0, 20 * cost)

    def shown(self, cost: float, now: float) -> None:
        """Remember what the preview took."""
        self._cost, self._last = cost, now + cost


def _require_greyscale(volume: Volume) -> npt.NDArray[Any]:
    if volume.dtype == np.bool_:
        raise InputError(
            f"{volume.name} is a mask (boolean), which has no noise to remove. "
            "Denoise the grey values, then segment."
        )
    return require_values(volume)


def _patch_size(settings: DenoiseSettings) -> tuple[int, ...]:
    plane = (settings.patch_size, settings.patch_size)
    return plane if settings.dimensions == 2 else (settings.patch_depth, *plane)


def _line(settings: DenoiseSettings) -> Line | None:
    axis = settings.correlated_along
    if axis == "none":
        return None
    axes = "zyx"[-settings.dimensions :]
    if axis not in axes:
        raise InputError(f"Noise that runs along {axis} can only be hidden with dimensions=3.")
    return Line(axes.index(axis), settings.correlated_reach)


def _statistics(raw: torch.Tensor, volume: Volume) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; the job's one blocking read."""
    values = raw.float()
    if "c" in volume.axes:
        values = values.movedim(volume.axes.index("c"), 0).flatten(1)
    else:
        values = values.reshape(1, -1)
    std, mean = torch.std_mean(values, dim=1, correction=0)
    if (std == 0).any():
        raise InputError(f"A channel of {volume.name} is constant; leave it out.")
    return tuple(mean.tolist()), tuple(std.tolist())
