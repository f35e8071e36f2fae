"""What a training would make the host wait for on a GPU, counted without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hushpore
from hushpore import Volume
from hushpore.base.events import Metric, Progress
from hushpore.denoising.training import loop

pytestmark = pytest.mark.usefixtures("small_network")

PACKAGE = Path(hushpore.__file__).parent


@pytest.mark.parametrize("what", ["value", "mask", "number", "array"])
def test_what_a_host_waits_for_is_counted(what: str, strict: Any) -> None:
    values = torch.arange(6.0)
    waits = strict.Waits(PACKAGE)
    with waits, waits.reads:
        {
            "value": lambda: values.sum().item(),
            "mask": lambda: values[values > 2],
            "number": lambda: torch.nonzero(values),
            "array": values.numpy,
        }[what]()
        values.clone().add_(1).sort()
    assert waits.of.total() >= 1


def test_in_an_epoch_of_training_the_host_waits_for_its_losses_alone(
    strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOG_INTERVAL", 5)
    scan = Volume(np.random.default_rng(0).normal(size=(3, 40, 40)).astype(np.float32))
    how = {"steps": 3 * 5, "batch_size": 2, "patch_size": 16, "precision": "float32"}
    job, waits = hushpore.start("denoise", scan, how, "cpu"), strict.Waits(PACKAGE)
    losses = 0
    for event in job:
        if isinstance(event, Progress) and event.stage == "training":
            break
    with waits, waits.reads:
        for event in job:
            if isinstance(event, Progress) and event.stage != "training":
                break
            losses += isinstance(event, Metric) and event.name == "loss"
    job.close()
    assert losses == 3
    # what is read was copied before, behind an event: losses, and what is told of batches
    told = waits.of.pop("Readback")
    assert not waits.of
    assert told >= losses
