from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from skimage.transform import iradon, radon

from hushpore import Volume
from hushpore.base.errors import InputError
from hushpore.sample_data import foam_phantom
from hushpore.scan.noise import estimate_noise

SHAPE = (32, 96, 96)


@pytest.fixture(scope="module")
def foam() -> np.ndarray:
    return foam_phantom(SHAPE, noise=0.0, rings=0.0).clean.array()


def white(shape: tuple[int, ...], deviation: float, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, deviation, shape)


def coloured(shape: tuple[int, ...], kernel: np.ndarray, deviation: float) -> np.ndarray:
    """Noise whose correlation is that of a kernel with itself."""
    values = ndimage.convolve(white(shape, 1.0), kernel, mode="wrap")
    return values * deviation / np.sqrt((kernel**2).sum())


def correlation_of(kernel: np.ndarray, reach: tuple[int, ...]) -> np.ndarray:
    wide = np.pad(kernel, [(0, 2 * r + 2) for r in reach])
    power = np.abs(np.fft.fftn(wide)) ** 2
    lags = np.fft.ifftn(power).real[np.ix_(*(np.arange(-r, r + 1) for r in reach))]
    return lags / lags[reach]


def gaussian(*widths: float) -> np.ndarray:
    delta = np.zeros([9] * len(widths))
    delta[(4,) * len(widths)] = 1
    return ndimage.gaussian_filter(delta, widths)


# a pixel shares noise with one diagonal neighbour, and not with the other
DIAGONAL = np.zeros((1, 3, 3))
DIAGONAL[0, 1, 1], DIAGONAL[0, 2, 2] = 1.0, 0.6
# as a ramp filter leaves it: neighbours are opposed
OPPOSED = np.array([[[0, -0.3, 0], [-0.3, 1, -0.3], [0, -0.3, 0]]])


WHITE, BLURRED = np.ones((1, 1, 1)), gaussian(0.6, 0.7, 0.7)


@pytest.mark.parametrize(
    ("kernel", "deviation"),
    [(WHITE, 30), (WHITE, 150), (BLURRED, 150), (DIAGONAL, 150), (OPPOSED, 500)],
)
def test_the_noise_of_a_foam_is_found_at_every_lag(
    foam: np.ndarray, kernel: np.ndarray, deviation: float
) -> None:
    found = estimate_noise(Volume(foam + coloured(SHAPE, kernel, deviation)))
    assert found.deviation == pytest.approx(deviation, rel=0.1)
    truth = correlation_of(kernel, found.reach)
    assert np.abs(found.correlation - truth).max() < 0.1
    assert np.sqrt(np.mean((found.correlation - truth) ** 2)) < 0.03
    assert found.correlation == pytest.approx(found.correlation[::-1, ::-1, ::-1])
    assert found.slope == 0


@pytest.mark.parametrize(("widths", "deviation"), [((1.0, 2.0, 2.0), 50), ((1.5, 3.0, 3.0), 30)])
def test_long_correlation_is_measured_in_larger_regions(
    widths: tuple[float, ...], deviation: float
) -> None:
    y, x = np.indices((128, 128)) // 32
    clean = np.broadcast_to(100.0 * ((y + x) % 2), (32, 128, 128))
    noise = ndimage.gaussian_filter(white(clean.shape, 1.0), widths, mode="wrap")
    found = estimate_noise(Volume(clean + noise * deviation / noise.std()))
    assert found.doubts == ()
    assert min(found.reach[1:]) >= 10
    assert found.deviation == pytest.approx(deviation, rel=0.2)
    axes = [
        np.exp(-(np.arange(-r, r + 1) ** 2) / (4 * w**2))
        for r, w in zip(found.reach, widths, strict=True)
    ]
    truth = np.einsum("i,j,k->ijk", *axes)
    assert np.abs(found.correlation - truth).max() < 0.2
    assert np.sqrt(np.mean((found.correlation - truth) ** 2)) < 0.08


def test_coarse_structure_is_not_taken_for_noise_of_long_correlation() -> None:
    """Smooth texture all over a scan with little noise; there are no larger flat regions."""
    texture = ndimage.gaussian_filter(white((32, 96, 96), 1.0), 4, mode="wrap")
    found = estimate_noise(Volume(100 * texture / texture.std() + white(texture.shape, 10)))
    assert found.deviation < 40
    assert found.reach == (3, 5, 5) or found.doubts


def disc_of_a_scan(strong: float, weak: float) -> tuple[np.ndarray, np.ndarray]:
    """A disc in air with noise as a ramp filter leaves it, stronger in the middle; and this noise.

    The power is proportional to the frequency, without a low one, and falls off at high ones.
    """
    n = 256
    radius = np.hypot(*(np.indices((n, n)) - n / 2 + 0.5))
    frequency = np.hypot(np.fft.fftfreq(n)[:, None], np.fft.rfftfreq(n))
    power = frequency * np.exp(-((frequency / 0.3) ** 2))
    noise = np.fft.irfft2(np.fft.rfft2(white((n, n), 1.0, 3)) * np.sqrt(power), (n, n))
    noise *= np.interp(radius, [0, 110], [strong, weak]) / noise.std()
    return np.where(radius < 110, 0.0, -1000.0) + noise, noise


def test_noise_of_a_slice_has_little_power_at_low_frequencies_where_the_ramp_filter_leaves_none(
) -> None:  # fmt: skip
    scan, noise = disc_of_a_scan(60, 60)
    found = estimate_noise(Volume(scan))
    assert found.reach == (8, 8)
    true = np.abs(np.fft.rfft2(noise)) ** 2 / noise.size
    frequency = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.rfftfreq(256))
    for low, high in ((0.03, 0.06), (0.06, 0.12), (0.12, 0.25), (0.25, 0.5)):
        band = (frequency >= low) & (frequency < high)
        ratio = found.spectrum((256, 256))[band].mean() / true[band].mean()
        assert ratio == pytest.approx(1, abs=0.25), (low, high)


def test_weak_noise_has_the_strength_of_its_place_in_spite_of_sharp_edges() -> None:
    found = estimate_noise(Volume(disc_of_a_scan(75, 55)[0]))
    assert found.strength is not None
    cells = found.deviation * found.strength
    assert cells[11:13, 11:13].mean() == pytest.approx(75, rel=0.06)
    # half way to the edge of the disc
    assert cells[12, 6] == pytest.approx(65, rel=0.08)
    assert estimate_noise(Volume(disc_of_a_scan(60, 60)[0])).strength is None


def test_smooth_noise_is_not_made_stronger_by_blurred_edges() -> None:
    balls = np.zeros((40, 96, 96))
    balls[tuple(np.random.default_rng(0).integers(0, np.reshape(balls.shape, (3, 1)), (3, 60)))] = 1
    solid = ndimage.distance_transform_edt(balls == 0) < 11
    noise = ndimage.gaussian_filter(white(solid.shape, 1.0), (0.7, 1.5, 1.5), mode="wrap")
    blurred = ndimage.gaussian_filter(100.0 * solid, 0.8)
    found = estimate_noise(Volume(blurred + noise * 50 / noise.std()))
    assert found.deviation == pytest.approx(50, rel=0.1)


def test_a_simulated_scan_has_the_noise_that_its_twin_without_lacks() -> None:
    y, x = np.indices((96, 96)) - 47.5
    inside = np.hypot(y, x) < 44
    mu = np.where(inside & (np.hypot(y - 10, x) > 12) & (np.hypot(y, x + 25) > 8), 0.01, 0.0)
    angles = np.linspace(0, 180, 90, endpoint=False)
    line = radon(mu, angles)

    def scan(counts: np.ndarray) -> np.ndarray:
        return iradon(-np.log(np.maximum(counts, 1) / 2000), angles, filter_name="shepp-logan")

    rng = np.random.default_rng(3)
    clean = scan(2000 * np.exp(-line))
    stack = np.stack([scan(rng.poisson(2000 * np.exp(-line)).astype(float)) for _ in range(10)])
    noise = (stack - clean)[:, np.hypot(y, x) < 40]
    found = estimate_noise(Volume(1e4 * stack))
    assert found.deviation == pytest.approx(1e4 * noise.std(), rel=0.1)
    core = (stack - clean)[:, 20:-20, 20:-20]
    beside = np.mean(core[..., 1:] * core[..., :-1]) / core.var()
    z, row, column = found.reach
    assert found.correlation[z, row, column + 1] == pytest.approx(beside, abs=0.05)
    assert abs(found.correlation[z + 1, row, column]) < 0.05


def test_photon_noise_grows_with_the_grey_value() -> None:
    image = np.kron(
        np.random.default_rng(0).choice([20.0, 60, 120, 200], (6, 6)), np.ones((40, 40))
    )
    found = estimate_noise(Volume(np.random.default_rng(1).poisson(image).astype(np.uint16)))
    assert found.slope == pytest.approx(1, rel=0.15)
    assert found.offset + found.slope * 100 == pytest.approx(100, rel=0.15)
    assert found.deviation**2 == pytest.approx(image.mean(), rel=0.2)


def test_stronger_noise_at_the_rim_is_told() -> None:
    radius = np.hypot(*(np.mgrid[:96, :96] - 47.5))
    found = estimate_noise(Volume(white(SHAPE, 100) * (1 + radius / 48)))
    assert found.rim - 3 * found.rim_error > 1.2
    even = estimate_noise(Volume(white(SHAPE, 100)))
    assert even.rim == pytest.approx(1, abs=4 * even.rim_error)


def test_noisier_slices_are_told() -> None:
    strength = np.where(np.arange(32) < 16, 100, 150)
    found = estimate_noise(Volume(white(SHAPE, 1) * strength[:, None, None]))
    np.testing.assert_allclose(found.slices, strength, rtol=0.12)


def test_errors_cover_what_other_noise_of_the_kind_would_give(foam: np.ndarray) -> None:
    found = [estimate_noise(Volume(foam + white(SHAPE, 150, seed))) for seed in range(4)]
    spread = np.std([each.deviation for each in found])
    assert found[0].deviation_error < 5
    assert spread < 4 * found[0].deviation_error
    lags = np.std([each.correlation for each in found], 0)
    assert np.median(found[0].correlation_error) == pytest.approx(np.median(lags), rel=1.0)


@pytest.mark.parametrize("shape", [(200, 200), (1, 200, 200), (3, 1, 8, 90, 90), (2, 60, 60)])
def test_any_axes_are_taken(shape: tuple[int, ...]) -> None:
    found = estimate_noise(Volume(white(shape, 10)))
    assert found.deviation == pytest.approx(10, rel=0.06)
    assert found.autocovariance.ndim == min(len(shape), 3)
    assert len(found.slices) == (shape[-3] if len(shape) > 2 else 0)
    assert found.doubts == ()


@pytest.mark.parametrize("shape", [(6, 6), (8, 8), (2, 7, 9), (20, 6, 6)])
def test_tiny_volumes_are_in_doubt_or_about_right(shape: tuple[int, ...]) -> None:
    found = estimate_noise(Volume(white(shape, 10)))
    assert found.doubts or found.deviation == pytest.approx(10, rel=0.4)


def test_counts_of_few_photons_are_no_cut_off_values() -> None:
    image = np.kron([[2.0, 5.0], [8.0, 4.0]], np.ones((100, 100)))
    found = estimate_noise(Volume(np.random.default_rng(1).poisson(image).astype(np.uint8)))
    assert found.slope == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize(("counts", "is_normal"), [(8, False), (50, True)])
def test_noise_of_a_few_counts_is_not_taken_for_normal(counts: float, is_normal: bool) -> None:
    image = counts * np.kron([[0.5, 1.2], [1.6, 0.7]], np.ones((100, 100)))
    # whatever a count is in grey values
    values = 3.0 * np.random.default_rng(1).poisson(np.stack([image] * 8)) - 1000
    found = estimate_noise(Volume(values.astype(np.float32)))
    assert any("counts" in doubt for doubt in found.doubts) is not is_normal


@pytest.mark.parametrize(("counts", "is_normal"), [(4, False), (60, True)])
def test_few_counts_are_told_also_where_grey_values_hardly_differ(
    counts: float, is_normal: bool
) -> None:
    values = -2.0 + 0.1 * np.random.default_rng(2).poisson(counts, (160, 160))
    found = estimate_noise(Volume(values.astype(np.float32)))
    assert found.slope == 0
    assert any("few counts" in doubt for doubt in found.doubts) is not is_normal


def test_skewed_noise_that_is_correlated_is_not_that_of_counts() -> None:
    counts = np.random.default_rng(2).poisson(1.0, (160, 160)).astype(np.float32)
    assert estimate_noise(Volume(ndimage.uniform_filter(counts, 2))).doubts == ()


def test_too_few_pixels_are_named() -> None:
    with pytest.raises(InputError, match=r"6 x 6 pixels; got \(10, 5, 40\)"):
        estimate_noise(Volume(np.zeros((10, 5, 40))))


def test_filled_in_outsides_and_cut_off_values_do_not_count() -> None:
    values = white(SHAPE, 100)
    radius = np.hypot(*(np.mgrid[:96, :96] - 47.5))
    found = estimate_noise(Volume(np.where(radius < 44, values, -1000.0)))
    assert found.deviation == pytest.approx(100, rel=0.05)
    image = np.where(np.arange(96) < 48, 0, 500) + values
    cut = estimate_noise(Volume(np.clip(image, -1000, 500).astype(np.int16)))
    assert cut.deviation == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_rounding_is_part_of_the_noise(dtype: type) -> None:
    found = estimate_noise(Volume(np.clip(white(SHAPE, 2) + 100, 0, 255).round().astype(dtype)))
    assert found.deviation == pytest.approx(np.sqrt(4 + 1 / 12), rel=0.03)
    assert found.doubts == ()


def test_noise_that_was_rounded_away_is_in_doubt() -> None:
    found = estimate_noise(Volume((white(SHAPE, 0.2) + 100).round().astype(np.uint8)))
    assert any("round" in doubt for doubt in found.doubts)


def test_a_constant_volume_has_no_noise() -> None:
    found = estimate_noise(Volume(np.full(SHAPE, 7, np.uint8)))
    assert found.deviation == 0
    assert found.doubts
    assert found.correlation[found.reach] == 1
    assert not found.spectrum(SHAPE).any()


@pytest.mark.parametrize("spatial", [2, 3])
def test_an_image_without_flat_places_is_in_doubt(spatial: int) -> None:
    cells = np.random.default_rng(0).normal(0, 300, (6, 12, 12)[-spatial:])
    image = np.kron(cells, np.ones((6, 8, 8)[-spatial:]))
    assert estimate_noise(Volume(image + white(image.shape, 1))).doubts


def test_only_blocks_are_read() -> None:
    class OnDisk(np.ndarray):
        read = 0

        def __getitem__(self, key: object) -> np.ndarray:
            part = np.asarray(super().__getitem__(key))
            OnDisk.read = max(OnDisk.read, part.size)
            return part

    data = white((20, 80, 80), 10).astype(np.float32).view(OnDisk)
    estimate_noise(Volume(data))
    assert OnDisk.read <= 6 * 12 * 12


def test_the_same_seed_gives_the_same() -> None:
    volume = Volume(white((10, 60, 60), 10))
    first, second, other = (estimate_noise(volume, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.autocovariance, second.autocovariance)
    assert first.deviation != other.deviation
