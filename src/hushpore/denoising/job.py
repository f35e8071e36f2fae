"""The denoising job: train on the user's own volume, then predict it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.events import Job, Note
from hushpore.base.provenance import make_provenance
from hushpore.denoising.automatic import Method, Task, decide_method
from hushpore.denoising.fill_value import PADDED, find_fill_value, restore_fill_value
from hushpore.denoising.images import PLACES_BYTES, has_regions
from hushpore.denoising.inference.volumes import VolumePredictor, predict_images
from hushpore.denoising.noise import (
    NOT_RESTORED,
    compare_with_filters,
    examine_residual,
    residual_moments,
    restore_detail_in_place,
)
from hushpore.denoising.pairs import compare_scans, strength_of
from hushpore.denoising.plane_reader import PlaneReader, measure_scale_in_pieces
from hushpore.denoising.result import NoiseRecord, TrainingOutcome, TrainingResult, make_result
from hushpore.denoising.training.loop import read_preview_slice
from hushpore.denoising.training.run import (
    MOST_OF_IT,
    PREPARING,
    TRAINING_SHARE,
    JobLog,
    Training,
    Workplace,
    advice_after,
)
from hushpore.device.backend import Backend
from hushpore.device.memory import array_within
from hushpore.scan.noise import estimate_noise
from hushpore.scan.noise_model import FAR_FROM_GAUSSIAN

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s
    from hushpore.base.volume import Volume
    from hushpore.denoising.noise import Residual
    from hushpore.denoising.pairs import Agreement
    from hushpore.denoising.plane_reader import Scale
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.scan.noise_model import NoiseDiagnosis, NoiseModel
    from hushpore.scan.sample import Sample

#: Edge of the part of a slice in which a network is compared with filters, in 2D and 3D.
COMPARED = {2: 384, 3: 128}


def denoise(volume: Volume, settings: DenoiseSettings, backend: Backend) -> Job:
    """Train a network on a volume and denoise it.

    `hushpore.denoising.automatic.decide_method` chooses the method. By default noise like that of
    the volume, correlated or not, is added to the inputs (R2R), see
    `hushpore.denoising.pairs`. N2V2 (https://doi.org/10.1007/978-3-031-25069-9_33), the form
    of Noise2Void (https://doi.org/10.1109/CVPR.2019.00223) without checkerboard artefacts, masks
    pixels and predicts them from their neighbours; uncorrelated noise cannot be predicted and is
    thus removed. With a second scan the two are trained on each other, see
    `hushpore.denoising.pairs`.

    Yields: Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note.
    Previews show the slice of the last `Attention` that was sent in.
    Returns: `Denoised`; after `StopEarly` that of the training so far.
    Raises InputError if the volume or a setting cannot be used, OutputError if the checkpoint
    cannot be written, MemoryLimitError if a single patch does not fit into memory.
    """
    task = Task.of(volume, settings)
    log = JobLog(backend.timer())
    workplace: Workplace | None = None
    yield PREPARING
    try:
        source, rings = yield from _correct_rings(task, log)
        scale = yield from _measure(task, source, log)
        workplace = _workplace_for(task, source, scale, backend, log)
        yield from workplace.upload()
        yield PREPARING
        found, noise, method = yield from _look_at_noise(task, source, scale, log)
        outcome = TrainingOutcome(task.trained) if task.trained is not None else None
        if outcome is None:
            outcome = yield from Training(task, source, scale, workplace, method, log).run()
        outcome = yield from _compare(task, source, scale, workplace, outcome, found, log)
        denoised, backend = yield from _predict(task, source, scale, workplace, outcome, log)
        if settings.restore_detail and outcome.model.network.architecture.hides_pixels:
            yield from _restore_detail(source, denoised, noise.diagnosis, log)
        padding = yield from _restore_padding(volume, denoised, log)
        residual = yield from _examine(task, source, denoised, found, outcome, log)
        yield log.timer.timing()
    finally:
        (workplace or backend).release()
    timing = log.timer.timing()
    if not (backend.is_cuda or backend.is_apple):
        # the threads of PyTorch, not those of the kernels of pores, change sums
        backend = replace(backend, name="", threads=torch.get_num_threads())
    provenance = make_provenance(
        "denoise", volume, settings, backend.description, timing, log.notes
    )
    outcome.model.network.cpu()
    result = volume.as_denoised(denoised)
    return make_result(
        result, outcome, noise, provenance, residual=residual, precision=workplace.dtype,
        rings=rings, padding=padding,
    )  # fmt: skip


def train(volume: Volume, settings: DenoiseSettings, backend: Backend, scale: Scale) -> Job:
    """Train on a volume with a known grey scale, as `denoise` does.

    With a model in the settings only the noise is estimated.

    `volume`: NumPy or lazy, with its rings removed; a volume larger than the memory is read in
    random blocks. `scale`: that of `hushpore.denoising.plane_reader.measure_scale`.
    Yields: Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note.
    Returns: `TrainingResult`; after `StopEarly` that of the training so far.
    Raises InputError, OutputError, MemoryLimitError: as for `denoise`.
    """
    task = Task.of(volume, settings)
    log = JobLog(backend.timer())
    workplace: Workplace | None = None
    yield PREPARING
    if task.trained is None and task.sample is not None:
        scale = _scale_of(task.sample, scale)
    try:
        found, noise, method = yield from _look_at_noise(task, task.source, scale, log)
        if task.trained is not None:
            outcome = TrainingOutcome(task.trained)
        else:
            workplace = _workplace_for(task, task.source, scale, backend, log)
            yield from workplace.upload()
            yield PREPARING
            outcome = yield from Training(task, task.source, scale, workplace, method, log).run()
            outcome = yield from _compare(task, task.source, scale, workplace, outcome, found, log)
        yield log.timer.timing()
    finally:
        (workplace or backend).release()
    outcome.model.network.cpu()
    where = backend if workplace is None else workplace.backend
    return TrainingResult(outcome, noise, tuple(log.notes), where.description)


def _workplace_for(
    task: Task, source: PlaneReader, scale: Scale, backend: Backend, log: JobLog
) -> Workplace:
    regions = has_regions(task.settings)
    if regions and backend.is_apple:
        backend = Backend(reason="training regions need 64-bit numbers, which Apple's GPU lacks")
    more = PLACES_BYTES if task.trained is None and regions else 0
    return Workplace(backend, task.settings, source, task.arrangement, scale, log, more)


def _correct_rings(task: Task, log: JobLog) -> Job:
    """Remove ring artefacts from the scans, if the settings ask for it.

    Returns: the `PlaneReader` of the corrected scans; and the facts of the correction of each scan,
    None without a correction.
    """
    if not task.settings.correct_rings:
        return task.source, None
    from hushpore.denoising.rings import ring_facts, without_rings

    corrected, rings = [], []
    for each in task.source.scans:
        work = without_rings(each.volume)
        volume = yield from log.run_stage("ring correction", work, each.volume.nbytes)
        facts, said = ring_facts(volume)
        corrected.append(volume)
        rings.append(facts)
        yield log.note(said, warning=False)
    return PlaneReader(corrected[0], task.settings.dimensions, *corrected[1:]), rings


def _measure(task: Task, source: PlaneReader, log: JobLog) -> Job:
    """Measure the grey scale, and check every value for NaN.

    Returns: `Scale`; with a trained model the scale of its training data.
    """
    first, *others = [(measure_scale_in_pieces(each), each.volume.nbytes) for each in source.scans]
    scale = yield from log.run_stage("reading", *first)
    for other in others:
        yield from log.run_stage("reading", *other)
    if task.trained is not None:
        return task.trained.scale
    return scale if task.sample is None else _scale_of(task.sample, scale)


def _scale_of(sample: Sample, scale: Scale) -> Scale:
    """Return the grey scale of the sample instead of that of the whole scan."""
    return dataclasses.replace(scale, mean=(sample.mean,), std=(sample.deviation,))


def _look_at_noise(task: Task, source: PlaneReader, scale: Scale, log: JobLog) -> Job:
    """Estimate the noise, choose the method, and yield notes on both.

    Returns: `NoiseModel`, `NoiseRecord` and `Method`.
    """
    scan, settings = source.volume, task.settings
    agreement: Agreement | None = None
    with log.timer.stage("diagnosis"):
        is_alone = settings.dimensions == 2 and not task.context
        model = estimate_noise(scan, settings.seed, slicewise=is_alone, sample=task.sample)
        if task.pair is not None:
            agreement = compare_scans(scan, source.scans[1].volume, settings.seed)
    diagnosis, method = model.diagnosis, decide_method(task, model, scale.std[0])
    yield from log.keep_notes(_noise_notes(task, diagnosis, method, agreement))
    if task.sample is not None:
        yield log.note(task.sample.note, warning=False, subject="scan")
    if coarse := scale.coarseness:
        yield log.note(coarse, subject="scan")
    yield PREPARING
    drawn = method.noise.to_dict() if method.noise is not None else None
    compared = None if agreement is None else dataclasses.asdict(agreement)
    share = None if task.sample is None else task.sample.share
    return model, NoiseRecord(diagnosis, drawn, share, compared), method


def _noise_notes(
    task: Task, diagnosis: NoiseDiagnosis, method: Method, agreement: Agreement | None
) -> Job:
    """Yield notes on the choice of the method, and on noise that does not suit it."""
    if task.pair is not None and agreement is not None:
        for message in agreement.notes(task.volume, task.pair):
            yield Note(message, warning=True, subject="scan")
    elif method.reason is not None:
        yield method.reason
    drawn = method.noise if method.name == "r2r" else None
    if drawn is not None and drawn.unevenness:
        yield Note(drawn.unevenness, subject="scan")
    is_suited = not diagnosis.rings
    if method.noise is None and task.pair is None:
        along = task.settings.correlated_along
        is_suited = diagnosis.is_independent or diagnosis.correlated_axes == along
    if not is_suited:
        yield Note(diagnosis.summary, warning=True, subject="scan")
    if diagnosis.saturation:
        yield Note(diagnosis.saturation, warning=True, subject="scan")


def _compare(
    task: Task,
    source: PlaneReader,
    scale: Scale,
    workplace: Workplace,
    outcome: TrainingOutcome,
    noise: NoiseModel,
    log: JobLog,
) -> Job:
    """Compare the network with filters in the middle of three slices, and yield a note.

    Returns: the outcome with the comparison, if the noise is known.
    """
    is_known = all(doubt.endswith(FAR_FROM_GAUSSIAN) for doubt in noise.doubts)
    if not is_known or not noise.deviation or len(scale.mean) > 1:
        return outcome
    if noise.diagnosis.is_independent:
        # of white noise, differences of neighbours contain less texture than flat regions
        share = min(noise.diagnosis.noise / noise.deviation, 1.0)
        noise = noise.strengthened(share, noise.strength)
    network, shape = outcome.model.network, task.volume.shape
    leading, edge = shape[:-2], COMPARED[task.settings.dimensions]
    y, x = (slice(max(n - edge, 0) // 2, (n + edge) // 2) for n in shape[-2:])
    with log.timer.stage("examination"):
        parts = []
        for number in sorted({math.prod(leading) * k // 4 for k in (1, 2, 3)}):
            at = tuple(int(i) for i in np.unravel_index(number, leading)) if leading else None
            seen = read_preview_slice(source, task.arrangement, scale, workplace.backend, at).image
            parts.append(replace(seen, planes=seen.planes[..., y, x].contiguous()))
        strength = strength_of(noise, shape[-2:])
        whole = task.settings.dimensions == 3
        # the number of the predicted plane among those of an image; in 3D a plane is a volume
        kept = [int(each.members[0, each.first]) for each in parts]

        def predict(number: int, values: Float32s) -> Float32s:
            planes = torch.from_numpy(values).to(workplace.backend.device)
            images = replace(parts[number], planes=planes[None] if whole else planes)
            found = predict_images(network, images, None, workplace.dtype, network.architecture)
            return found[0].reshape(-1, *found.shape[-2:]).cpu().numpy()

        compared = compare_with_filters(
            predict,
            [(each.planes[0] if whole else each.planes).cpu().numpy() for each in parts],
            [slice(None) if whole else slice(k, k + 1) for k in kept],
            noise,
            scale,
            None if strength is None else strength[0, y, x].numpy(),
        )
    if compared.is_better:
        a_filter = f"{'In flat regions, a' if compared.in_flat else 'A'} {compared.best}"
        message = (
            f"{a_filter} comes closer to the noise-free image than the network (estimated from the "
            f"noise model).{advice_after(task, outcome)} To apply that filter: {compared.call}."
        )
        yield log.note(message, subject="result")
    return replace(outcome, compared=dataclasses.asdict(compared))


def _predict(
    task: Task,
    source: PlaneReader,
    scale: Scale,
    workplace: Workplace,
    outcome: TrainingOutcome,
    log: JobLog,
) -> Job:
    """Apply the network to the whole volume, in smaller tiles or on the CPU if memory runs out.

    Returns: the denoised values, and the backend that was used.
    """
    settings, shape, model = task.settings, task.volume.shape, outcome.model
    wanted = settings.denoise_memory
    room = Backend().free_memory() if wanted is None else 1e9 * wanted
    denoised = array_within(room / 2, shape)
    memory = workplace.memory
    # if the whole volume is on the device, its result is already counted
    if workplace.images is None and not isinstance(denoised, np.memmap):
        memory -= 0 if workplace.backend.is_cuda else denoised.nbytes
    predictor = VolumePredictor(
        model.network, task.arrangement, scale, memory, workplace.dtype,
        model.augments(settings, shape), TRAINING_SHARE if outcome.steps else 0.0, log.timer,
    )  # fmt: skip
    prediction = predictor.predict(source, denoised, workplace.backend, workplace.images)
    backend = yield from log.keep_notes(prediction)
    return denoised, backend


def _restore_detail(source: PlaneReader, denoised: Any, noise: NoiseDiagnosis, log: JobLog) -> Job:
    """Add back fine detail; returns False if correlated noise cannot be distinguished from it."""
    if not noise.is_independent:
        yield log.note(NOT_RESTORED, subject="result")
        return False
    restoring = restore_detail_in_place(source, denoised, noise)
    yield from log.run_stage("detail restoration", restoring, fraction=1.0)
    return True


def _restore_padding(volume: Volume, denoised: Any, log: JobLog) -> Job:
    """Restore the fill value of padding; returns it, or None if there is no padding."""
    # not earlier, since the training on a cluster does not need it
    with log.timer.stage("diagnosis"):
        padding = find_fill_value(volume)
    if padding is not None:
        restoring = restore_fill_value(volume, denoised, padding)
        yield from log.run_stage("padding", restoring, fraction=1.0)
        yield log.note(PADDED.format(padding), warning=False, subject="result")
    return padding


def _examine(
    task: Task,
    source: PlaneReader,
    denoised: Any,
    noise: NoiseModel,
    outcome: TrainingOutcome,
    log: JobLog,
) -> Job:
    """Examine the removed noise and the result, and yield notes on problems.

    Returns: `Residual`.
    """
    measuring = residual_moments(source, denoised)
    moments = yield from log.run_stage("examination", measuring, fraction=1.0)
    with log.timer.stage("examination"):
        residual: Residual = examine_residual(
            source, denoised, noise, task.settings.seed, moments, task.sample
        )
    if outcome.model.network.input_share <= MOST_OF_IT:
        for message in residual.problems:
            yield log.note(f"{message}{advice_after(task, outcome)}", subject="result")
    return residual
