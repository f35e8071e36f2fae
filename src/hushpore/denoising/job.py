"""The denoising job: train on the user's own volume, then predict it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Job, Note
from hushpore.base.provenance import make_provenance
from hushpore.denoising.automatic import Method, Task, decide_method
from hushpore.denoising.fill_value import PADDED, find_fill_value, restore_fill_value
from hushpore.denoising.inference.volumes import VolumePredictor
from hushpore.denoising.noise.estimation import estimate_noise
from hushpore.denoising.noise.residual import (
    NOT_RESTORED,
    examine_residual,
    residual_moments,
    restore_detail_in_place,
)
from hushpore.denoising.noise2noise import compare_scans
from hushpore.denoising.plane_reader import PlaneReader, measure_scale_in_pieces
from hushpore.denoising.regions import PLACES_BYTES, has_regions
from hushpore.denoising.result import Learnt, NoiseFound, TrainingResult, make_result
from hushpore.denoising.training.run import MOST_OF_IT, Training, advice_after
from hushpore.denoising.workplace import PREPARING, TRAINING_SHARE, Log, Place
from hushpore.device.backend import Backend
from hushpore.device.scratch import array_within

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.denoising.noise.diagnosis import NoiseDiagnosis
    from hushpore.denoising.noise.residual import Residual
    from hushpore.denoising.noise2noise import Agreement
    from hushpore.denoising.plane_reader import Scale
    from hushpore.denoising.settings import DenoiseSettings


def denoise(volume: Volume, settings: DenoiseSettings, backend: Backend) -> Job:
    """Train a network on a volume and denoise it.

    By default with noise drawn like that of the volume, see `hushpore.denoising.recorruption`: that
    may be correlated between neighbours. Or as N2V2 (https://doi.org/10.1007/978-3-031-25069-9_33),
    the form of Noise2Void (https://doi.org/10.1109/CVPR.2019.00223) without checkerboard artefacts:
    it hides pixels and predicts them from their surroundings; noise that is independent from pixel
    to pixel cannot be predicted, and so is left out. With a second scan of the same thing each of
    the two is learnt from the other, see `hushpore.denoising.noise2noise`.
    `hushpore.denoising.automatic.decide_method` decides.

    Yields: Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note.
    Previews are of the slice last named by an `Attention` that was sent in.
    Returns: `Denoised`, also after `StopEarly`: what the network has learnt by then.
    Raises InputError if the volume or a setting cannot be used, OutputError if the checkpoint
    cannot be written, MemoryLimitError if a single patch does not fit into memory.
    """
    task, backend = Task.of(volume, settings), _fitting(settings, backend)
    log = Log(backend.timer())
    place: Place | None = None
    yield PREPARING
    try:
        source, rings = yield from _correct_rings(task, log)
        scale = yield from _measure(task, source, log)
        place = _place_for(task, source, scale, backend, log)
        yield from place.upload()
        yield PREPARING
        noise, method = yield from _look_at_noise(task, source, scale, log)
        learnt = Learnt(task.trained) if task.trained is not None else None
        if learnt is None:
            learnt = yield from Training(task, source, scale, place, method, log).run()
        denoised, whole, backend = yield from _predict(task, source, scale, place, learnt, log)
        if settings.restore_detail and learnt.model.network.architecture.hides_pixels:
            is_restored = yield from _restore_detail(source, denoised, noise.diagnosis, log)
            # what the device holds is without it
            whole = None if is_restored else whole
        padding = yield from _put_back_padding(volume, denoised, log)
        whole = None if padding is not None else whole
        residual = yield from _examine(task, source, denoised, noise.diagnosis, learnt, log)
        yield log.timer.timing()
    finally:
        (place or backend).release()
    timing = log.timer.timing()
    provenance = make_provenance(
        "denoise", volume, settings, backend.description, timing, log.notes
    )
    learnt.model.network.cpu()
    if whole is not None and backend.resident is not None:
        backend.resident.leave(denoised, whole, backend.device)
    result = volume.replace(denoised, name=f"{volume.name} denoised")
    return make_result(
        result, learnt, noise, provenance, residual=residual, precision=place.dtype, rings=rings,
        padding=padding,
    )  # fmt: skip


def train(volume: Volume, settings: DenoiseSettings, backend: Backend, scale: Scale) -> Job:
    """Train on a volume whose grey scale is known, as `denoise` does.

    With a model in the settings nothing is trained; the noise alone is looked at.

    `volume`: its values may lie on disk: what does not fit into memory is read in blocks from all
    over; rings are taken out of it already. `scale`: as
    `hushpore.denoising.plane_reader.measure_scale` would find it.
    Yields: Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note.
    Returns: `TrainingResult`, also after `StopEarly`: as far as the training came.
    Raises InputError, OutputError, MemoryLimitError: as for `denoise`.
    """
    task, backend = Task.of(volume, settings), _fitting(settings, backend)
    log = Log(backend.timer())
    place: Place | None = None
    yield PREPARING
    try:
        noise, method = yield from _look_at_noise(task, task.source, scale, log)
        if task.trained is not None:
            learnt = Learnt(task.trained)
        else:
            place = _place_for(task, task.source, scale, backend, log)
            yield from place.upload()
            yield PREPARING
            learnt = yield from Training(task, task.source, scale, place, method, log).run()
        yield log.timer.timing()
    finally:
        (place or backend).release()
    learnt.model.network.cpu()
    where = backend if place is None else place.backend
    return TrainingResult(learnt, noise, tuple(log.notes), where.description)


def _fitting(settings: DenoiseSettings, backend: Backend) -> Backend:
    """Return where to compute: not on Apple's GPU where it cannot draw what is asked for."""
    if backend.is_apple and has_regions(settings):
        return Backend(reason="training regions need 64-bit numbers, which Apple's GPU lacks")
    return backend


def _place_for(task: Task, source: PlaneReader, scale: Scale, backend: Backend, log: Log) -> Place:
    more = PLACES_BYTES if task.trained is None and has_regions(task.settings) else 0
    return Place(backend, task.settings, source, task.arrangement, scale, log, more)


def _correct_rings(task: Task, log: Log) -> Job:
    """Take rings out of the scans, where that is asked for: all else works on what is left.

    Returns: what reads the scans; and what was taken out of each, None where it was not asked for.
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


def _measure(task: Task, source: PlaneReader, log: Log) -> Job:
    """Find the grey scale: every value is looked at, also for NaN, before anything is made of it.

    Returns: `Scale`; with a model that of what it has learnt from.
    """
    first, *others = [(measure_scale_in_pieces(each), each.volume.nbytes) for each in source.scans]
    scale = yield from log.run_stage("reading", *first)
    for other in others:
        yield from log.run_stage("reading", *other)
    return scale if task.trained is None else task.trained.scale


def _look_at_noise(task: Task, source: PlaneReader, scale: Scale, log: Log) -> Job:
    """Look at the noise, decide by it how to train, and say what is worth a word.

    Returns: `NoiseFound` and `Method`.
    """
    scan, settings = source.volume, task.settings
    agreement: Agreement | None = None
    with log.timer.stage("diagnosis"):
        is_alone = settings.dimensions == 2 and not task.context
        model = estimate_noise(scan, settings.seed, slicewise=is_alone)
        if task.pair is not None:
            agreement = compare_scans(scan, source.scans[1].volume, settings.seed)
    diagnosis, method = model.diagnosis, decide_method(task, model, scale.std[0])
    yield from log.keep_notes(_noise_notes(task, diagnosis, method, agreement))
    if coarse := scale.coarseness:
        yield log.note(coarse, subject="scan")
    yield PREPARING
    drawn = method.noise.to_dict() if method.noise is not None else None
    compared = None if agreement is None else dataclasses.asdict(agreement)
    return NoiseFound(diagnosis, drawn, compared), method


def _noise_notes(
    task: Task, diagnosis: NoiseDiagnosis, method: Method, agreement: Agreement | None
) -> Job:
    """Say how the noise decides the method, and where it is not as the method assumes."""
    if task.pair is not None and agreement is not None:
        for message in agreement.notes(task.volume, task.pair):
            yield Note(message, warning=True, subject="scan")
    elif method.reason is not None:
        yield method.reason
    drawn = method.noise if method.name == "r2r" and method.count is None else None
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


def _predict(
    task: Task, source: PlaneReader, scale: Scale, place: Place, learnt: Learnt, log: Log
) -> Job:
    """Predict the whole volume, in smaller tiles and then on the CPU where memory runs out.

    Returns: the denoised values; the same where a GPU holds them, else None; and where it was done.
    """
    settings, shape, model = task.settings, task.volume.shape, learnt.model
    wanted = settings.denoise_memory
    room = Backend().free_memory() if wanted is None else 1e9 * wanted
    denoised = array_within(room / 2, shape)
    memory = place.memory
    # where the whole volume is there, its result is counted with it
    if place.images is None and not isinstance(denoised, np.memmap):
        memory -= 0 if place.backend.is_cuda else denoised.nbytes
    predictor = VolumePredictor(
        model.network, task.arrangement, scale, memory, place.dtype,
        model.augments(settings, shape), TRAINING_SHARE if learnt.steps else 0.0, log.timer,
    )  # fmt: skip
    prediction = predictor.predict(source, denoised, place.backend, place.images)
    backend = yield from log.keep_notes(prediction)
    return denoised, predictor.whole, backend


def _restore_detail(source: PlaneReader, denoised: Any, noise: NoiseDiagnosis, log: Log) -> Job:
    """Restore what was removed beyond the noise; returns whether the noise allowed to tell."""
    if not noise.is_independent:
        yield log.note(NOT_RESTORED, subject="result")
        return False
    restoring = restore_detail_in_place(source, denoised, noise)
    yield from log.run_stage("detail restoration", restoring, fraction=1.0)
    return True


def _put_back_padding(volume: Volume, denoised: Any, log: Log) -> Job:
    """Leave what is filled in around the scan as it was; returns its value, None without it."""
    # here, and not before: the training of a cluster has no use for it
    with log.timer.stage("diagnosis"):
        padding = find_fill_value(volume)
    if padding is not None:
        putting_back = restore_fill_value(volume, denoised, padding)
        yield from log.run_stage("padding", putting_back, fraction=1.0)
        yield log.note(PADDED.format(padding), warning=False, subject="result")
    return padding


def _examine(
    task: Task, source: PlaneReader, denoised: Any, noise: NoiseDiagnosis, learnt: Learnt, log: Log
) -> Job:
    """Look at what was removed and at what is left, and say so where it is not noise.

    Returns: `Residual`.
    """
    measuring = residual_moments(source, denoised)
    moments = yield from log.run_stage("examination", measuring, fraction=1.0)
    with log.timer.stage("examination"):
        residual: Residual = examine_residual(source, denoised, noise, task.settings.seed, moments)
    if learnt.model.network.input_share <= MOST_OF_IT:
        for message in residual.problems:
            yield log.note(f"{message}{advice_after(task, learnt)}", subject="result")
    return residual
