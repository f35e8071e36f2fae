"""Flattening against phantoms whose drift and pores are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from skimage.filters import threshold_otsu

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.flatten import Flattened, fit_field, flattened
from hushpore.io.parts import binned, cropped

N = 72
GREY, CONTRAST = 10_000, 20_000
z, y, x = np.meshgrid(*[np.linspace(-1, 1, N)] * 3, indexing="ij")
r2 = (y**2 + x**2) / 2
DRIFTS = {
    "ramp": 0.075 * x,
    "along z": 0.075 * z,
    "bowl": 0.15 * (r2 - r2.mean()),
    "bowl with a steep rim": 0.15 * (r2 - r2.mean())
    + 0.08 * np.exp((np.minimum(np.hypot(y, x), 1) - 1) / 0.12),
}


def texture(size, seed):
    rng = np.random.default_rng(seed)
    return ndimage.gaussian_filter(rng.normal(size=(N, N, N)).astype(np.float32), size)


@pytest.fixture(scope="module")
def phantom():
    """Pores of 10 %, their blurred image (0 pore, 1 solid), and noise of one unit."""
    field = texture(3, 0)
    pores = field < np.quantile(field, 0.10)
    image = ndimage.gaussian_filter((~pores).astype(np.float32), 0.7)
    return pores, image, np.random.default_rng(1).normal(size=image.shape)


def porosity(values):
    values = np.asarray(values)
    return 100 * (values <= threshold_otsu(values, nbins=1024)).mean()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ramp", "multiplied"),
        ("ramp", "added"),
        ("along z", "multiplied"),
        ("bowl with a steep rim", "multiplied"),
        ("bowl with a steep rim", "added"),
    ],
)
def test_porosity_of_a_phantom_with_drift(phantom, name, kind):
    pores, image, noise = phantom
    drift = DRIFTS[name]
    grey = image * (1 + drift) if kind == "multiplied" else image + drift
    scan = Volume(GREY + CONTRAST * (grey + 0.03 * noise))
    flat = flattened(scan)
    assert abs(porosity(flat.data) - 100 * pores.mean()) < 0.1
    assert "drifted by" in flat.notes[-1]
    # the solid is even: what is left of the drift is a small part of it
    solid = ndimage.binary_erosion(~pores, iterations=2)
    left = ndimage.gaussian_filter(np.where(solid, flat.array(), 0), 6) / (
        ndimage.gaussian_filter(solid.astype(np.float64), 6) + 1e-9
    )
    assert left[solid].std() / CONTRAST < 0.25 * drift[solid].std()


def test_moderate_noise_leaves_the_porosity(phantom):
    _, image, noise = phantom
    scan = Volume(GREY + CONTRAST * (image * (1 + DRIFTS["bowl with a steep rim"]) + 0.1 * noise))
    without = porosity(GREY + CONTRAST * (image + 0.1 * noise))
    assert abs(porosity(flattened(scan).data) - without) < 0.1


def test_strong_noise_hides_a_drift_and_the_values_stay(phantom):
    _, image, noise = phantom
    scan = Volume(GREY + CONTRAST * (image + DRIFTS["bowl with a steep rim"] + 0.25 * noise))
    flat = flattened(scan)
    assert flat.data is scan.data
    assert "no clear drift" in flat.notes[-1]


@pytest.mark.parametrize("kind", ["multiplied", "added"])
def test_a_drift_as_large_as_half_of_the_contrast(phantom, kind):
    _, image, noise = phantom
    drift = 3.3 * DRIFTS["ramp"]
    grey = image * (1 + drift) if kind == "multiplied" else image + drift
    flat = flattened(Volume(GREY + CONTRAST * (grey + 0.1 * noise)))
    without = porosity(GREY + CONTRAST * (image + 0.1 * noise))
    assert abs(porosity(flat.data) - without) < 0.1
    share = fit_field(Volume(GREY + CONTRAST * (grey + 0.1 * noise))).share
    assert share == pytest.approx(float(kind == "added"), abs=0.3)


@pytest.mark.parametrize("noise", [0.03, 0.25])
def test_without_drift_the_values_are_unchanged(phantom, noise):
    _, image, unit = phantom
    scan = Volume((GREY + CONTRAST * (image + noise * unit)).clip(0, 65535).astype(np.uint16))
    flat = flattened(scan)
    assert flat.data is scan.data
    assert "no clear drift" in flat.notes[-1]


@pytest.mark.parametrize("size", [2, 3])
def test_grains_of_two_minerals_stay(phantom, size):
    pores, image, noise = phantom
    grains = texture(size, 5) > 0
    scan = Volume(GREY + CONTRAST * (image * (1 - 0.2 * grains) + 0.03 * noise))
    flat = flattened(scan)
    solid = ndimage.binary_erosion(~pores, iterations=2)
    before, after = (
        np.mean(v[solid & ~grains]) - np.mean(v[solid & grains])
        for v in (scan.array(), flat.array())
    )
    assert after > 0.8 * before


@pytest.mark.parametrize("kind", ["multiplied", "added"])
def test_few_pores_beside_one_peak(kind):
    field = texture(2, 3)
    pores = field < np.quantile(field, 0.01)
    image = ndimage.gaussian_filter((~pores).astype(np.float32), 0.7)
    drift = 2 * DRIFTS["bowl"]
    grey = image * (1 + drift) if kind == "multiplied" else image + drift
    grey += np.random.default_rng(2).normal(0, 0.05, grey.shape)
    flat = flattened(Volume(grey)).array()
    assert abs(100 * (flat < 0.55 * np.median(flat)).mean() - 1.0) < 0.15
    assert np.median(flat[:, 30:42, 30:42]) == pytest.approx(np.median(flat[:, :8, :8]), rel=0.02)


def test_a_dark_solid(phantom):
    pores, image, noise = phantom
    grey = GREY - CONTRAST / 4 * (image * (1 + DRIFTS["bowl"]) + 0.03 * noise)
    flat = flattened(Volume(grey), "dark").array()
    assert abs(100 * (flat > threshold_otsu(flat, nbins=1024)).mean() - 100 * pores.mean()) < 0.1


def test_fill_values_and_nan_stay(phantom):
    _, image, noise = phantom
    grey = GREY + CONTRAST * (image * (1 + DRIFTS["ramp"]) + 0.03 * noise)
    outside = np.hypot(y, x) > 0.97
    for fill in (-1000.0, np.nan):
        scan = Volume(np.where(outside, fill, grey), metadata={"padding_value": -1000.0})
        flat = flattened(scan)
        assert isinstance(flat.data, Flattened)
        np.testing.assert_array_equal(flat.array()[outside], np.float32(fill))
        assert np.isfinite(flat.array()[~outside]).all()


def test_parts_equal_the_whole_bit_for_bit(phantom):
    _, image, noise = phantom
    grey = GREY + CONTRAST * (image * (1 + DRIFTS["ramp"]) + 0.03 * noise)
    flat = flattened(Volume(grey.astype(np.uint16)))
    whole = flat.array()
    assert whole.dtype == np.float32
    for key in (
        (slice(5, 9),),
        (slice(3, 70, 7), slice(10, 20), -1),
        (4, slice(None), slice(2, 50)),
    ):
        np.testing.assert_array_equal(flat.data[key], whole[key])
    filled = np.empty(flat.shape, np.float32)
    assert list(flat.data.read_into(filled))[-1] == N
    np.testing.assert_array_equal(filled, whole)
    np.testing.assert_array_equal(cropped(flat, "4:9,0:20,3:7").array(), whole[4:9, :20, 3:7])
    assert binned(flat, "2").shape == (36, 36, 36)


def test_a_slice(phantom):
    _, image, noise = phantom
    grey = GREY + CONTRAST * (image * (1 + 2 * DRIFTS["ramp"]) + 0.03 * noise)
    flat = flattened(Volume(grey[30]))
    assert flat.shape == (N, N)
    assert "drifted by" in flat.notes[-1]


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (Volume(np.zeros((2, 4, 8, 8)), axes="tzyx"), "Choose one with volume.at"),
        (Volume(np.zeros((4, 8, 8), np.uint8), metadata={"labels": True}), "contains labels"),
        (Volume(np.zeros((4, 8, 8), bool)), "no drift to flatten"),
        (Volume(np.full((4, 8, 8), 7)), "no drift to flatten"),
    ],
)
def test_what_cannot_be_flattened(volume, message):
    with pytest.raises(InputError, match=message):
        flattened(volume)
