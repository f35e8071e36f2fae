import pytest

from hushpore.n2v2.settings import DenoiseSettings


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
    assert not DenoiseSettings(dimensions=3, correlated_along="z").unused({})
    reasons = DenoiseSettings(model="foam.safetensors").unused({})
    assert "a trained model is applied" in reasons["steps"]
    assert "test_time_augmentation" not in reasons


@pytest.mark.parametrize(
    ("before", "now"), [("detail", "restore_detail"), ("symmetries", "test_time_augmentation")]
)
def test_settings_are_known_by_their_names_of_before(before, now):
    with pytest.warns(DeprecationWarning, match=now):
        settings = DenoiseSettings.of({before: True})
    assert getattr(settings, now)
