"""The state of a training in a file, from which an interrupted run is resumed.

A checkpoint is a model file with additional contents: besides the averaged weights, those of the
network, the moments of the optimiser, the state of the random numbers, and a key of the training.
It contains no code.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hushpore.base.errors import InputError
from hushpore.denoising.trained_model import (
    HEADER,
    TRAINING,
    Model,
    check_file_target,
    read_tensors,
    write_tensors,
)
from hushpore.denoising.training.schedule import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from hushpore.denoising.training.step import Learner

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
