import numpy as np
import pytest

from hushpore import Volume
from hushpore.base.formatting import readable_duration
from hushpore.denoising.settings import STEPS, DenoiseSettings


def test_the_share_of_masked_pixels_is_said_in_pixels():
    said = DenoiseSettings().hints({})["masked_share"]
    assert said.startswith("Masks 324 of the 4,096 pixels of a patch (8 %);")
    said = DenoiseSettings(dimensions=3, patch_size=32).hints({})["masked_share"]
    assert "of the 16,384 pixels" in said
    assert "learns from few" in DenoiseSettings(masked_share="paper").hints({})["masked_share"]


def test_nothing_is_said_of_it_where_other_pixels_are_hidden_too_or_none():
    assert not DenoiseSettings(correlated_along="x").hints({})
    assert not DenoiseSettings(model="foam.safetensors").hints({})


def test_settings_without_effect_say_what_they_are_for():
    assert set(DenoiseSettings().unused({})) == {"correlated_reach", "patch_depth"}
    reasons = DenoiseSettings(dimensions=3, correlated_along="z").unused({})
    assert set(reasons) == {"test_time_augmentation"}
    reasons = DenoiseSettings(model="foam.safetensors").unused({})
    assert "a trained model is applied" in reasons["steps"]
    assert "test_time_augmentation" not in reasons


def test_how_long_it_will_take_is_said_by_what_the_last_run_took() -> None:
    volume = Volume(np.zeros((10, 100, 100), np.uint8))
    known = {"volume": volume, "pace": {"step": 0.1, "voxel": 1.25e-5, "rest": 5.0}}
    # the most steps, 100,000 voxels in 8 orientations, and the rest
    most = readable_duration(0.1 * STEPS + 15)
    assert f"About {most} in all at most" in DenoiseSettings().hints(known)["steps"]
    assert "About 25 s" in DenoiseSettings(steps=100).hints(known)["steps"]
    assert "About 45 s" in DenoiseSettings(time_budget=30).hints(known)["time_budget"]
    # what ends first
    assert "About 25 s" in DenoiseSettings(steps=100, time_budget=30).hints(known)["steps"]
    assert "About 15 s" in DenoiseSettings(model="foam.safetensors").hints(known)["model"]
    once = DenoiseSettings(steps=100, test_time_augmentation=False)
    assert "About 16 s" in once.hints(known)["steps"]
    assert "steps" not in DenoiseSettings(repeat="result.json").hints(known)
    assert "steps" not in DenoiseSettings().hints({"volume": volume, "pace": {}})


@pytest.mark.parametrize(("asked", "small", "large"), [(None, 8, 1), (True, 8, 8), (False, 1, 1)])
def test_a_small_volume_is_averaged_over_orientations_unless_refused(asked, small, large) -> None:
    settings = DenoiseSettings(test_time_augmentation=asked)
    assert settings.orientations((200, 200, 200)) == small
    assert settings.orientations((200, 200, 201)) == large
    # stripes of a turned copy would run along another axis
    striped = DenoiseSettings(test_time_augmentation=asked, correlated_along="x")
    assert striped.orientations((200, 200, 200)) == 1


def test_runs_whose_steps_take_as_long_are_of_one_kind() -> None:
    assert DenoiseSettings(steps=7, seed=3, leave_out="a").pace_kind == DenoiseSettings().pace_kind
    for other in ({"dimensions": 3}, {"method": "n2v2"}, {"pair": "b"}, {"patch_size": 32}):
        assert DenoiseSettings(**other).pace_kind != DenoiseSettings().pace_kind
