from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore import Volume
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.time_estimate import expected_time, keep_pace


def record_of(steps: int) -> dict[str, Any]:
    """Return what the record of a run has of its time: 0.1 s a step, 1 ms a voxel."""
    return {
        "settings": {},
        "input": {"shape": (10, 10, 10)},
        "result": {"steps": steps, "training_seconds": 0.1 * steps},
        "timings": {"denoising": 1.0, "diagnosis": 4.0},
    }


@pytest.fixture
def volume() -> Volume:
    return Volume(np.zeros((10, 20, 25), np.uint8))


def test_what_a_run_took_tells_how_long_the_next_of_its_kind_takes(volume: Volume) -> None:
    settings = DenoiseSettings(steps=100)
    assert expected_time(settings, volume, "cpu") == ""
    keep_pace(settings, "cpu", record_of(steps=50))
    # 10 s of training, 5 of voxels and 4 of the rest
    assert expected_time(settings, volume, "cpu").startswith("About 19 s in all,")
    longest = expected_time(DenoiseSettings(), volume, "cpu")
    assert "at most" in longest
    assert "at most" not in expected_time(DenoiseSettings(time_budget=30), volume, "cpu")
    assert expected_time(DenoiseSettings(dimensions=3), volume, "cpu") == ""
    assert expected_time(settings, volume, "cuda") == ""


def test_a_run_of_a_few_steps_tells_nothing(volume: Volume) -> None:
    settings = DenoiseSettings()
    keep_pace(settings, "cpu", record_of(steps=3))
    assert expected_time(settings, volume, "cpu") == ""
