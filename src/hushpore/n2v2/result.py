"""What the denoising job returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.readable import readable_count, readable_number
from hushpore.base.result import ResultFiles
from hushpore.n2v2.trained import record_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import torch

    from hushpore.base.volume import Volume
    from hushpore.n2v2.noise.diagnosis import NoiseDiagnosis
    from hushpore.n2v2.noise.residual import Residual
    from hushpore.n2v2.trained import Model


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
    def summary(self) -> str:
        """The result in one sentence."""
        result = self.provenance["result"]
        unit = self.volume.metadata.get("value_unit", "")
        noise = f"{readable_number(result['noise_removed'])} {unit}".strip()
        removed = f"Denoised: {noise} of noise removed (standard deviation)"
        if result.get("input_share", 0.0) > ALL_OF_IT:
            removed = "Denoised: nothing removed"
        if not result["steps"]:
            return f"{removed}, with the model {Path(self.provenance['settings']['model']).name}"
        seconds = f"{result['training_seconds']:,.0f} s"
        why = f" ({ended})" if (ended := result.get("ended")) else ""
        steps = readable_count(result["steps"], "training step")
        return f"{removed}, {steps} in {seconds}{why}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of the input, and while it was denoised."""
        return tuple(self.provenance["notes"])

    def files(self) -> ResultFiles:
        """Return what is written of it."""
        return ResultFiles({"denoised": self.volume})


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What a training came to."""

    model: Model  # on the CPU
    noise: NoiseDiagnosis  # what the noise is like
    curves: dict[str, list[tuple[int, float]]]  # step and value of ``"loss"`` and ``"validation"``
    steps: int  # how many there were
    seconds: float  # how long they took
    schedule: dict[str, Any] | None  # the schedule of a training that time has ended
    notes: tuple[str, ...]  # what was said
    device: str  # where it ran, in words
    # `NoiseModel.to_dict` of the noise, where it is known
    noise_model: dict[str, Any] | None = None
    pair: dict[str, Any] | None = None  # how two scans compare, where two were given
    ended: str = ""  # what has ended it, in words


def make_result(
    volume: Volume,
    model: Model,
    curves: Mapping[str, list[tuple[int, float]]],
    provenance: dict[str, Any],
    *,
    noise: NoiseDiagnosis,
    residual: Residual,
    steps: int,
    seconds: float,
    precision: torch.dtype,
    schedule: dict[str, Any] | None,
    noise_model: dict[str, Any] | None = None,
    pair: dict[str, Any] | None = None,
    rings: list[dict[str, Any]] | None = None,
    padding: float | None = None,
    ended: str = "",
) -> Denoised:
    """Put a result together, and complete its record.

    `volume`: the denoised one. `curves`, `steps`, `seconds`, `schedule`: as in `TrainingResult`.
    `provenance`: as `hushpore.base.provenance.make_provenance` returns it; added to. `noise`,
    `residual`: what was found before and after. `precision`: arithmetic of the network.
    `noise_model`, `pair`, `ended`: as in `TrainingResult`. `rings`: what was taken out of each scan
    before, where that was asked for. `padding`: the value that the scan is filled in with, if any.
    """
    losses, validation = (
        np.array(curves.get(name, []), np.float32).reshape(-1, 2) for name in ("loss", "validation")
    )
    provenance["noise"] = {**dataclasses.asdict(noise), "summary": noise.summary}
    if noise_model is not None:
        provenance["noise_model"] = noise_model
    if pair is not None:
        provenance["pair"] = pair
    if rings is not None:
        provenance["rings"] = rings
    if padding is not None:
        provenance["padding_value"] = padding
    record_model(provenance, model)
    provenance["residual"] = dataclasses.asdict(residual)
    provenance["network"] = dataclasses.asdict(model.network.architecture)
    provenance["result"] = {
        "steps": steps,
        "input_share": model.network.input_share,  # of the scan itself in the result
        "training_seconds": seconds,
        "ended": ended,
        "final_loss": float(losses[-1, 1]) if len(losses) else None,
        "noise_removed": residual.deviation,
        "precision": str(precision).removeprefix("torch."),
    }
    if schedule is not None:
        provenance["training"] = schedule
    return Denoised(volume, model, losses, validation, provenance["timings"], provenance)
