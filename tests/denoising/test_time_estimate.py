from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore import Volume
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.time_estimate import expected_time, store_timings


def record_of(steps: int) -> dict[str, Any]:
    """Return the part of a run's record on its time: 0.1 s a step, 1 ms a voxel."""
    return {
        "settings": {},
        "input": {"shape": (10, 10, 10)},
        "result": {"steps": steps, "training_seconds": 0.1 * steps},
        "timings": {"denoising": 1.0, "diagnosis": 4.0},
    }


@pytest.fixture
def volume() -> Volume:
    return Volume(np.zeros((10, 20, 25), np.uint8))


def test_the_last_run_gives_the_time_of_the_next(volume: Volume) -> None:
    settings = DenoiseSettings(steps=100)
    assert expected_time(settings, volume, "cpu") == ""
    store_timings(settings, "cpu", record_of(steps=50))
    # 10 s of training, 5 of voxels and 4 of the rest
    assert expected_time(settings, volume, "cpu") == "About 19 s (at the last run's speed)."
    assert expected_time(DenoiseSettings(), volume, "cpu").startswith("Up to ")
    assert expected_time(DenoiseSettings(time_budget=30), volume, "cpu").startswith("About ")
    assert expected_time(DenoiseSettings(dimensions=3), volume, "cpu") == ""
    assert expected_time(settings, volume, "cuda") == ""


def test_a_run_of_a_few_steps_is_not_stored(volume: Volume) -> None:
    settings = DenoiseSettings()
    store_timings(settings, "cpu", record_of(steps=3))
    assert expected_time(settings, volume, "cpu") == ""
