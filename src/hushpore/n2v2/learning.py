"""Training by itself: on a volume that is predicted elsewhere, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.events import Job, Progress
from hushpore.n2v2.job import Work

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.device.backend import Backend
    from hushpore.n2v2.noise.diagnosis import NoiseDiagnosis
    from hushpore.n2v2.settings import DenoiseSettings
    from hushpore.n2v2.source import Scale
    from hushpore.n2v2.trained import Model


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a training came to.

    Attributes
    ----------
    model : Model
        On the CPU.
    noise : NoiseDiagnosis
        What the noise is like.
    curves : dict of str to list
        Step and value of ``"loss"`` and ``"validation"``.
    steps : int
        How many there were.
    seconds : float
        How long they took.
    taken : dict or None
        The course of a training that time has ended.
    notes : tuple of str
        What was said.
    device : str
        Where it ran, in words.
    """

    model: Model
    noise: NoiseDiagnosis
    curves: dict[str, list[tuple[int, float]]]
    steps: int
    seconds: float
    taken: dict[str, Any] | None
    notes: tuple[str, ...]
    device: str


def learn(volume: Volume, settings: DenoiseSettings, backend: Backend, scale: Scale) -> Job:
    """Train on a volume whose grey scale is known, as `hushpore.n2v2.job.denoise` does.

    With a model in the settings nothing is trained; the noise alone is looked at.

    Parameters
    ----------
    volume : Volume
        Its values may lie on disk: what does not fit into memory is read in blocks from all over.
    settings, backend
        As for any job.
    scale : Scale
        As `hushpore.n2v2.source.measure_scale` would find it.

    Yields
    ------
    Progress, Timing, Metric ("loss", "validation"), Preview ("denoised"), Batch, Note

    Returns
    -------
    Learnt
        Also after `StopEarly`: what the network has learnt by then.

    Raises
    ------
    InputError, OutputError, MemoryLimitError
        As for `hushpore.n2v2.job.denoise`.
    """
    work = Work(volume, settings, backend, scale)
    yield Progress("preparing", 0, 1, "", 0.0)
    try:
        yield from work.diagnose()
        if work.trained is None:
            yield from work.upload()
            yield from work.train()
        else:
            work.model = work.trained
        yield work.timer.timing()
    finally:
        work.backend.release()
    work.model.network.cpu()
    return Learnt(
        work.model, work.noise, work.curves, work.steps, work.spent, work.taken,
        tuple(work.notes), work.backend.in_words,
    )  # fmt: skip
