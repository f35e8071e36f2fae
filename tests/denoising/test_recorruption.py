from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch.nn.functional import avg_pool2d

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Metric
from hushpore.denoising.images import Images, arrange
from hushpore.denoising.model import Architecture, UNet, build_network, local_mean
from hushpore.denoising.pairs import ADDED, Recorruption
from hushpore.denoising.plane_reader import Scale
from hushpore.denoising.trained_model import Model, load_model
from hushpore.denoising.training.step import BatchSampler, Learner
from hushpore.scan.noise import estimate_noise
from hushpore.scan.noise_model import NoiseModel

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {
    "patch_size": 16, "batch_size": 4, "device": "cpu", "precision": "float32",
    "test_time_augmentation": False,
}  # fmt: skip

#: A filter that correlates noise along every axis, and along y in another way than along x.
WHITE = np.ones((1, 1, 1))
KERNEL = np.einsum(
    "z,y,x->zyx", np.array([0.5, 1, 0.5]), np.array([1.0, 1.0]), np.array([0.2, 1, 0.2])
)


def known_noise(kernel: np.ndarray, deviation: float, slope: float = 0.0) -> NoiseModel:
    """Return the model of white noise that was filtered with a kernel: its truth."""
    reach = (3, 5, 5)[-kernel.ndim :]
    around = np.zeros([2 * r + 1 for r in reach])
    around[
        tuple(slice(r - n // 2, r - n // 2 + n) for r, n in zip(reach, kernel.shape, strict=True))
    ] = kernel
    autocovariance = ndimage.correlate(around, around, mode="constant")
    autocovariance *= deviation**2 / autocovariance[reach]
    zero, none = np.zeros_like(autocovariance), np.empty(0)
    variance = deviation**2
    return NoiseModel(autocovariance, zero, 0.0, variance, slope, none, 1.0, 0.0, 100)


def correlated(rng: np.random.Generator, shape: tuple[int, ...], kernel: np.ndarray) -> np.ndarray:
    noise = ndimage.convolve(rng.normal(size=shape), kernel, mode="wrap")
    return noise / np.sqrt((kernel**2).sum())


def products(a: np.ndarray, b: np.ndarray, lag: tuple[int, ...]) -> float:
    """Return the mean product of voxels some lag apart, over the last axes."""
    first = tuple(slice(max(-n, 0), min(-n, 0) or None) for n in lag)
    second = tuple(slice(max(n, 0), min(n, 0) or None) for n in lag)
    return float((a[(..., *first)] * b[(..., *second)]).mean())


SCALE = Scale((0.0,), (2.0,))


@pytest.mark.parametrize("lag", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, -1), (0, 3, 0)])
def test_drawn_noise_has_the_covariance_of_the_scan_in_units_of_its_scale(
    lag: tuple[int, ...],
) -> None:
    model = known_noise(KERNEL, 3.0)
    drawing = Recorruption.of(model, SCALE, (24, 24), 2, "cpu", (64, 64))
    drawn = drawing.draw(300, torch.Generator().manual_seed(0)).numpy()
    assert drawn.shape == (300, 5, 24, 24)
    z, y, x = lag
    expected = model.autocovariance[3 + z, 5 + y, 5 + x] / 2.0**2
    # lags in the middle of the reach are held back a little, so that the spectrum has no ripple
    assert products(drawn, drawn, lag) == pytest.approx(expected, abs=0.1 * 3.0**2 / 2.0**2)


@pytest.mark.parametrize(("edge", "grid"), [(20, 25), (32, 40)])
def test_white_noise_is_drawn_white_at_every_pixel(edge: int, grid: int) -> None:
    drawing = Recorruption.of(
        known_noise(np.ones((1, 1)), 2.0), SCALE, (edge, edge), 0, "cpu", (64, 64)
    )
    assert drawing.grid[-1] == grid  # numbers that stand for one are others there
    drawn = drawing.draw(4000, torch.Generator().manual_seed(0))[:, 0].numpy()
    # five deviations of a variance, and of a product of two, of 4,000 draws
    assert np.abs(drawn.var(0) - 1).max() < 5 * np.sqrt(2 / 4000)
    for line in (drawn[:, 3], drawn[:, :, 5], drawn.diagonal(axis1=1, axis2=2)):
        covariance = line.T @ line / 4000
        assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 5 / np.sqrt(4000)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_input_and_target_have_noise_that_is_independent_of_each_other(dimensions: int) -> None:
    rng = np.random.default_rng(0)
    noise = 3 * correlated(rng, (40, 80, 80), KERNEL)
    volume = Volume(noise.astype(np.float32))
    context = 2 if dimensions == 2 else 0
    size = (16, 24, 24)[-dimensions:]
    images = Images.of(
        torch.from_numpy(noise.astype(np.float32) / 2).reshape(-1, *noise.shape[-dimensions:]),
        arrange(volume, dimensions, context=context),
    )
    drawing = Recorruption.of(known_noise(KERNEL, 3.0), SCALE, size, context, "cpu", (64, 64))
    generator = torch.Generator().manual_seed(1)
    sampler = BatchSampler(size, 400, 0.0, generator)
    turned = torch.rand((400, dimensions + 1), generator=generator) < 0.5
    inputs, targets = drawing.pairs(images, sampler.corners(images), size, turned, generator)
    seen, wanted = inputs.numpy(), targets.numpy()
    variance = (3 / 2) ** 2
    assert seen.var() == pytest.approx((1 + ADDED**2) * variance, rel=0.05)
    assert wanted.var() == pytest.approx((1 + 1 / ADDED**2) * variance, rel=0.05)
    largest = np.sqrt(seen.var() * wanted.var())
    for plane in range(seen.shape[1]):
        for lag in [(0, 0), (0, 1), (1, 0), (1, -1)]:
            own = products(seen[:, plane], wanted[:, 0], (0,) * (dimensions - 2) + lag)
            assert abs(own) < 0.03 * largest


def test_a_slice_that_is_seen_twice_at_an_end_has_the_same_noise_both_times() -> None:
    stack = torch.rand((6, 20, 20), generator=torch.Generator().manual_seed(0)) / 1000
    images = Images.of(stack, arrange(Volume(stack.numpy()), 2, context=2))
    drawing = Recorruption.of(known_noise(KERNEL, 3.0), SCALE, (16, 16), 2, "cpu", (64, 64))
    corners = torch.tensor([[0, 0, 0], [5, 2, 1], [3, 1, 1]])
    turned = torch.zeros(3, 3, dtype=torch.bool)
    inputs, _ = drawing.pairs(images, corners, (16, 16), turned, torch.Generator().manual_seed(0))
    first, last, middle = inputs.round(decimals=2)
    assert torch.equal(first[0], first[4])
    assert torch.equal(first[1], first[3])
    assert torch.equal(last[0], last[4])
    assert not torch.equal(middle[0], middle[4])


def test_noise_grows_with_the_grey_value_as_that_of_the_scan_does() -> None:
    # variance 4 at the mean, 100, and 1 more with each grey value
    model = NoiseModel(
        np.pad([[4.0]], 5), np.zeros((11, 11)), 0.0, -96.0, 1.0, np.empty(0), 1.0, 0.0, 100
    )
    scale = Scale((100.0,), (5.0,))
    planes = torch.stack([torch.full((40, 40), (grey - 100.0) / 5) for grey in (100, 112, 97)])
    planes += 1e-4 * torch.rand(planes.shape, generator=torch.Generator().manual_seed(1))
    drawing = Recorruption.of(model, scale, (32, 32), 0, "cpu", (64, 64))
    corners = torch.tensor([[plane, 0, 0] for plane in range(3) for _ in range(100)])
    turned = torch.zeros(300, 3, dtype=torch.bool)
    inputs, _ = drawing.pairs(
        Images.of(planes), corners, (32, 32), turned, torch.Generator().manual_seed(0)
    )
    added = (inputs[:, 0] - planes[corners[:, 0], :32, :32]) * 5 / ADDED
    found = added.view(3, -1).var(1).numpy()
    np.testing.assert_allclose(found, [4, 16, 1], rtol=0.03)


def test_no_noise_is_drawn_where_the_outside_is_filled_in() -> None:
    rng = np.random.default_rng(0)
    noisy = rng.normal(size=(1, 40, 40)).astype(np.float32)
    outside = np.hypot(*(np.indices((40, 40)) - 19.5)) > 17
    noisy[:, outside] = -4.0
    drawing = Recorruption.of(known_noise(KERNEL, 3.0), SCALE, (40, 40), 0, "cpu", (64, 64))
    corners, turned = torch.zeros((20, 3), dtype=torch.int64), torch.zeros((20, 3), dtype=bool)
    inputs, targets = drawing.pairs(
        Images.of(torch.from_numpy(noisy)), corners, (40, 40), turned, torch.Generator()
    )
    filled = ndimage.binary_erosion(outside, np.ones((3, 3)), border_value=1)
    for drawn in (inputs, targets):
        assert (drawn[:, 0, filled] == -4.0).all()
        # elsewhere there is noise at every pixel
        assert (drawn[:, 0].std(0)[~filled] > 0.3).all()


def fitted_without_training(image: np.ndarray, model: NoiseModel, size: tuple[int, int]) -> Learner:
    """Return what gives back as much of an image as suits a network that predicts zero."""
    network = UNet(Architecture(2, "r2r", features=4))
    torch.nn.init.zeros_(network.out.weight)
    torch.nn.init.zeros_(network.out.bias)
    return fitted(network, image, model, size)


def fitted(network: UNet, image: np.ndarray, model: NoiseModel, size: tuple[int, int]) -> Learner:
    """Return what gives back as much of an image as suits a network as it is."""
    drawing = Recorruption.of(model, Scale((0.0,), (1.0,)), size, 0, "cpu", (64, 64))
    batches = BatchSampler(size, 16, 0.0, torch.Generator().manual_seed(0), pair_maker=drawing)
    learner = Learner(network)
    learner.fit_correction_and_shares(Images.of(torch.from_numpy(image).float()), batches)
    return learner


def test_as_much_of_the_input_is_given_back_as_lowers_the_error_most() -> None:
    rng = np.random.default_rng(0)
    # an image of variance 1 whose noise has a variance of 0.5, and a network that knows nothing
    image = rng.normal(size=(8, 80, 80)) + np.sqrt(0.5) * rng.normal(size=(8, 80, 80))
    model = known_noise(np.ones((1, 1)), np.sqrt(0.5))
    learner = fitted_without_training(image, model, (32, 32))
    # Wiener's: the variance of the image over that of the scan, to which nothing is added then
    expected = 1 / (1 + 0.5)
    assert learner.average.input_share == pytest.approx(expected, abs=0.02)
    seen = torch.from_numpy(image[:1, None]).float()
    error = (learner.average(seen) - expected * seen).abs() / seen.abs()
    # that of the smallest group of pixels comes to 0.07 in one of twelve draws
    assert error.max() < 0.08
    assert error.mean() < 0.02


def test_a_scan_of_which_next_to_nothing_would_be_removed_is_returned_as_it_is() -> None:
    rng = np.random.default_rng(0)
    image = rng.normal(size=(8, 80, 80)) + 0.05 * rng.normal(size=(8, 80, 80))
    learner = fitted_without_training(image, known_noise(np.ones((1, 1)), 0.05), (32, 32))
    assert learner.average.input_share == pytest.approx(1)
    seen = torch.from_numpy(image[:1, None]).float()
    torch.testing.assert_close(learner.average(seen), seen, rtol=1e-6, atol=1e-6)


def test_a_result_that_is_the_scan_says_so_and_no_number() -> None:
    rng = np.random.default_rng(0)
    ramp = 10.0 * np.arange(96)
    scan = Volume((ramp + 0.1 * rng.normal(size=(16, 96, 96))).astype(np.float32))
    result = hushpore.denoise(scan, steps=1, method="r2r", **QUICK)
    assert result.headline.startswith("Denoised · no noise removed · 1 training step in ")
    assert any(note.startswith("The result is the original scan: ") for note in result.notes)
    np.testing.assert_allclose(result.volume.data, scan.data, atol=1e-3)


def test_the_mean_grey_value_is_that_of_the_scan_whatever_was_learnt() -> None:
    rng = np.random.default_rng(0)
    image = 0.2 + 0.5 * rng.normal(size=(8, 80, 80))
    network = UNet(Architecture(2, "r2r", features=4))
    torch.nn.init.zeros_(network.out.weight)
    torch.nn.init.constant_(network.out.bias, 0.9)
    learner = fitted(network, image, known_noise(np.ones((1, 1)), 0.5), (64, 64))
    with torch.no_grad():
        found = learner.average(torch.from_numpy(image[:, None]).float())
    assert float(found.mean()) == pytest.approx(image.mean(), abs=0.005)


def test_each_grey_value_keeps_its_mean_also_where_the_border_of_a_patch_shifts_it() -> None:
    rng = np.random.default_rng(0)
    clean = np.zeros((8, 160, 160))
    clean[:, :, 80:] = 4.0
    image = clean + 0.5 * rng.normal(size=clean.shape)
    # a network that is right near the border of what it sees, and shifts each grey value elsewhere
    network = UNet(Architecture(2, "r2r", features=1)).eval()

    def predict(x: torch.Tensor) -> torch.Tensor:
        known = 4.0 * (avg_pool2d(x, 5, 1, 2, count_include_pad=False) > 2).float()
        known[..., 16:-16, 16:-16] += torch.where(known[..., 16:-16, 16:-16] > 2, -0.2, 0.3)
        return known

    network.features = predict
    torch.nn.init.ones_(network.out.weight)
    torch.nn.init.zeros_(network.out.bias)
    learner = fitted(network, image, known_noise(np.ones((1, 1)), 0.5), (32, 32))
    with torch.no_grad():
        found = learner.average(torch.from_numpy(image[:, None]).float())[:, 0].numpy()
    for side in (slice(24, 72), slice(88, 136)):
        middle = (slice(None), slice(24, 136), side)
        assert found[middle].mean() == pytest.approx(image[middle].mean(), abs=0.02)


def test_an_edge_that_was_not_learnt_is_given_back_and_no_noise_beside_it() -> None:
    rng = np.random.default_rng(0)
    clean = np.zeros((8, 80, 80))
    clean[:, 30:34, 30:34] = 8
    image = clean + 0.5 * rng.normal(size=clean.shape)
    model = known_noise(np.ones((1, 1)), 0.5)
    learner = fitted_without_training(image, model, (64, 64))
    learner.average.requires_grad_(False)
    found = learner.average(torch.from_numpy(image[:, None]).float())[:, 0].numpy()
    flat = ndimage.binary_erosion(clean == 0, np.ones((1, 5, 5)), border_value=1)
    assert found[flat].std() < 0.1 * 0.5
    inside = ndimage.binary_erosion(clean > 0, np.ones((1, 3, 3)))
    np.testing.assert_allclose(found[inside], image[inside], rtol=0.05)


def test_where_the_prediction_varies_more_is_given_back_which_lowers_the_error() -> None:
    rng = np.random.default_rng(0)
    clean = np.zeros((8, 80, 80))
    clean[:, 20:60, 20:60] = 1.5
    image = clean + 0.5 * rng.normal(size=clean.shape)
    model = known_noise(np.ones((1, 1)), 0.5)
    errors = []
    for by_structure in (False, True):
        # a network that knows the two values: right in flat places, and wrong along the edges
        network = UNet(Architecture(2, "r2r", features=1)).eval()
        if not by_structure:
            network.activity = lambda difference, output: local_mean(difference.square()).log()
        network.features = lambda x: 1.5 * (avg_pool2d(x, 5, 1, 2) > 0.75)
        torch.nn.init.ones_(network.out.weight)
        torch.nn.init.zeros_(network.out.bias)
        learner = fitted(network, image, model, (64, 64))
        with torch.no_grad():
            found = learner.average(torch.from_numpy(image[:, None]).float())[:, 0].numpy()
        errors.append(np.mean((found - clean) ** 2))
    assert errors[1] < 0.8 * errors[0]


def test_where_noise_differs_with_place_it_is_said() -> None:
    rng = np.random.default_rng(0)
    y, x = np.indices((64, 64)) - 32
    stronger = 5 * (1 + np.hypot(y, x) / 16)
    noisy = 100 + stronger * rng.normal(size=(16, 64, 64))
    even = 100 + 5 * rng.normal(size=(16, 64, 64))
    said = [estimate_noise(Volume(each.astype(np.float32))).unevenness for each in (noisy, even)]
    assert "% stronger far from the centre of the slices" in said[0]
    assert said[1] == ""


def test_a_training_that_was_too_short_does_no_harm() -> None:
    rng = np.random.default_rng(0)
    clean = balls(rng, (16, 96, 96))
    noisy = Volume((clean + 20 * correlated(rng, clean.shape, KERNEL)).astype(np.float32))
    result = hushpore.denoise(noisy, steps=2, method="r2r", **QUICK)
    error = np.mean((np.asarray(result.volume.data) - clean) ** 2)
    assert error < 1.05 * np.mean((noisy.data - clean) ** 2)
    assert result.provenance["result"]["input_share"] > 0.8
    (said,) = (note for note in result.notes if "of the result is the original scan" in note)
    assert said.endswith("either there is little noise, or 2 steps are too few.")
    # nor is the image looked for in the little that was removed
    assert not any(note.startswith("The removed ") for note in result.notes)


def test_what_is_given_back_goes_with_the_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noisy = Volume(rng.normal(size=(3, 32, 32)).astype(np.float32))
    network = build_network(Architecture(2, "r2r", features=4), torch.Generator().manual_seed(0))
    network.input_shares.fill_(0.4)
    model = Model(network.eval(), (0.0,), (1.0,))
    file = model.save(tmp_path / "model.safetensors")
    given = load_model(file).predict(noisy, "cpu")
    network.input_shares.zero_()
    without = model.predict(noisy, "cpu")
    np.testing.assert_allclose(given.data, 0.6 * without.data + 0.4 * noisy.data, atol=1e-5)


def test_a_training_step_reads_nothing_back_and_sends_nothing_after_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = UNet(Architecture(2, "r2r", inputs=3, features=8)).to("meta")
    learner = Learner(network)
    stack = torch.empty((6, 40, 40), device="meta")
    members = torch.zeros((6, 3), dtype=torch.int64, device="meta")
    drawing = Recorruption.of(known_noise(KERNEL, 3.0), SCALE, (16, 16), 1, "meta", (64, 64))
    batches = BatchSampler((16, 16), 4, 0.03, None, pair_maker=drawing)
    images = Images(stack, members, 1, 1)
    learner.step(images, batches, 1e-3, 0)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("host values were sent to the device")

    for name in ("tensor", "as_tensor", "from_numpy"):
        monkeypatch.setattr(torch, name, refuse)
    assert learner.step(images, batches, 1e-3, 1).is_meta


def balls(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return bright matter with dark balls of radius 2 to 6."""
    place = np.stack(np.indices(shape), -1)
    image = np.full(shape, 1000.0)
    for _ in range(60):
        centre, radius = rng.uniform(0, shape), rng.uniform(2, 6)
        image[((place - centre) ** 2).sum(-1) < radius**2] = 0.0
    return ndimage.gaussian_filter(image, 0.6)


def test_correlated_noise_is_removed_better_than_by_any_gaussian() -> None:
    rng = np.random.default_rng(0)
    clean = balls(rng, (12, 80, 80))
    noisy = clean + 200 * correlated(rng, clean.shape, KERNEL)
    scan = Volume(noisy.astype(np.float32))
    result = hushpore.denoise(scan, steps=120, patch_size=48, batch_size=4, device="cpu")
    assert result.provenance["network"]["method"] == "r2r"
    assert result.provenance["network"]["inputs"] == 5
    smooth = min(
        np.mean((ndimage.gaussian_filter(noisy, s) - clean) ** 2)
        for s in (0.5, 0.7, 0.9, 1.1, 1.4, 1.8)
    )
    own = np.mean((np.asarray(result.volume.data) - clean) ** 2)
    # 2 dB better, at a fraction of the steps of a real training
    assert own < smooth / 10**0.2
    assert np.mean(result.volume.data) == pytest.approx(noisy.mean(), abs=0.03 * 200)


def test_the_record_says_by_which_noise_it_was_trained() -> None:
    rng = np.random.default_rng(0)
    noisy = balls(rng, (16, 64, 64)) + 100 * correlated(rng, (16, 64, 64), KERNEL)
    result = hushpore.denoise(Volume(noisy), steps=2, **QUICK)
    model = estimate_noise(Volume(noisy))
    kept = result.provenance["noise_model"]
    assert kept["deviation"] == pytest.approx(100, rel=0.15)
    np.testing.assert_array_equal(kept["autocovariance"], model.autocovariance)


@pytest.mark.parametrize(
    ("kernel", "deviation", "method"),
    [(WHITE, 400, "n2v2"), (WHITE, 150, "r2r"), (KERNEL, 400, "r2r")],
)
def test_pixels_are_hidden_where_noise_is_strong_and_independent(
    kernel: np.ndarray, deviation: float, method: str
) -> None:
    rng = np.random.default_rng(0)
    clean = balls(rng, (16, 96, 96))
    noisy = Volume(clean + deviation * correlated(rng, clean.shape, kernel))
    assert clean.std() == pytest.approx(300, rel=0.1)
    result = hushpore.denoise(noisy, steps=2, **QUICK)
    assert result.provenance["network"]["method"] == method
    assert any("noise is strong" in note for note in result.notes) == (method == "n2v2")
    insisted = hushpore.denoise(noisy, steps=2, method="r2r", **QUICK)
    assert insisted.provenance["network"]["method"] == "r2r"


def test_where_the_noise_is_not_known_for_sure_pixels_are_hidden_and_it_is_said() -> None:
    rng = np.random.default_rng(0)
    # few counts, whose noise is skewed
    noisy = Volume(rng.poisson(4, (160, 160)).astype(np.float32))
    result = hushpore.denoise(noisy, steps=2, **QUICK)
    assert result.provenance["network"]["method"] == "n2v2"
    assert "noise_model" not in result.provenance
    assert any("Method n2v2 is used instead of r2r." in note for note in result.notes)
    insisted = hushpore.denoise(noisy, steps=2, method="r2r", **QUICK)
    assert insisted.provenance["network"]["method"] == "r2r"
    doubts = estimate_noise(noisy).doubts
    assert doubts
    assert " ".join(doubts) in insisted.notes


@pytest.mark.parametrize(
    ("spacing", "alike", "expected"), [((1, 1, 1), 1, 5), ((1, 1, 1), 0, 1), ((2, 1, 1), 1, 1)]
)
def test_neighbouring_slices_are_seen_where_they_are_near_and_alike(
    spacing: tuple[float, ...], alike: int, expected: int
) -> None:
    rng = np.random.default_rng(0)
    clean = balls(rng, (8, 64, 64))
    # as a stack of pictures that have nothing to do with each other
    others = np.stack([balls(rng, (1, 64, 64))[0] for _ in range(8)])
    noisy = (clean if alike else others) + 300 * rng.normal(size=clean.shape)
    result = hushpore.denoise(Volume(noisy, spacing=spacing), steps=1, **QUICK)
    assert result.provenance["network"]["inputs"] == expected


def test_what_varies_where_no_place_is_flat_is_not_taken_for_noise() -> None:
    rng = np.random.default_rng(0)
    # so full of balls that no place between them is left
    crowded = np.stack([balls(rng, (1, 64, 64))[0] for _ in range(8)])
    noisy = Volume(crowded + 150 * rng.normal(size=crowded.shape))
    result = hushpore.denoise(noisy, steps=1, **QUICK)
    assert result.provenance["network"]["method"] == "n2v2"
    (note,) = (each for each in result.notes if "flat enough" in each)
    assert "exceeds the noise (163, from differences" in note


def test_several_channels_are_not_one_noise() -> None:
    scan = Volume(np.random.default_rng(0).normal(size=(2, 4, 32, 32)), axes="czyx")
    with pytest.raises(InputError, match=r"needs a single channel; .* has 2"):
        hushpore.denoise(scan, method="r2r", **QUICK)
    assert hushpore.denoise(scan, steps=1, **QUICK).provenance["network"]["method"] == "n2v2"


def test_a_time_alone_ends_the_training() -> None:
    scan = Volume(np.random.default_rng(0).normal(size=(6, 32, 32)))
    events: list[object] = []
    result = hushpore.run(
        "denoise", scan, {"time_budget": 1, "patch_size": 16, "batch_size": 1}, "cpu", events.append
    )
    assert result.provenance["result"]["training_seconds"] == pytest.approx(1, abs=0.5)
    assert not any(isinstance(each, Metric) and not np.isfinite(each.value) for each in events)


def test_noise_correlated_over_a_long_distance_does_not_switch_to_blind_spots() -> None:
    """Hardly any noise, and lines along z in it: small pores are kept."""
    rng = np.random.default_rng(0)
    clean = np.full((16, 64, 64), 100.0)
    for z, y, x in rng.integers(2, (14, 62, 62), (30, 3)):
        clean[z : z + 2, y : y + 2, x : x + 2] = 0.0
    lines = np.broadcast_to(rng.standard_normal((64, 64)), clean.shape)
    noise = 0.6 * lines + 0.4 * rng.standard_normal(clean.shape)
    noisy = Volume((clean + noise).astype(np.float32))
    assert any("longer distance" in doubt for doubt in estimate_noise(noisy).doubts)
    result = hushpore.denoise(noisy, steps=30, **QUICK)
    assert result.provenance["network"]["method"] == "r2r"
    assert any("some may remain" in note for note in result.notes)
    # no more noise is added than differences of neighbours have
    model = result.provenance["noise_model"]
    estimate = estimate_noise(noisy)
    assert model["deviation"] == pytest.approx(
        min(estimate.diagnosis.noise, estimate.deviation), rel=1e-6
    )
    denoised = np.asarray(result.volume.data)
    found = ndimage.label(denoised < 50)[1]
    assert found >= 0.95 * ndimage.label(clean < 50)[1]
