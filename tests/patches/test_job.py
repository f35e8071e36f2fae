from __future__ import annotations

import numpy as np
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.n2v2.training import Batches, Learner


def test_patches_are_where_the_corners_say(rng: np.random.Generator) -> None:
    scan = rng.integers(0, 999, (2, 5, 30, 40)).astype(np.uint16)
    found = hushpore.sample_patches(Volume(scan, axes="tzyx"), n_patches=7, patch_size=16)
    assert found.corners.shape == (7, 4)
    assert found.summary == "7 patches of 16 x 16 px"
    for (t, z, y, x), patch in zip(found.corners, found.patches, strict=True):
        np.testing.assert_array_equal(patch, scan[t, z, y : y + 16, x : x + 16])


def test_they_are_what_the_denoiser_trains_on_first(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = rng.normal(size=(6, 48, 48)).astype(np.float32)
    seen = []
    step = Learner.step

    def spy(self: Learner, image: object, batches: Batches, *args: object) -> object:
        seen.append(batches.generator.clone_state())
        return step(self, image, batches, *args)

    monkeypatch.setattr(Learner, "step", spy)
    hushpore.denoise(scan, steps=1, patch_size=16, batch_size=5, seed=9, device="cpu")
    shown = hushpore.sample_patches(scan, n_patches=5, patch_size=16, seed=9, device="cpu")
    from hushpore.patches.sampling import draw_corners

    trained = draw_corners(scan.shape, (1, 16, 16), 5, seen[0])
    np.testing.assert_array_equal(shown.corners, trained)


def test_an_image_smaller_than_a_patch_is_refused() -> None:
    with pytest.raises(InputError, match=r"20 x 30 against 64 x 64. Choose a smaller patch_size"):
        hushpore.sample_patches(np.eye(20, 30))


def test_a_read_only_image_is_read_and_left_alone(rng: np.random.Generator) -> None:
    scan = rng.normal(size=(40, 40))
    scan.flags.writeable = False
    assert hushpore.sample_patches(scan, n_patches=2, patch_size=8).patches.shape == (2, 8, 8)
