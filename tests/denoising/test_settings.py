import numpy as np
import pytest

from hushpore import Volume
from hushpore.base.formatting import readable_duration
from hushpore.denoising.settings import STEPS, DenoiseSettings


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
