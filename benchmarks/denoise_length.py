"""How long to train: where a training ends by itself, beside trainings of several lengths.

Pieces of scans of the simulator (see `_scans`). One training is run with its learning rate held;
at several steps, and at that at which its curve ends it, the rate is brought down as it would be at
the end of a training, the result predicted, and the training taken up again where it was. Counted
in steps, figures do not depend on what else the machine does. The rule was chosen by scans of the
half for tuning; the other half shows what it is worth.

    OMP_NUM_THREADS=1 python -m benchmarks denoise_length
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hushpore
from benchmarks._scans import Scan, cases, made
from benchmarks.denoise_correlated import psnr
from hushpore.n2v2.settings import STEPS
from hushpore.n2v2.training import run
from hushpore.n2v2.training.loop import LOG_INTERVAL, TrainingLoop
from hushpore.n2v2.training.plateau import find_plateau
from hushpore.n2v2.training.schedule import COOL_DOWN, learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hushpore import Volume
    from hushpore.base.events import Job
    from hushpore.n2v2.trained import Model
    from hushpore.n2v2.training.checkpoint import Checkpoint, TrainingState

#: Steps of the trainings that it is compared with.
LENGTHS = (300, 600, 1000, STEPS)

#: Structure and noise of the scans of each half.
SCANS = {
    "held out": {"foam": 0.3, "rock": 0.08, "small pores": 0.2, "fibres": 0.02},
    "tuning": {"foam": 0.4, "rock": 0.02},
}

#: Shape of the piece in the middle of each scan, at most.
PIECE = (24, 128, 128)


def measure(
    only: str | None = None, kept: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """PSNR by length, and where the training ends by itself, for each scan.

    `only`: part of the names of the scans that are denoised, beside what there is in `kept`.
    """
    torch.set_num_threads(1)
    figures = dict(kept or {})
    for half, noises in SCANS.items():
        for case in cases(half):
            if noises.get(case.structure) == case.noise and (only or "") in case.name:
                figures[case.name] = _lengths(_piece_of(made(case)))
                yield figures


def _piece_of(whole: Scan) -> Scan:
    shape = whole.scan.shape
    first = [max(0, (n - wanted) // 2) for n, wanted in zip(shape, PIECE, strict=True)]
    piece = tuple(slice(f, f + wanted) for f, wanted in zip(first, PIECE, strict=True))
    scan, reference = (np.ascontiguousarray(each[piece]) for each in (whole.scan, whole.reference))
    return Scan(scan, reference, whole.core[piece[1:]])


def _lengths(scan: Scan) -> dict[str, Any]:
    volume = hushpore.Volume(scan.scan, axes="zyx")
    found: dict[str, Any] = {"noisy": round(psnr(scan.scan, scan), 2)}

    class Branching(TrainingLoop):
        def run(self, state: TrainingState, checkpoint: Checkpoint | None = None) -> Job:
            found.update(_branched(self, state, lambda model: _psnr(model, volume, scan)))
            yield self.timer.timing()

    run.TrainingLoop = Branching  # type: ignore[misc]
    try:
        hushpore.denoise(volume, seed=0, device="cpu")
    finally:
        run.TrainingLoop = TrainingLoop  # type: ignore[misc]
    return found


def _psnr(model: Model, volume: Volume, scan: Scan) -> float:
    return psnr(np.asarray(model.predict(volume).data), scan)


def _branched(
    loop: TrainingLoop, state: TrainingState, psnr_of: Callable[[Model], float]
) -> dict[str, Any]:
    """Train once, and come to the end of the training from several steps."""
    held = {round((1 - COOL_DOWN) * length): length for length in LENGTHS}
    curve: list[tuple[int, float]] = []
    lengths: dict[int, float] = {}
    end, at_end = None, math.nan
    for step in range(max(held)):
        _step(loop, state, step, loop.schedule.fraction_done(step, 0.0))
        done = step + 1
        if done % LOG_INTERVAL == 0:
            loss = state.learner.validate(loop.images(step), loop._fixed_batches())
            curve.append((done, float(loss)))
        is_end = end is None and find_plateau(curve, loop.noise) == done
        if done in held or is_end:
            found = round(_cooled(loop, state, done, psnr_of), 2)
        if is_end:
            end, at_end = math.ceil(done / (1 - COOL_DOWN)), found
        if done in held:
            lengths[held[done]] = found
    if end is None:
        end, at_end = max(lengths), lengths[max(lengths)]
    worst = max(*lengths.values(), at_end) - at_end
    return {
        "dB by steps": lengths, "ends after": end, "dB": at_end, "below the best": round(worst, 2),
        "validation": [round(loss, 6) for _, loss in curve[1::2]], "noise": loop.noise,
    }  # fmt: skip


def _cooled(
    loop: TrainingLoop, state: TrainingState, step: int, psnr_of: Callable[[Model], float]
) -> float:
    """Bring the learning rate down from a step on, and leave the training as it was."""
    tensors = {name: value.clone() for name, value in state.tensors().items()}
    average = copy.deepcopy(state.learner.average.state_dict())
    last = math.ceil(step / (1 - COOL_DOWN))
    for each in range(step, last):
        _step(loop, state, each, 1 - COOL_DOWN * (1 - (each - step) / (last - step)))
    if loop.batch_sampler.pair_maker is not None:
        state.learner.fit_mean_and_shares(loop.images(last), loop._fixed_batches())
    found = psnr_of(loop.to_model(copy.deepcopy(state.learner.average)))
    state.load(tensors, average)
    return found


def _step(loop: TrainingLoop, state: TrainingState, step: int, fraction: float) -> None:
    rate = learning_rate(fraction, loop.settings.learning_rate)
    state.learner.step(loop.images(step), loop.batch_sampler, rate, step)
