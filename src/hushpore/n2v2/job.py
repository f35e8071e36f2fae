"""The denoising job: train on the user's own volume, then predict it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import Batch, Event, Job, Note, Progress, mapped
from hushpore.base.provenance import fingerprint, make_provenance
from hushpore.base.readable import readable_count, readable_percent
from hushpore.device.backend import Backend
from hushpore.device.memory import is_out_of_memory
from hushpore.device.scratch import array_within
from hushpore.n2v2.images import Images, arrange
from hushpore.n2v2.inference.volumes import FREE_SHARE, IMAGES_SHARE, VolumePredictor
from hushpore.n2v2.noise.counts import find_count
from hushpore.n2v2.noise.diagnosis import diagnose_noise
from hushpore.n2v2.noise.estimation import estimate_noise
from hushpore.n2v2.noise.residual import (
    NOT_RESTORED,
    examine_residual,
    residual_moments,
    restore_detail_in_place,
)
from hushpore.n2v2.padding import PADDED, find_padding, put_back
from hushpore.n2v2.pair import Agreement, Noise2Noise, compare_scans, pair_of
from hushpore.n2v2.plan import (
    BATCH,
    architecture_for,
    context_for,
    hides_strong_noise,
    masked_share,
    may_draw_noise,
    method_for,
    patch_size_for,
    replacement_for,
    require_dimensions_of,
)
from hushpore.n2v2.recorruption import Recorruption
from hushpore.n2v2.regions import PLACES_BYTES, Regions, has_regions, regions_fingerprint
from hushpore.n2v2.result import ALL_OF_IT, Denoised, TrainingResult, make_result
from hushpore.n2v2.source import Scale, Source, measure_scale_in_pieces
from hushpore.n2v2.thinning import Thinning
from hushpore.n2v2.trained import Model, load_model, require_dimensions
from hushpore.n2v2.training.blocks import BlockSampler
from hushpore.n2v2.training.checkpoint import FREE, Checkpoint
from hushpore.n2v2.training.loop import TrainingLoop, read_preview_slice
from hushpore.n2v2.training.schedule import Schedule
from hushpore.n2v2.training.step import BatchSampler, PairMaker, choose_precision
from hushpore.patches.job import require_room
from hushpore.patches.places import in_volume

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.device.timing import StageTimer
    from hushpore.n2v2.model import UNet
    from hushpore.n2v2.noise.model import NoiseModel
    from hushpore.n2v2.settings import DenoiseSettings

    T = TypeVar("T")

#: Share of the job that is training, for the progress bar.
TRAINING_SHARE = 0.9

#: Shares of the scan itself in a result from which on it is said, and from which on what was
#: removed is too little to look for the image in it.
NOTABLE_SHARE, MOST_OF_IT = 0.25, 0.5

#: Told between the steps of which nothing can be counted, so that a job can be cancelled there.
_PREPARING = Progress("preparing", 0, 1, "", 0.0)

#: Bytes a voxel takes beside its own where the whole volume is on the device: normalised, padded,
#: and its result.
_WORKING = 12


def denoise(volume: Volume, settings: DenoiseSettings, backend: Backend) -> Job:
    """Train a network on a volume and denoise it.

    By default with noise drawn like that of the volume, see `hushpore.n2v2.recorruption`: that may
    be correlated between neighbours. Or as N2V2 (https://doi.org/10.1007/978-3-031-25069-9_33), the
    form of Noise2Void (https://doi.org/10.1109/CVPR.2019.00223) without checkerboard artefacts: it
    hides pixels and predicts them from their surroundings; noise that is independent from pixel to
    pixel cannot be predicted, and so is left out. With a second scan of the same thing each of the
    two is learnt from the other, see `hushpore.n2v2.pair`.

    Yields: Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note.
    Previews are of the slice last named by an `Attention` that was sent in.
    Returns: `Denoised`, also after `StopEarly`: what the network has learnt by then.
    Raises InputError if the volume or a setting cannot be used, OutputError if the checkpoint
    cannot be written, MemoryLimitError if a single patch does not fit into memory.
    """
    run = DenoisingRun(volume, settings, backend)
    yield _PREPARING
    try:
        yield from run.correct_rings()
        yield from run.upload()
        yield from run.diagnose()
        if run.trained is None:
            yield from run.train()
        yield from run.predict()
        if settings.restore_detail and run.model.network.architecture.hides_pixels:
            yield from run.restore_detail()
        yield from run.put_back_padding()
        yield from run.examine()
        yield run.timer.timing()
    finally:
        run.release()
    return run.result()


def train(volume: Volume, settings: DenoiseSettings, backend: Backend, scale: Scale) -> Job:
    """Train on a volume whose grey scale is known, as `denoise` does.

    With a model in the settings nothing is trained; the noise alone is looked at.

    `volume`: its values may lie on disk: what does not fit into memory is read in blocks from all
    over. `scale`: as `hushpore.n2v2.source.measure_scale` would find it.
    Yields: Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note.
    Returns: also after `StopEarly`: as far as the training came.
    Raises InputError, OutputError, MemoryLimitError: as for `denoise`.
    """
    run = DenoisingRun(volume, settings, backend, scale)
    yield _PREPARING
    try:
        yield from run.diagnose()
        if run.trained is None:
            yield from run.upload()
            yield from run.train()
        else:
            run.model = run.trained
        yield run.timer.timing()
    finally:
        run.release()
    run.model.network.cpu()
    return TrainingResult(
        run.model, run.noise, run.curves, run.steps, run.elapsed, run.taken_schedule,
        tuple(run.notes), run.backend.description, run.noise_facts, run.pair_facts, run.ended,
    )  # fmt: skip


class DenoisingRun:
    """The state of one denoising job, kept together because running out of memory changes it.

    Where the grey scale of the volume is known already, it is not measured again.
    """

    def __init__(
        self,
        volume: Volume,
        settings: DenoiseSettings,
        backend: Backend,
        scale: Scale | None = None,
    ) -> None:
        require_dimensions(volume, settings.dimensions)
        if backend.is_apple and (settings.train_at or settings.leave_out):
            backend = Backend(reason="places to train at are drawn by numbers of 64 bits")
        self.volume, self.settings, self.backend = volume, settings, backend
        self._known_scale = scale
        if scale is not None:
            self.scale = scale
        self.pair = pair_of(volume, settings)
        self.source = Source(volume, settings.dimensions, self.pair)
        self.trained = load_model(settings.model) if settings.model else None
        if self.trained is None:
            self.draws_noise = may_draw_noise(volume, settings)
            self.context = context_for(volume, settings)
            self.arrangement = arrange(volume, settings.dimensions, settings.channels, self.context)
            self.size = patch_size_for(volume, settings, self.source.size)
            self.replacement = replacement_for(settings)
            require_room(volume, self.size)
        else:
            require_dimensions_of(self.trained, settings)
            self.arrangement = self.trained.arrange(volume)
        self.timer: StageTimer = backend.timer()
        self.notes: list[str] = []
        self.noise_model: NoiseModel | None = None
        self.count: float | None = None  # the grey value of one, where values are counts
        self.agreement: Agreement | None = None
        self.padding: float | None = None  # the value that the scan is filled in with
        self.rings: list[dict[str, Any]] | None = None
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.steps, self.elapsed = 0, 0.0
        self.is_moved = False  # whether the training began on another device
        self.taken_schedule: dict[str, Any] | None = None
        self.ended = ""  # what has ended the training, in words
        self.blocks: BlockSampler | None = None
        self.images: Images | None = None
        self.whole: torch.Tensor | None = None  # the result, where a GPU holds it

    def correct_rings(self) -> Job:
        """Take rings out of the scans, where that is asked for: all else works on what is left."""
        # the training of a cluster works on what is left already
        if not self.settings.correct_rings or self._known_scale is not None:
            return
        from hushpore.n2v2.rings import ring_facts, without_rings

        corrected, self.rings = [], []
        for each in self.source.scans:
            work = without_rings(each.volume)
            volume = yield from self._run_stage("ring correction", work, each.volume.nbytes)
            facts, said = ring_facts(volume)
            corrected.append(volume)
            self.rings.append(facts)
            yield self._note(said, warning=False)
        self.source = Source(corrected[0], self.settings.dimensions, *corrected[1:])

    def upload(self) -> Job:
        """Move the volume to the device, or leave it on the CPU where the device is too small."""
        if self._known_scale is None:
            # every value is looked at, also for NaN, before anything is made of them
            measuring = measure_scale_in_pieces(self.source)
            self.scale = yield from self._run_stage("reading", measuring, self.volume.nbytes)
            if self.pair is not None:
                measuring = measure_scale_in_pieces(self.source.scans[1])
                yield from self._run_stage("reading", measuring, self.pair.nbytes)
        if self.trained is not None:
            self.scale, self.model = self.trained.scale, self.trained
        try:
            self._move_to(self.backend)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            yield self._to_cpu()
        if self.images is None:
            yield self._note(
                f"{self.volume.name} does not fit into {self.memory / 1e9:.3g} GB of memory: "
                "it is read block by block.",
                warning=False,
            )
        yield _PREPARING

    def _run_stage(
        self, stage: str, work: Generator[float, None, T], nbytes: int = 0, fraction: float = 0.0
    ) -> Generator[Progress, Any, T]:
        """Do work that yields how much of it is done as a stage, and tell how far it is."""

        def told(share: float) -> Progress:
            return Progress(stage, round(100 * share), 100, "%", fraction)

        return (yield from mapped(self.timer.timed(stage, work, nbytes), told))

    def _move_to(self, backend: Backend) -> None:
        """Move to a device: upload once, in the dtype of the file, and normalise there."""
        self.backend = backend
        self.dtype = choose_precision(self.settings.precision, backend, self.settings.dimensions)
        self.images = None
        wanted = self.settings.denoise_memory
        self.memory = FREE_SHARE * backend.free_memory() if wanted is None else 1e9 * wanted
        self.budget = IMAGES_SHARE * self.memory
        a_voxel = self.source.bytes_a_voxel(_WORKING)
        if self.trained is None and has_regions(self.settings):
            a_voxel += PLACES_BYTES
        if math.prod(self.volume.shape) * a_voxel > self.budget:
            return
        scans = self.source.scans
        with self.timer.stage("upload", nbytes=sum(each.volume.nbytes for each in scans)):
            every = np.arange(self.source.count)
            raw = [each.put(each.stored(every), every, backend) for each in scans]
            planes = self.scale.normalise_scans(raw, self.source.channels)
            self.images = Images.of(planes, self.arrangement, len(scans))

    def diagnose(self) -> Job:
        """Look at the noise, and say so where it is not what the method assumes."""
        with self.timer.stage("diagnosis"):
            scan = self.source.volume
            self.noise = diagnose_noise(scan, self.settings.seed)
            if self.pair is not None:
                other = self.source.scans[1].volume
                self.agreement = compare_scans(scan, other, self.settings.seed)
            if self.trained is None and (self.draws_noise or self.pair is not None):
                is_alone = self.settings.dimensions == 2 and not self.context
                self.noise_model = estimate_noise(scan, self.settings.seed, slicewise=is_alone)
                if self.pair is None and self.noise.is_independent:
                    self.count = find_count(scan, self.settings.seed)
                    (variance,) = self.noise.variance_at(np.array(self.scale.mean))
                    self.noise_model = self.noise_model.compared(math.sqrt(variance))
        yield from self._say_noise()
        if self.noise.saturation:
            yield self._note(self.noise.saturation + ".")
        if coarse := self.scale.coarseness:
            yield self._note(coarse)
        yield _PREPARING

    def _say_noise(self) -> Job:
        """Say so where the noise is not as the method assumes; without it, do without the model."""
        is_suited, model = not self.noise.rings, self.noise_model
        if self.pair is not None and self.agreement is not None:
            for message in self.agreement.notes(self.volume, self.pair):
                yield self._note(message)
        elif self.count is not None:
            yield self._note(
                "Grey values are counts, with the noise of such: they are shared out between "
                "inputs and targets.",
                warning=False,
            )
        elif model is not None and model.doubts:
            doubts = " ".join(model.doubts)
            if self.settings.method == "auto":
                self.noise_model = None
                doubts += " So pixels are hidden instead (method n2v2)."
            yield self._note(doubts)
        elif (
            model is not None
            and self.noise.is_independent
            and hides_strong_noise(self.settings, model, self.scale.std[0])
        ):
            self.noise_model = None
            yield self._note(
                "The noise is strong, and independent from voxel to voxel: pixels are hidden "
                "(method n2v2), which learns more from such noise.",
                warning=False,
            )
        model = self.noise_model if self.pair is None and self.count is None else None
        if model is not None and model.unevenness:
            yield self._note(model.unevenness, warning=False)
        if self.noise_model is None and self.pair is None:
            axes = self.noise.correlated_axes
            is_suited = self.noise.is_independent or axes == self.settings.correlated_along
        if not is_suited:
            yield self._note(self.noise.summary.capitalize() + ".")

    def train(self) -> Job:
        """Train, in smaller batches and then on the CPU where memory runs out."""
        method = method_for(self.settings, self.noise_model)
        self.architecture = architecture_for(
            self.volume, self.settings, method, self.arrangement, self.noise.is_independent
        )
        count = asked = self.settings.batch_size or BATCH[self.settings.dimensions]
        while True:
            checkpoint = self._checkpoint(asked)
            if checkpoint is not None and checkpoint.exists:
                count = min(count, checkpoint.batch_size)
            batches = BatchSampler(
                self.size,
                count,
                masked_share(self.settings),
                torch.Generator(self.backend.device).manual_seed(self.settings.seed),
                self.replacement,
                self._pair_maker(),
            )
            try:
                yield from self._train(batches, checkpoint)
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

    def _pair_maker(self) -> PairMaker | None:
        """Return what makes inputs and targets, in a training that hides nothing."""
        if self.pair is not None:
            return Noise2Noise()
        if self.noise_model is None:
            return None
        if self.count is not None:
            return Thinning.of(self.count, self.scale)
        return Recorruption.of(
            self.noise_model, self.scale, self.size, self.context, self.backend.device
        )

    def _train(self, batches: BatchSampler, checkpoint: Checkpoint | None) -> Job:
        images = yield from self._training_images()
        volume = (self.source, self.arrangement, self.scale, self.backend)
        loop = TrainingLoop(
            self.settings, self.backend, self.timer, images, batches, self.dtype,
            partial(read_preview_slice, *volume), self._to_model, self._to_batch, TRAINING_SHARE,
            noise=self._noise_of_targets(batches), is_comparable=self.blocks is None,
        )  # fmt: skip
        state = loop.start(self.architecture)
        if checkpoint is not None and checkpoint.exists:
            checkpoint.load(state, self.is_moved)
            yield self._note(f"Went on from the checkpoint, after {state.step} steps.", False)
        yield _PREPARING
        try:
            yield from loop.run(state, checkpoint)
        finally:
            if self.blocks is not None:
                self.blocks.close()
        self.notes += loop.notes
        self.ended = loop.ended
        is_full = loop.schedule.is_open and not loop.notes
        if is_full:
            yield self._note(f"Trained for {state.step:,} steps: {self.ended}.", warning=False)
        self.model = self._to_model(state.learner.average)
        self.curves, self.steps, self.elapsed = state.curves, state.step, state.elapsed
        # what a checkpoint of an older version has left out cannot be repeated
        is_whole = len(state.shares) == state.step
        self.taken_schedule = loop.schedule.record(state.shares) if is_whole else None
        share = self.model.network.input_share
        if share > NOTABLE_SHARE:
            advice = self._advice()
            short = f", for which the training was short.{advice}" if advice else "."
            why = f"there is little noise{short}"
            if share > MOST_OF_IT:
                few = "" if is_full else f", or {readable_count(state.step, 'step')} are too few"
                why = f"there is hardly any noise to remove{few}."
            kept = f"{readable_percent(share)} of the result is the scan as it was"
            if share > ALL_OF_IT:
                kept = "The result is the scan as it was"
            yield self._note(f"{kept}: {why}", warning=False)

    def _noise_of_targets(self, batches: BatchSampler) -> float | None:
        """Return the variance of the noise that a training is to predict, normalised."""
        if self.noise_model is None or batches.pair_maker is None:
            return None
        own = self.noise_model.deviation**2
        if self.count is not None:
            own = self.count * self.scale.mean[0]  # of counts the variance is the mean
        return float(own / self.scale.std[0] ** 2 * batches.pair_maker.target_variance)

    def _to_batch(self, step: int, patch_losses: npt.NDArray[np.float32]) -> Batch:
        """Say where in the volume the patches of a batch lie."""
        leading = self.volume.shape[: -len(self.size)]
        corners = patch_losses[:, :-1].astype(np.int64)
        if self.blocks is not None:
            corners = self.blocks.in_volume(step - 1, corners)
        # all planes that an image predicts have the same patches
        corners[:, 0] = self.arrangement.predicted[corners[:, 0], 0]
        corners = in_volume(corners, leading)
        return Batch(step, corners, self.size, patch_losses[:, -1].astype(np.float64))

    def _training_images(self) -> Generator[Progress, Any, Callable[[int], Images]]:
        """Return what gives the images to learn from in a step, and where patches may lie."""
        self.blocks, regions, weight = None, None, None
        if has_regions(self.settings):
            regions = Regions(self.volume, self.settings, self.arrangement, self.size)
        if self.images is not None:
            whole = self.images
            if regions is not None:
                with self.timer.stage("regions"):
                    every = np.arange(whole.shape[0]), slice(0, whole.shape[1])
                    places = regions.places(*every).to(self.backend.device)
                    whole = replace(whole, places=places)
            return lambda step: whole
        if regions is not None:
            weight = yield from self._run_stage("regions", regions.row_weights())
        self.blocks = BlockSampler(
            self.source, self.arrangement, self.scale, self.backend, self.timer, self.budget,
            self.size[0], self.settings.seed, regions, weight,
        )  # fmt: skip
        return self.blocks.at

    def _checkpoint(self, batch_size: int) -> Checkpoint | None:
        """Return the file that the training is kept in, of so many patches a step as asked for."""
        if not self.settings.checkpoint:
            return None
        regions = regions_fingerprint(self.volume, self.settings)
        scans = "".join(fingerprint(each.volume.data) for each in self.source.scans)
        key = {
            "volume": scans + regions,
            # each has its own random numbers
            "device": self.backend.device.partition(":")[0],
            "arithmetic": str(self.dtype),
            **{name: each for name, each in self.settings.to_dict().items() if name not in FREE},
            "batch_size": batch_size,
        }
        return Checkpoint(self.settings.checkpoint, key)

    def _to_model(self, network: UNet) -> Model:
        scale = self.scale
        is_turned = self.settings.correlated_along == "none"
        return Model(
            network, scale.mean, scale.std, self.settings.channels, self.context, is_turned
        )

    def predict(self) -> Job:
        """Predict the whole volume, in smaller tiles and then on the CPU where memory runs out."""
        wanted = self.settings.denoise_memory
        room = Backend().free_memory() if wanted is None else 1e9 * wanted
        self.denoised = array_within(room / 2, self.volume.shape)
        memory = self.memory
        # where the whole volume is there, its result is counted with it
        if self.images is None and not isinstance(self.denoised, np.memmap):
            memory -= 0 if self.backend.is_cuda else self.denoised.nbytes
        augment = self.model.augments(self.settings, self.volume.shape)
        predictor = VolumePredictor(
            self.model.network, self.arrangement, self.scale, memory, self.dtype,
            augment, TRAINING_SHARE if self.steps else 0.0, self.timer,
        )  # fmt: skip
        prediction = predictor.predict(self.source, self.denoised, self.backend, self.images)
        self.backend = yield from self._keep_notes(prediction)
        self.whole = predictor.whole

    def _keep_notes(self, job: Job) -> Job:
        """Keep the notes that a part of the job gives."""

        def kept(event: Event) -> Event:
            if isinstance(event, Note):
                self.notes.append(event.message)
            return event

        return (yield from mapped(job, kept))

    def restore_detail(self) -> Job:
        """Restore what was removed beyond the noise, where the noise allows to tell."""
        if not self.noise.is_independent:
            yield self._note(NOT_RESTORED)
            return
        # what the device holds is without it
        self.whole = None
        restoring = restore_detail_in_place(self.source, self.denoised, self.noise)
        yield from self._run_stage("detail restoration", restoring, fraction=1.0)

    def put_back_padding(self) -> Job:
        """Leave what is filled in around the scan as it was."""
        # here, and not before: the training of a cluster has no use for it
        with self.timer.stage("diagnosis"):
            self.padding = find_padding(self.volume)
        if self.padding is None:
            return
        # what the device holds is without it
        self.whole = None
        putting_back = put_back(self.volume, self.denoised, self.padding)
        yield from self._run_stage("padding", putting_back, fraction=1.0)
        yield self._note(PADDED.format(self.padding), warning=False)

    def examine(self) -> Job:
        """Look at what was removed and at what is left, and say so where it is not noise."""
        measuring = residual_moments(self.source, self.denoised)
        moments = yield from self._run_stage("examination", measuring, fraction=1.0)
        with self.timer.stage("examination"):
            self.residual = examine_residual(
                self.source, self.denoised, self.noise, self.settings.seed, moments
            )
        if self.model.network.input_share > MOST_OF_IT:
            return
        for message in self.residual.problems:
            yield self._note(f"{message}{self._advice()}")

    def _advice(self) -> str:
        """Return what helps where the result is not as it should be, unless the user refused it."""
        if self.trained is not None:
            return " The model has learnt from another scan: train on this one."
        if self.steps < Schedule.of(self.settings).steps:
            # whoever has cut the training short, or limited its time, knows; and where its curve
            # has ended it, more does not help
            return ""
        return " Train longer (Training steps)."

    def _to_cpu(self) -> Note:
        if not self.backend.is_gpu:
            raise MemoryLimitError(
                f"{self.volume.name} does not fit into memory, even one patch at a time "
                f"({self.volume.facts}). Close other programs, crop or bin the volume, or "
                "choose a smaller patch_size."
            )
        gpu = self.backend
        host = Backend(reason="the GPU's memory ran out")
        self.timer.run_on(host.clock())
        self._move_to(host)
        self.is_moved = True
        gpu.release()
        return self._note("The GPU's memory ran out: continuing on the CPU.")

    def _note(self, message: str, warning: bool = True) -> Note:
        self.notes.append(message)
        return Note(message, warning)

    @property
    def noise_facts(self) -> dict[str, Any] | None:
        """What noise was drawn by in the training, for the record."""
        if self.noise_model is None:
            return None
        count = {} if self.count is None else {"count": self.count}
        return self.noise_model.to_dict() | count

    @property
    def pair_facts(self) -> dict[str, Any] | None:
        """How two scans of the same thing compare, for the record."""
        return None if self.agreement is None else dataclasses.asdict(self.agreement)

    def release(self) -> None:
        """Give back what the device holds; the result stays there until it is left for a job."""
        self.images = None
        self.backend.release()

    def result(self) -> Denoised:
        """Put the result and its record together."""
        timing = self.timer.timing()
        where = self.backend.description
        provenance = make_provenance(
            "denoise", self.volume, self.settings, where, timing, self.notes
        )
        self.model.network.cpu()
        if self.whole is not None and self.backend.resident is not None:
            self.backend.resident.leave(self.denoised, self.whole, self.backend.device)
        name = f"{self.volume.name} denoised"
        return make_result(
            self.volume.replace(self.denoised, name=name), self.model, self.curves, provenance,
            noise=self.noise, residual=self.residual, steps=self.steps, seconds=self.elapsed,
            precision=self.dtype, schedule=self.taken_schedule, noise_model=self.noise_facts,
            pair=self.pair_facts, rings=self.rings, padding=self.padding, ended=self.ended,
        )  # fmt: skip
