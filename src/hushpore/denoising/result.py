"""The result of a denoising job."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.display import Displayed
from hushpore.base.events import Note, ResultFiles, by_importance
from hushpore.base.formatting import readable_count, readable_number, readable_percent
from hushpore.denoising.trained_model import record_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from hushpore.base.arrays import Float32s
    from hushpore.base.volume import Volume
    from hushpore.denoising.noise import Residual
    from hushpore.denoising.trained_model import Model
    from hushpore.scan.noise_model import NoiseDiagnosis


#: Share of the original scan in a result from which the result equals the scan, to rounding.
ALL_OF_IT = 1 - 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Denoised(Displayed):
    """Result of the denoising job.

    Attributes
    ----------
    volume : Volume
        The denoised volume: float32, in the geometry of the input. If it does not fit into memory,
        its values are in a temporary file, which is deleted with the last reference.
    model : Model
        The trained model, for use on other volumes.
    losses, validation : numpy.ndarray
        float32, shape (n, 2): step and mean training loss since the previous point; step and
        validation loss of the averaged network, always on the same patches.
    timings : dict of str to float
        Seconds per stage.
    provenance : dict
        Record of the job: settings, input, versions, notes.

    Examples
    --------
    >>> import numpy as np, hushpore
    >>> scan = np.random.default_rng(0).normal(100, 20, (2, 32, 32))
    >>> result = hushpore.denoise(scan, steps=2, patch_size=16, batch_size=2, device="cpu")
    >>> result.volume.shape, result.provenance["result"]["steps"]
    ((2, 32, 32), 2)
    """

    volume: Volume
    model: Model
    losses: Float32s
    validation: Float32s
    timings: dict[str, float]
    provenance: dict[str, Any]

    @property
    def headline(self) -> str:
        """Noise removed, match of the residual with the noise, and the training or the model."""
        result = self.provenance["result"]
        unit = self.volume.metadata.get("value_unit", "")
        noise = f"{readable_number(result['noise_removed'])} {unit}".strip()
        removed = f"Denoised · noise removed: SD {noise}"
        if result.get("input_share", 0.0) > ALL_OF_IT:
            removed = "Denoised · no noise removed"
        elif match := self.provenance["residual"].get("match"):
            removed += f" · residual matches noise: {readable_percent(match['share'])}"
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
        """Notes on the input and on the denoising."""
        return tuple(self.provenance["notes"])

    def files(self) -> ResultFiles:
        """Return the files of the result."""
        return ResultFiles({"denoised": self.volume})


@dataclass(frozen=True, eq=False)
class TrainingOutcome:
    """The outcome of a training, or a trained model that is only applied."""

    model: Model  # on the CPU once the job has ended
    # step and value of ``"loss"`` and ``"validation"``
    curves: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    steps: int = 0  # number of training steps
    seconds: float = 0.0  # duration of the training
    schedule: dict[str, Any] | None = None  # `Schedule.record`
    ended: str = ""  # reason for the end of the training
    # the network beside filters, `hushpore.denoising.noise.FilterComparison`; None if not compared
    compared: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class NoiseRecord:
    """The noise of the scan before the training, for the record."""

    diagnosis: NoiseDiagnosis
    model: dict[str, Any] | None = None  # `NoiseModel.to_dict` of the added noise
    sample_share: float | None = None  # of the scan, if its exterior was set apart
    pair: dict[str, Any] | None = None  # comparison of two scans, if a second scan was given


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The result of `hushpore.denoising.job.train`."""

    outcome: TrainingOutcome
    noise: NoiseRecord
    notes: tuple[Note, ...]
    device: str  # description of the device


def make_result(
    volume: Volume,
    outcome: TrainingOutcome,
    noise: NoiseRecord,
    provenance: dict[str, Any],
    *,
    residual: Residual,
    precision: torch.dtype,
    rings: list[dict[str, Any]] | None = None,
    padding: float | None = None,
) -> Denoised:
    """Assemble a result, and complete its record.

    `volume`: the denoised volume. `provenance`: that of
    `hushpore.base.provenance.make_provenance`; extended in place. `residual`: the examination of
    the removed noise. `precision`: number format of the network. `rings`: facts of the ring
    correction of each scan, if any. `padding`: fill value of the scan, if any.
    """
    model, found = outcome.model, noise.diagnosis
    losses, validation = (
        np.array(outcome.curves.get(name, []), np.float32).reshape(-1, 2)
        for name in ("loss", "validation")
    )
    provenance["noise"] = {**dataclasses.asdict(found), "summary": found.summary}
    optional = {
        "noise_model": noise.model, "pair": noise.pair, "rings": rings, "padding_value": padding,
        "training": outcome.schedule, "sample_share": noise.sample_share,
        "compared": outcome.compared,
    }  # fmt: skip
    provenance |= {name: each for name, each in optional.items() if each is not None}
    record_model(provenance, model)
    provenance["residual"] = dataclasses.asdict(residual)
    provenance["network"] = dataclasses.asdict(model.network.architecture)
    provenance["result"] = {
        "steps": outcome.steps,
        "input_share": model.network.input_share,  # share of the original scan in the result
        "training_seconds": outcome.seconds,
        "ended": outcome.ended,
        "final_loss": float(losses[-1, 1]) if len(losses) else None,
        "noise_removed": residual.deviation,
        "precision": str(precision).removeprefix("torch."),
    }
    return Denoised(volume, model, losses, validation, provenance["timings"], provenance)
