from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import hushpore
from hushpore import Volume
from hushpore.denoising.noise import restore_detail, restore_detail_in_place
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.scan.noise_model import NoiseDiagnosis

if TYPE_CHECKING:
    from pathlib import Path

WHITE = NoiseDiagnosis({"y": 0.0, "x": 0.0}, 10.0, 0.0, 100.0)


def test_detail_that_was_removed_comes_back_and_noise_stays_away(rng: np.random.Generator) -> None:
    texture = np.zeros((128, 128))
    texture[:, :64] = 80 * (np.indices((128, 64)).sum(0) % 4 < 2)
    noisy = (texture + rng.normal(0, 10, texture.shape)).astype(np.float32)
    flattened = np.full_like(noisy, 40)
    flattened[:, 64:] = 0
    restored = restore_detail(noisy, flattened, WHITE)
    error = np.abs(restored - texture)
    assert error[:, :56].mean() < 10  # was 40
    assert restored[:, 76:].std() < 2.5  # the noise was 10


def test_noise_alone_stays_away_where_it_grows_with_the_grey_value(
    rng: np.random.Generator,
) -> None:
    clean = np.full((128, 128), 100, np.float32)
    clean[64:] = 900
    noisy = rng.poisson(clean).astype(np.float32)
    photons = NoiseDiagnosis({"y": 0.0, "x": 0.0}, 22.0, 1.0, 0.0)
    restored = restore_detail(noisy, clean, photons) - clean
    assert restored[:52].std() < 0.25 * 10
    assert restored[76:].std() < 0.25 * 30


@pytest.mark.parametrize(("axes", "dimensions"), [("yx", 2), ("czyx", 2), ("zyx", 3), ("tzyx", 3)])
def test_slices_of_any_volume_get_their_own(
    rng: np.random.Generator, axes: str, dimensions: int
) -> None:
    shape = tuple({"t": 2, "c": 2, "z": 3, "y": 24, "x": 20}[axis] for axis in axes)
    noisy = rng.normal(0, 30, shape).astype(np.float32)
    denoised = gaussian_filter(noisy, 1)
    expected = restore_detail(noisy, denoised, WHITE)
    *_, last = restore_detail_in_place(
        PlaneReader(Volume(noisy, axes=axes), dimensions), denoised, WHITE
    )
    assert last == 1
    np.testing.assert_allclose(denoised, expected, rtol=1e-5, atol=1e-4)


def test_a_job_gives_detail_back_where_the_noise_allows(rng: np.random.Generator) -> None:
    quick = {"method": "n2v2", "steps": 3, "patch_size": 16, "batch_size": 2, "device": "cpu"}
    image = 100 * (gaussian_filter(rng.normal(size=(2, 64, 64)), (0, 3, 3)) > 0)
    noisy = image + rng.normal(0, 20, image.shape)
    plain, detailed = (hushpore.denoise(noisy, restore_detail=on, **quick) for on in (False, True))
    before, after = (np.mean((r.volume.data - image) ** 2) for r in (plain, detailed))
    assert after < before
    removed = [r.provenance["result"]["noise_removed"] for r in (plain, detailed)]
    assert removed[1] < removed[0]
    smooth = hushpore.denoise(gaussian_filter(noisy, (0, 0, 1.0)), restore_detail=True, **quick)
    assert any("No detail was restored" in note for note in smooth.provenance["notes"])


def test_a_network_that_saw_all_pixels_leaves_nothing_to_restore(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    # as trained, so as applied from its file
    quick = {"steps": 3, "patch_size": 16, "batch_size": 2, "context": 0}
    image = 100 * (gaussian_filter(rng.normal(size=(2, 64, 64)), (0, 3, 3)) > 0)
    noisy = image + rng.normal(0, 20, image.shape)
    model = hushpore.denoise(noisy, method="r2r", device="cpu", **quick).model
    path = str(model.save(tmp_path / "model.safetensors"))
    plain, detailed = (
        hushpore.denoise(noisy, model=path, restore_detail=on, device="cpu") for on in (False, True)
    )
    np.testing.assert_array_equal(plain.volume.data, detailed.volume.data)
