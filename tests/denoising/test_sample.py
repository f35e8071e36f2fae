"""The sample of a scan in air: where noise is estimated and patches are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.denoising.images import arrange
from hushpore.denoising.job import train
from hushpore.denoising.noise import examine_residual
from hushpore.denoising.plane_reader import PlaneReader, measure_scale
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.training.run import SamplePlaces
from hushpore.device.backend import Backend
from hushpore.scan.noise import estimate_noise
from hushpore.scan.sample import Sample, find_sample

#: Standard deviation of the noise in the sample and in the air.
SAMPLE, AIR = 20.0, 60.0


def scan_in_air(shape: tuple[int, ...] = (12, 160, 160), radius: float = 40.0) -> Volume:
    """Return a cylinder with pores in air, whose noise differs; grey values 0 and 400."""
    rng = np.random.default_rng(1)
    y, x = np.indices(shape[-2:]) - np.array(shape[-2:])[:, None, None] / 2
    inside = np.broadcast_to(np.hypot(y + 20, x) < radius, shape)
    clean = np.where(inside, 400.0, 0.0)
    for _ in range(30):
        at = rng.integers(0, shape)
        away = np.sqrt(sum((g - a) ** 2 for g, a in zip(np.indices(shape), at, strict=True)))
        clean[away < 3] = 0.0
    noise = rng.standard_normal(shape) * np.where(inside, SAMPLE, AIR)
    return Volume((clean + noise).astype(np.float32), axes="zyx"[-len(shape) :])


def found_in(volume: Volume) -> Sample:
    """Return the sample, which is there."""
    sample = find_sample(volume)
    assert sample is not None
    return sample


@pytest.mark.parametrize("shape", [(12, 160, 160), (160, 160)])
def test_a_sample_in_air_is_found(shape: tuple[int, ...]) -> None:
    sample = found_in(scan_in_air(shape))
    assert sample.share == pytest.approx(np.pi * 40**2 / 160**2, rel=0.1)
    assert 250 < sample.mean < 400


def test_without_air_there_is_nothing_to_set_apart() -> None:
    rng = np.random.default_rng(0)
    pores = rng.random((8, 96, 96)) < 0.3
    assert find_sample(Volume(np.where(pores, 0, 100) + rng.normal(0, 9, pores.shape))) is None
    # a sample may move in time
    several = Volume(np.stack([np.asarray(scan_in_air().data)] * 2), axes="tzyx")
    assert find_sample(several) is None


def test_shares_of_boxes_are_means_of_the_mask() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((3, 20, 25)) < 0.5
    sample = Sample(mask, (9, 80, 100), 0.0, 1.0)
    fine = mask[[0, 0, 0, 1, 1, 1, 2, 2, 2]].repeat(4, 1).repeat(4, 2)
    corners = rng.integers(0, (9, 70, 90), (50, 3))
    found = sample.shares(corners, (1, 10, 10))
    expected = [fine[z, y : y + 10, x : x + 10].mean() for z, y, x in corners]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(("dimensions", "size"), [(2, (32, 32)), (3, (8, 32, 32))])
def test_most_patches_lie_in_the_sample_and_a_few_in_the_air(
    dimensions: int, size: tuple[int, ...]
) -> None:
    volume = scan_in_air()
    sample, arrangement = found_in(volume), arrange(volume, dimensions)
    places = SamplePlaces(sample, arrangement, size, 0)
    images, rows = np.arange(len(arrangement.members)), slice(0, volume.shape[-dimensions])
    drawn = places.places(images, rows).draw(2000, torch.Generator().manual_seed(0)).numpy()
    where = drawn if dimensions == 2 else drawn[:, 1:]
    shares = sample.shares(where, size)
    assert (where >= 0).all()
    assert (where[:, -2:] <= 128).all()
    # a fifth of the image is sample
    assert shares.mean() > 0.5
    assert 0.005 < (shares == 0).mean() < 0.25
    # part by part the weights are the same
    weights = result_of(places.row_weights())
    assert weights.shape == (len(images), volume.shape[-dimensions] - size[0] + 1)
    part = places.places(images[:1], slice(2, 2 + size[0])).draw(100).numpy()
    assert not part[:, 0].any()
    assert (part[:, 1] == 0).all()


def test_the_noise_is_that_of_the_sample() -> None:
    volume = scan_in_air()
    found = estimate_noise(volume, sample=found_in(volume))
    assert found.deviation == pytest.approx(SAMPLE, rel=0.05)


def test_the_record_states_it_and_a_setting_switches_it_off() -> None:
    volume = scan_in_air()
    quick = {"steps": 2, "patch_size": 16, "batch_size": 2, "test_time_augmentation": False}
    result = hushpore.denoise(volume, **quick, device="cpu")
    share = result.provenance["sample_share"]
    assert share == pytest.approx(0.2, abs=0.03)
    assert any("The sample fills" in note for note in result.notes)
    assert "residual matches noise: " in result.headline
    off = hushpore.denoise(volume, **quick, device="cpu", sample_focus=False)
    assert "sample_share" not in off.provenance
    assert not any("The sample fills" in note for note in off.notes)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_blocks_of_a_large_scan_are_drawn_from_the_sample_too(dimensions: int) -> None:
    volume = scan_in_air()
    settings = DenoiseSettings(
        steps=3, patch_size=16, patch_depth=4, batch_size=2, dimensions=dimensions, context=0,
        denoise_memory=0.004,
    )  # fmt: skip
    scale = measure_scale(PlaneReader(volume, dimensions))
    result = result_of(train(volume, settings, Backend(), scale))
    notes = [note.message for note in result.notes]
    assert any("block by block" in each for each in notes)
    assert result.noise.sample_share == pytest.approx(0.2, abs=0.03)
    # the grey scale is that of the sample, too
    assert result.outcome.model.scale.mean[0] > scale.mean[0] + 100


def test_the_residual_is_examined_in_the_sample() -> None:
    volume = scan_in_air()
    sample = found_in(volume)
    noise = estimate_noise(volume, sample=sample)
    # the clean image
    denoised = np.where(np.asarray(volume.data) > 200, 400.0, 0.0)
    inside, everywhere = (
        examine_residual(PlaneReader(volume, 2), denoised, noise, sample=each).match
        for each in (sample, None)
    )
    assert inside is not None
    assert everywhere is not None
    # the noise in the air is three times as strong
    assert inside.share > 0.95
    assert everywhere.image_lost > 3
