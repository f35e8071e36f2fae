"""What a training would make the host wait for on a GPU, counted without one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import hushpore
from hushpore import Volume
from hushpore.base.events import Metric, Progress
from hushpore.n2v2.training.loop import LOG_INTERVAL

pytestmark = pytest.mark.usefixtures("small_network")

PACKAGE = Path(hushpore.__file__).parent

#: Operations whose result has a size, or is a value, that the host must know.
WAITING = {
    "_local_scalar_dense", "nonzero", "nonzero_numpy", "equal", "is_nonzero", "masked_select",
    "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "histc", "allclose",
}  # fmt: skip

#: Methods of tensors that bring values to the host.
READING = {
    getattr(torch.Tensor, name)
    for name in ("numpy", "tolist", "cpu", "item", "__array__", "__repr__", "__format__")
}


class Waits(TorchDispatchMode):
    """Counts, by the module of hushpore that asks for them, operations that a host waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.name().removeprefix("aten::").partition(".")[0]
        if name in WAITING or (name in ("index", "index_put", "index_put_") and _masks(args[1])):
            self.count()
        return function(*args, **(kwargs or {}))

    def count(self) -> None:
        frame = sys._getframe(1)
        while frame is not None and PACKAGE not in Path(frame.f_code.co_filename).parents:
            frame = frame.f_back  # type: ignore[assignment]
        self.of[Path(frame.f_code.co_filename).stem if frame is not None else "test"] += 1


class Reads(TorchFunctionMode):
    """Counts reading of tensors, too."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in READING:
            self.waits.count()
        return function(*args, **(kwargs or {}))


def _masks(indices: Any) -> bool:
    return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices)


@pytest.mark.parametrize("what", ["value", "mask", "number", "array"])
def test_what_a_host_waits_for_is_counted(what: str) -> None:
    values = torch.arange(6.0)
    waits = Waits()
    with waits, Reads(waits):
        {
            "value": lambda: values.sum().item(),
            "mask": lambda: values[values > 2],
            "number": lambda: torch.nonzero(values),
            "array": values.numpy,
        }[what]()
        values.clone().add_(1).sort()
    assert waits.of.total() >= 1


def test_in_an_epoch_of_training_the_host_waits_for_its_losses_alone() -> None:
    scan = Volume(np.random.default_rng(0).normal(size=(3, 40, 40)).astype(np.float32))
    how = {"steps": 3 * LOG_INTERVAL, "batch_size": 2, "patch_size": 16, "precision": "float32"}
    job, waits = hushpore.start("denoise", scan, how, "cpu"), Waits()
    losses = 0
    for event in job:
        if isinstance(event, Progress) and event.stage == "training":
            break
    with waits, Reads(waits):
        for event in job:
            if isinstance(event, Progress) and event.stage != "training":
                break
            losses += isinstance(event, Metric) and event.name == "loss"
    job.close()
    assert losses == 3
    # what is read was copied before, behind an event: losses, and what is told of batches
    told = waits.of.pop("readback")
    assert not waits.of
    assert told >= losses
