"""Denoising by a local cosine transform, against SciPy's own transform of every square."""

from __future__ import annotations

import warnings
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import fft, ndimage
from skimage import data

from hushpore.base.errors import InputError
from hushpore.denoising.local_dct import LocalDCT
from hushpore.denoising.model import Architecture, build_network

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Image = npt.NDArray[np.float64]


def denoised(image: Image, slope: float = 0.0, noise: float = 1.0) -> Image:
    """Return an image (y, x) denoised."""
    transform = LocalDCT()
    transform.set_noise(1, slope)
    found: Image = transform(torch.from_numpy(image)[None, None], noise)[0, 0].numpy()
    return found


def square_by_square(image: Image, slope: float, noise: float) -> Image:
    """Return an image with white noise of deviation 1, each square transformed by SciPy."""

    def joined(
        edge: int, stride: int, weigh: Callable[[tuple[slice, ...]], tuple[Image, Image]]
    ) -> Image:
        beyond = edge - stride
        total, weights = np.zeros((2, *(n + 2 * beyond for n in image.shape)))
        for y, x in product(*(range(0, n - edge + 1, stride) for n in total.shape)):
            place = np.s_[y : y + edge, x : x + edge]
            coefficients, share = weigh(place)
            share[0, 0] = 1
            weight = 1 / np.square(share).sum()
            total[place] += weight * fft.idctn(coefficients * share, norm="ortho")
            weights[place] += weight
        return (total / weights)[beyond:-beyond, beyond:-beyond]

    def deviation(square: Image) -> float:
        return noise * float(np.sqrt(max(1 + slope * square.mean(), 0.01)))

    def without_small(place: tuple[slice, ...]) -> tuple[Image, Image]:
        square = near[place]
        coefficients = fft.dctn(square, norm="ortho")
        size = np.abs(coefficients) / deviation(square)
        return coefficients, np.interp(size, (2.5, 3.1), (0, 1))

    def by_wiener(place: tuple[slice, ...]) -> tuple[Image, Image]:
        energy = fft.dctn(pilot[place], norm="ortho") ** 2
        share = energy / (energy + deviation(pilot[place]) ** 2)
        return fft.dctn(far[place], norm="ortho"), share

    near, far = np.pad(image, 6, "edge"), np.pad(image, 12, "edge")
    pilot = np.pad(joined(8, 2, without_small), 12, "edge")
    return joined(16, 4, by_wiener)


@pytest.mark.parametrize(("slope", "noise"), [(0.0, 1.0), (0.3, 1.2), (-0.4, 0.5)])
@pytest.mark.parametrize("shape", [(16, 12), (4, 20)])
def test_each_square_is_as_scipy_has_it(shape: tuple[int, int], slope: float, noise: float) -> None:
    image = np.random.default_rng(0).normal(0, 2, shape)
    expected = square_by_square(image, slope, noise)
    np.testing.assert_allclose(denoised(image, slope=slope, noise=noise), expected, atol=1e-5)


def test_an_image_whose_noise_is_not_known_stays_as_it_is() -> None:
    image = torch.rand(2, 1, 24, 32)
    torch.testing.assert_close(LocalDCT()(image), image)


def test_most_noise_goes_and_what_stands_out_of_it_stays() -> None:
    photograph = data.camera()[100:356, 100:356].astype(float) / 20
    noisy = photograph + np.random.default_rng(0).normal(size=photograph.shape)
    error = denoised(noisy) - photograph
    # a Gaussian filter, its width the best of several with the photograph at hand, leaves more
    best = min(
        float(np.square(ndimage.gaussian_filter(noisy, width) - photograph).mean())
        for width in (0.4, 0.6, 0.8, 1.0, 1.3)
    )
    assert np.square(error).mean() < 0.75 * best
    assert abs(error.mean()) < 0.01


def test_noise_that_grows_with_the_grey_value_goes_where_it_is_bright_and_dark() -> None:
    rng = np.random.default_rng(0)
    counts = np.repeat([4.0, 100.0], 64)[None].repeat(128, 0)
    mean = counts.mean()
    noisy = (rng.poisson(counts) - mean) / np.sqrt(mean)
    # in units of the deviation at the mean: of counts the variance is the mean
    error = denoised(noisy, slope=1 / np.sqrt(mean)) * np.sqrt(mean) + mean - counts
    for part, variance in ((np.s_[:, :52], 4), (np.s_[:, 76:], 100)):
        assert np.square(error[part]).mean() < 0.1 * variance


@settings(deadline=None)
@given(
    axes=st.sampled_from([(-1,), (-2,), (-2, -1)]), turned=st.booleans(), seed=st.integers(0, 99)
)
def test_a_turned_image_is_denoised_as_the_image_and_then_turned(
    axes: tuple[int, ...], turned: bool, seed: int
) -> None:
    image = torch.randn(1, 1, 20, 28, generator=torch.Generator().manual_seed(seed))
    transform = LocalDCT()
    transform.set_noise(1, 0.1)

    def turn(values: torch.Tensor) -> torch.Tensor:
        return values.flip(axes).transpose(-1, -2) if turned else values.flip(axes)

    torch.testing.assert_close(transform(turn(image)), turn(transform(image)), atol=1e-5, rtol=1e-5)


def test_planes_are_denoised_each_by_itself_in_any_precision() -> None:
    images = torch.randn(2, 3, 16, 16)
    transform = LocalDCT()
    transform.set_noise(1)
    together = transform(images)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(transform(images), together)
    for image, expected in zip(images.flatten(0, 1), together.flatten(0, 1), strict=True):
        torch.testing.assert_close(transform(image[None, None])[0, 0], expected)


def test_traced_for_other_programs_it_takes_images_of_any_size() -> None:
    architecture = Architecture(2, "r2r", features=4, corrects_dct=True)
    network = build_network(architecture, torch.Generator().manual_seed(0)).eval()
    assert network.local_dct is not None
    network.local_dct.set_noise(1)
    with torch.no_grad(), warnings.catch_warnings():
        # PyTorch would have other formats used
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, torch.randn(1, 1, 32, 32))  # type: ignore[no-untyped-call]
        for shape in ((2, 1, 64, 48), (1, 1, 8, 12)):
            images = torch.randn(shape)
            torch.testing.assert_close(traced(images), network(images), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "what", [{"dimensions": 3, "method": "r2r"}, {"method": "n2v2"}, {"method": "n2n"}]
)
def test_a_network_that_hides_pixels_or_sees_volumes_does_not_start_from_it(
    what: dict[str, Any],
) -> None:
    with pytest.raises(InputError, match="architecture is not supported"):
        Architecture(**what, corrects_dct=True)
