"""Choice of the training method from the noise that was found."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.denoising.automatic import decide_method
from hushpore.denoising.settings import DenoiseSettings
from hushpore.scan.noise import estimate_noise


def scan_with_streaks(share: float, width: float) -> np.ndarray:
    """Two phases, and noise that is drawn out along z and blurred within slices."""
    clean = np.full((24, 96, 96), 30_000.0)
    clean[:, :, :48] = 6000
    noise = np.random.default_rng(1).normal(0, 1, clean.shape)
    streaks = ndimage.gaussian_filter(noise, (12, width, width))
    scan: np.ndarray = clean + share * clean.std() * streaks / streaks.std()
    return scan


@pytest.mark.parametrize(("share", "width", "method"), [(0.01, 0.6, "r2r"), (0.4, 0.0, "n2v2")])
def test_only_strong_streaks_lead_to_blind_spots_which_erase_small_pores(
    share: float, width: float, method: str
) -> None:
    scan = scan_with_streaks(share, width)
    found = estimate_noise(Volume(scan))
    task = SimpleNamespace(settings=DenoiseSettings(), may_draw_noise=True)
    chosen = decide_method(task, found, float(scan.std()))  # type: ignore[arg-type]
    assert chosen.name == method
    assert chosen.reason is not None
    assert chosen.reason.warning
    assert "correlated along z" in chosen.reason.message
    assert ("some may remain" in chosen.reason.message) == (method == "r2r")


def test_noise_that_is_like_the_structure_is_an_error_before_a_training_that_cannot_help() -> None:
    scan = scan_with_streaks(0.4, 0.6)
    with pytest.raises(InputError, match=r"streaks cannot be distinguished .* correlated along z"):
        hushpore.denoise(Volume(scan, name="streaks"), steps=1, device="cpu")
    chosen = hushpore.denoise(
        Volume(scan[:4, :32, :32]), method="r2r", steps=1, patch_size=16, device="cpu"
    )
    assert chosen.provenance["network"]["method"] == "r2r"


def test_weak_correlated_noise_keeps_r2r_although_no_region_is_flat() -> None:
    texture, noise = (np.random.default_rng(seed).normal(size=(24, 96, 96)) for seed in (3, 1))
    clean = np.where(ndimage.gaussian_filter(texture, 2.5) > 0, 30_000.0, 6000.0)
    streaks = ndimage.gaussian_filter(noise, (12, 0.6, 0.6))
    scan = clean + 0.02 * clean.std() * streaks / streaks.std()
    found = estimate_noise(Volume(scan))
    assert "flat enough" in found.doubts[0]
    assert "correlated along z" in found.doubts[1]
    task = SimpleNamespace(settings=DenoiseSettings(), may_draw_noise=True)
    chosen = decide_method(task, found, float(scan.std()))  # type: ignore[arg-type]
    assert chosen.name == "r2r"
    assert chosen.noise is not None
    # differences of neighbours contain less structure: no more than the noise is removed
    assert chosen.noise.deviation <= 1.001 * min(0.02 * clean.std(), found.diagnosis.noise)
    assert chosen.reason is not None
    assert chosen.reason.warning
    for part in ("flat enough", "correlated along z", "some may remain"):
        assert part in chosen.reason.message
