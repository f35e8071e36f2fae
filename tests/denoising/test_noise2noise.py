"""Two scans of the same thing: each is learnt from the other, and the result is their mean."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Progress
from hushpore.denoising.images import Images, arrange
from hushpore.denoising.model import Architecture, UNet
from hushpore.denoising.pairs import Noise2Noise, compare_scans
from hushpore.denoising.plane_reader import PlaneReader, measure_scale
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.training.blocks import BlockSampler
from hushpore.denoising.training.step import BatchSampler, Learner
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {
    "patch_size": 16, "batch_size": 4, "device": "cpu", "precision": "float32",
    "test_time_augmentation": False,
}  # fmt: skip


def scans_of(clean: np.ndarray, deviation: float, seed: int = 0) -> list[Volume]:
    """Return two scans, each with correlated noise of its own."""
    rng = np.random.default_rng(seed)
    found = []
    for name in ("first", "second"):
        noise = ndimage.gaussian_filter(rng.normal(size=clean.shape), 0.7)
        noisy = clean + deviation / noise.std() * noise
        found.append(Volume(noisy.astype(np.float32), spacing=2.0, unit="um", name=name))
    return found


@pytest.fixture(scope="module")
def clean() -> np.ndarray:
    rng = np.random.default_rng(1)
    return 1000 * (ndimage.gaussian_filter(rng.normal(size=(12, 64, 64)), 5) > 0).astype(float)


@pytest.fixture(scope="module")
def both(clean: np.ndarray) -> list[Volume]:
    return scans_of(clean, 300)


@pytest.fixture(scope="module")
def trained(both: list[Volume]) -> Any:
    first, second = both
    return hushpore.denoise(first, pair=second, steps=60,
                            **{**QUICK, "batch_size": 8, "patch_size": 32})  # fmt: skip


@pytest.mark.parametrize("dimensions", [2, 3])
def test_input_and_target_are_the_same_place_in_either_scan_both_ways(dimensions: int) -> None:
    values = torch.arange(8 * 20 * 20, dtype=torch.float32).view(8, 20, 20)
    context = 2 if dimensions == 2 else 0
    arrangement = arrange(Volume(values.numpy()), dimensions, context=context)
    planes = values.view(-1, *values.shape[-dimensions:])
    images = Images.of(torch.cat([planes, planes + 5000]), arrangement, scans=2)
    size, generator = (4, 8, 8)[-dimensions:], torch.Generator().manual_seed(0)
    sampler = BatchSampler(size, 60, 0.0, generator)
    turned = torch.rand((60, dimensions + 1), generator=generator) < 0.5
    corners = sampler.corners(images)
    inputs, targets = Noise2Noise().pairs(images, corners, size, turned, generator)
    own = inputs[:, images.first]
    # of one it is where it lay in the first scan
    expected = images.windows(corners, size, turned)[:, images.first]
    is_second = (own - expected).flatten(1)[:, 0] > 0
    assert 15 < is_second.sum() < 45
    difference = torch.where(is_second, -5000.0, 5000.0).view(-1, *[1] * dimensions)
    torch.testing.assert_close(targets[:, 0], own + difference.expand_as(own))
    # neighbours are of the scan that the slice is of
    assert ((inputs > 4000).flatten(1).all(1) == is_second).all()


def test_a_training_step_reads_nothing_back() -> None:
    learner = Learner(UNet(Architecture(2, "n2n", inputs=3, features=8)).to("meta"))
    stack = torch.empty((12, 40, 40), device="meta")
    members = torch.zeros((6, 3), dtype=torch.int64, device="meta")
    batches = BatchSampler((16, 16), 4, 0.03, None, pair_maker=Noise2Noise())
    assert learner.step(Images(stack, members, 1, 1, scans=2), batches, 1e-3, 0).is_meta


def test_noise_that_is_correlated_is_removed_better_than_by_their_mean_and_any_gaussian(
    both: list[Volume], clean: np.ndarray, trained: Any
) -> None:
    mean = (both[0].data + both[1].data) / 2
    smooth = min(
        np.mean((ndimage.gaussian_filter(mean, s) - clean) ** 2) for s in (0, 0.5, 0.7, 1, 1.4)
    )
    assert np.mean((trained.volume.data - clean) ** 2) < smooth


def test_the_result_is_the_mean_of_what_comes_out_of_each(both: list[Volume], trained: Any) -> None:
    each = [trained.model.predict(scan, "cpu", test_time_augmentation=False).data for scan in both]
    np.testing.assert_allclose(trained.volume.data, (each[0] + each[1]) / 2, rtol=1e-4, atol=0.05)
    assert np.abs(each[0] - each[1]).max() > 10


def test_a_trained_model_is_applied_to_both_also_where_they_do_not_fit_into_memory(
    both: list[Volume], trained: Any, tmp_path: Path
) -> None:
    file = str(trained.model.save(tmp_path / "model.safetensors"))
    how = {
        "model": file, "pair": both[1], "device": "cpu", "precision": "float32",
        "test_time_augmentation": False,
    }  # fmt: skip
    np.testing.assert_array_equal(hushpore.denoise(both[0], **how).volume.data, trained.volume.data)
    in_slabs = hushpore.denoise(both[0], denoise_memory=0.001, **how)
    assert any("block by block" in note for note in in_slabs.notes)
    np.testing.assert_allclose(in_slabs.volume.data, trained.volume.data, rtol=1e-4, atol=0.05)


def test_blocks_of_what_does_not_fit_hold_the_same_slices_of_both(both: list[Volume]) -> None:
    first, second = both
    source = PlaneReader(first, 2, second)
    scale = measure_scale(source)
    blocks = BlockSampler(
        source, arrange(first, 2, context=1), scale, Backend(), StageTimer(), 3e5, 16, 0
    )
    images = blocks.at(0)
    assert images.scans == 2
    assert len(images.members) < 12
    one, other = images.each_scan()
    drawn = blocks.in_volume(0, np.array([[0, 0, 0]]))[0, 0]
    middle = one.members[0, 1]
    for each, scan in ((one, first), (other, second)):
        restored = each.planes[middle].numpy() * scale.std[0] + scale.mean[0]
        np.testing.assert_allclose(restored, scan.data[drawn], rtol=1e-4, atol=0.01)


def test_the_record_says_how_it_was_learnt_and_from_what(both: list[Volume], trained: Any) -> None:
    provenance = json.loads(json.dumps(trained.provenance))
    assert provenance["network"]["method"] == "n2n"
    kept = provenance["auxiliary"]["pair"]
    assert kept["shape"] == [12, 64, 64]
    again = hushpore.denoise(both[0], pair=both[1], steps=1, **QUICK).provenance
    assert again["auxiliary"]["pair"]["blake2b"] == kept["blake2b"]
    assert provenance["noise_model"]["deviation"] == pytest.approx(300, rel=0.2)
    assert abs(provenance["pair"]["noise_in_common"]) < 0.1
    assert provenance["pair"]["likeness"] > 0.8


@pytest.mark.usefixtures("small_network")
def test_a_cancelled_run_that_reads_block_by_block_goes_on_to_the_same_bits(
    both: list[Volume], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "pair": both[1], "steps": 6, "patch_size": 16, "batch_size": 2, "precision": "float32",
        "denoise_memory": 0.001, "test_time_augmentation": False,
    }  # fmt: skip
    unbroken = hushpore.run("denoise", both[0], settings, "cpu")
    settings["checkpoint"] = str(tmp_path / "training.safetensors")
    work = hushpore.start("denoise", both[0], settings, "cpu")
    for event in work:
        if isinstance(event, Progress) and event.stage == "training" and event.done >= 3:
            break
    work.close()
    resumed = hushpore.run("denoise", both[0], settings, "cpu")
    assert any(note.startswith("Resumed from the checkpoint") for note in resumed.notes)
    np.testing.assert_array_equal(resumed.volume.data, unbroken.volume.data)
    # of another second scan it is another training
    settings["pair"] = both[1].replace(both[1].data + 1)
    with pytest.raises(InputError, match=r"another training: volume was"):
        hushpore.run("denoise", both[0], settings, "cpu")


def test_two_scans_that_do_not_fit_together_are_refused(both: list[Volume]) -> None:
    first, second = both
    for pair, message in (
        (
            second.replace(second.data[:, 1:]),
            r"second has shape \(12, 63, 64\).* Reconstruct or crop both scans",
        ),
        (Volume(second.data, spacing=3.0, unit="um", name="coarse"), r"coarse are 3 x 3 x 3 µm"),
        (first, "has the same noise as first: it is the same scan"),
        (first.data.astype(np.float64), "it is the same scan"),
        (second.replace(np.where(second.data > 1e3, np.nan, second.data)), "NaN"),
    ):
        with pytest.raises(InputError, match=message):
            hushpore.denoise(first, pair=pair, steps=1, **QUICK)
    beside = Volume(first.data, auxiliary={"points": np.zeros((4, 3))})
    with pytest.raises(InputError, match=r"points has shape \(4, 3\)"):
        hushpore.denoise(beside, pair="points", steps=1, **QUICK)
    with pytest.raises(InputError, match="method must be 'auto'"):
        hushpore.denoise(first, pair=second, method="n2v2", steps=1, **QUICK)
    channels = [Volume(np.stack([each.data[0]] * 2), axes="cyx") for each in both]
    with pytest.raises(InputError, match="a single channel; volume has 2 channels"):
        hushpore.denoise(channels[0], pair=channels[1], steps=1, **QUICK)


def test_a_size_of_voxels_that_is_not_known_stands_in_the_way_of_nothing(
    both: list[Volume],
) -> None:
    pair = Volume(both[1].data)
    result = hushpore.denoise(both[0], pair=pair, steps=1, **QUICK)
    assert result.provenance["network"]["method"] == "n2n"


def test_series_over_time_have_a_pair_for_each_time() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 2, 6, 24, 24)).astype(np.float32)
    first, second = (Volume(each, axes="tzyx") for each in values)
    averaged = {**QUICK, "test_time_augmentation": True}
    result = hushpore.denoise(first, pair=second, steps=2, **averaged)
    each = [
        result.model.predict(scan, "cpu", test_time_augmentation=True).data
        for scan in (first, second)
    ]
    np.testing.assert_allclose(result.volume.data, (each[0] + each[1]) / 2, atol=1e-5)


def test_what_two_scans_have_in_common_is_said(clean: np.ndarray, both: list[Volume]) -> None:
    first, second = both
    agreement = compare_scans(first, second)
    assert not list(agreement.notes(first, second))
    # a third of the variance is of rings, say
    shared = scans_of(0 * clean, 200, seed=5)[0].data
    alike = [each.replace(each.data + shared) for each in both]
    (note,) = compare_scans(*alike).notes(*both)
    assert note.startswith("The noise of first and second is correlated (0.3")
    moved = second.replace(np.roll(second.data, 25, axis=(1, 2)))
    (note,) = compare_scans(first, moved).notes(*both)
    assert note.startswith("first and second differ strongly")
    brighter = second.replace(second.data + 100)
    (note,) = compare_scans(first, brighter).notes(*both)
    assert note.startswith("second is brighter than first by ")


def test_what_is_for_hidden_pixels_is_not_used() -> None:
    reasons = DenoiseSettings(pair="second").unused({})
    assert reasons["restore_detail"] == "Not used with a second scan: no pixels are masked."
    assert not DenoiseSettings(pair="second").hints({})
