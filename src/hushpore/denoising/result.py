"""What the denoising job returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Note, ResultFiles, by_importance
from hushpore.base.formatting import readable_count, readable_number
from hushpore.denoising.trained_model import record_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import torch

    from hushpore.base.volume import Volume
    from hushpore.denoising.noise.diagnosis import NoiseDiagnosis
    from hushpore.denoising.noise.residual import Residual
    from hushpore.denoising.trained_model import Model


#: Share of the scan itself in a result from which on it is the scan, to rounding.
ALL_OF_IT = 1 - 1e-6


@dataclass(frozen=True, eq=False)
class Denoised:
    """Result of the denoising job.

    Attributes
    ----------
    volume : Volume
        The denoised volume: float32, in the geometry of the input. Where it does not fit into
        memory, its values lie in a temporary file, which goes when they are no longer used.
    model : Model
        What was trained, to be used on other volumes.
    losses, validation : numpy.ndarray
        float32, shape (n, 2): step, and mean loss of the steps up to it; and step, and loss of the
        averaged network on the same patches each time, to look at and not to choose by.
    timings : dict of str to float
        Seconds by stage.
    provenance : dict
        The record of the job.
    """

    volume: Volume
    model: Model
    losses: npt.NDArray[np.float32]
    validation: npt.NDArray[np.float32]
    timings: dict[str, float]
    provenance: dict[str, Any]

    @property
    def headline(self) -> str:
        """Noise removed (standard deviation), and the training or the model."""
        result = self.provenance["result"]
        unit = self.volume.metadata.get("value_unit", "")
        noise = f"{readable_number(result['noise_removed'])} {unit}".strip()
        removed = f"Denoised · noise removed: SD {noise}"
        if result.get("input_share", 0.0) > ALL_OF_IT:
            removed = "Denoised · no noise removed"
        if not result["steps"]:
            return f"{removed} · model {Path(self.provenance['settings']['model']).name}"
        seconds = f"{result['training_seconds']:,.0f} s"
        why = f" ({ended})" if (ended := result.get("ended")) else ""
        steps = readable_count(result["steps"], "training step")
        return f"{removed} · {steps} in {seconds}{why}"

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Notes on the scan, the result and the run, the most important first."""
        return by_importance(map(Note.of_dict, self.provenance["remarks"]))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of the input, and while it was denoised."""
        return tuple(self.provenance["notes"])

    def files(self) -> ResultFiles:
        """Return what is written of it."""
        return ResultFiles({"denoised": self.volume})


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a training came to; or a model, where that is applied and nothing is trained."""

    model: Model  # on the CPU, once the job is done
    # step and value of ``"loss"`` and ``"validation"``
    curves: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    steps: int = 0  # how many there were
    seconds: float = 0.0  # how long they took
    schedule: dict[str, Any] | None = None  # the schedule of a training that time has ended
    ended: str = ""  # what has ended it, in words


@dataclass(frozen=True, eq=False)
class NoiseFound:
    """What was found of the noise before a training, for its record."""

    diagnosis: NoiseDiagnosis  # what it is like
    model: dict[str, Any] | None = None  # `NoiseModel.to_dict` of what was drawn
    pair: dict[str, Any] | None = None  # how two scans compare, where two were given


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What `hushpore.denoising.job.train` returns."""

    learnt: Learnt
    noise: NoiseFound
    notes: tuple[Note, ...]
    device: str  # where it ran, in words


def make_result(
    volume: Volume,
    learnt: Learnt,
    noise: NoiseFound,
    provenance: dict[str, Any],
    *,
    residual: Residual,
    precision: torch.dtype,
    rings: list[dict[str, Any]] | None = None,
    padding: float | None = None,
) -> Denoised:
    """Put a result together, and complete its record.

    `volume`: the denoised one. `provenance`: as `hushpore.base.provenance.make_provenance` returns
    it; added to. `residual`: what was found after. `precision`: arithmetic of the network. `rings`:
    what was taken out of each scan before, where that was asked for. `padding`: the value that the
    scan is filled in with, if any.
    """
    model, found = learnt.model, noise.diagnosis
    losses, validation = (
        np.array(learnt.curves.get(name, []), np.float32).reshape(-1, 2)
        for name in ("loss", "validation")
    )
    provenance["noise"] = {**dataclasses.asdict(found), "summary": found.summary}
    optional = {
        "noise_model": noise.model, "pair": noise.pair, "rings": rings, "padding_value": padding,
        "training": learnt.schedule,
    }  # fmt: skip
    provenance |= {name: each for name, each in optional.items() if each is not None}
    record_model(provenance, model)
    provenance["residual"] = dataclasses.asdict(residual)
    provenance["network"] = dataclasses.asdict(model.network.architecture)
    provenance["result"] = {
        "steps": learnt.steps,
        "input_share": model.network.input_share,  # of the scan itself in the result
        "training_seconds": learnt.seconds,
        "ended": learnt.ended,
        "final_loss": float(losses[-1, 1]) if len(losses) else None,
        "noise_removed": residual.deviation,
        "precision": str(precision).removeprefix("torch."),
    }
    return Denoised(volume, model, losses, validation, provenance["timings"], provenance)
