import pytest
import torch

from hushpore.base.errors import InputError
from hushpore.denoising.pairs import draw_positions
from hushpore.patches.settings import PatchSettings, explain_share, masked_pixels


@pytest.mark.parametrize("size", [(64, 64), (48, 96), (16, 32, 32)])
@pytest.mark.parametrize("share", [0.00198, 0.08, 0.2])
def test_as_many_pixels_are_said_to_be_hidden_as_are(share, size):
    generator = torch.Generator().manual_seed(0)
    positions = draw_positions(size, share, 1, generator, "cpu")
    assert masked_pixels(share, size) == positions.shape[1]


def test_a_small_share_is_called_one():
    assert explain_share(0.00198, (64, 64)).endswith("Training takes longer with so few.")
    assert explain_share(0.08, (64, 64)).startswith(
        "Masks 324 of the 4,096 pixels of a patch (8 %)."
    )


def test_settings_of_other_samplers_say_that_they_are_not_used():
    unused = PatchSettings().unused({})
    assert set(unused) == {
        "weights", "weights_are_labels", "points", "overlap", "patch_depth", "n_groups",
        "n_neighbours",
    }  # fmt: skip
    assert "n_patches" in PatchSettings(sampler="grid").unused({})
    by_weights = PatchSettings(sampler="weights", weights="pores")
    assert "weights_are_labels" not in by_weights.unused({})
    assert "weights_are_labels" in by_weights.unused({"weights_hold_labels": True})
    assert "overlap" not in PatchSettings(sampler="grid").unused({})
    assert "n_groups" not in PatchSettings(group_size=4).unused({})


def test_what_is_missing_is_named_as_the_form_names_it():
    with pytest.raises(InputError) as found:
        PatchSettings(sampler="weights")
    words = "'Sampling' = By weights needs a mask, labels or an image. Set 'Weights' to one."
    assert PatchSettings.as_in_a_form(str(found.value)) == words
