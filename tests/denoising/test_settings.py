from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore import Volume
from hushpore.base.formatting import readable_duration
from hushpore.denoising.settings import STEPS, DenoiseSettings, expected_time, store_timings


def test_the_masked_fraction_is_given_in_pixels():
    said = DenoiseSettings().hints({})["masked_share"]
    assert said.startswith("Masks 324 of the 4,096 pixels of a patch (8 %).")
    said = DenoiseSettings(dimensions=3, patch_size=32).hints({})["masked_share"]
    assert "of the 16,384 pixels" in said
    said = DenoiseSettings(masked_share="paper").hints({})["masked_share"]
    assert said.endswith("Training takes longer with so few.")


def test_the_masked_fraction_has_no_hint_with_line_noise_or_without_masking():
    assert not DenoiseSettings(correlated_along="x").hints({})
    assert not DenoiseSettings(model="foam.safetensors").hints({})


def test_settings_without_effect_give_the_reason():
    assert set(DenoiseSettings().unused({})) == {"correlated_reach", "patch_depth"}
    reasons = DenoiseSettings(dimensions=3, correlated_along="z").unused({})
    assert set(reasons) == {"test_time_augmentation"}
    reasons = DenoiseSettings(model="foam.safetensors").unused({})
    assert reasons["steps"] == "Not used with a trained model: nothing is trained."
    assert "test_time_augmentation" not in reasons


def test_the_run_time_is_estimated_from_the_last_run() -> None:
    volume = Volume(np.zeros((10, 100, 100), np.uint8))
    known = {"volume": volume, "timings": {"step": 0.1, "voxel": 1.25e-5, "rest": 5.0}}
    # the maximum number of steps, 100,000 voxels in 8 orientations, and the rest
    most = readable_duration(0.1 * STEPS + 15)
    hint = f"Up to {most} (at the last run's speed)."
    assert DenoiseSettings().hints(known)["steps"] == hint
    assert "About 25 s" in DenoiseSettings(steps=100).hints(known)["steps"]
    assert "About 45 s" in DenoiseSettings(time_budget=30).hints(known)["time_budget"]
    # the limit that is reached first
    assert "About 25 s" in DenoiseSettings(steps=100, time_budget=30).hints(known)["steps"]
    assert "About 15 s" in DenoiseSettings(model="foam.safetensors").hints(known)["model"]
    once = DenoiseSettings(steps=100, test_time_augmentation=False)
    assert "About 16 s" in once.hints(known)["steps"]
    assert "steps" not in DenoiseSettings(repeat="result.json").hints(known)
    assert "steps" not in DenoiseSettings().hints({"volume": volume, "timings": {}})


@pytest.mark.parametrize(("asked", "small", "large"), [(None, 8, 1), (True, 8, 8), (False, 1, 1)])
def test_small_volumes_are_augmented_by_default(asked, small, large) -> None:
    settings = DenoiseSettings(test_time_augmentation=asked)
    assert settings.orientations((200, 200, 200)) == small
    assert settings.orientations((200, 200, 201)) == large
    # lines of a rotated copy would run along another axis
    striped = DenoiseSettings(test_time_augmentation=asked, correlated_along="x")
    assert striped.orientations((200, 200, 200)) == 1


def test_only_settings_that_change_the_speed_are_in_the_timing_key() -> None:
    default = DenoiseSettings().timing_key
    assert DenoiseSettings(steps=7, seed=3, leave_out="a").timing_key == default
    for other in ({"dimensions": 3}, {"method": "n2v2"}, {"pair": "b"}, {"patch_size": 32}):
        assert DenoiseSettings(**other).timing_key != default


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
