"""Choice of the training method from the noise that was found."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage

from hushpore.base.volume import Volume
from hushpore.denoising.automatic import decide_method
from hushpore.denoising.noise.estimation import estimate_noise
from hushpore.denoising.settings import DenoiseSettings


@pytest.mark.parametrize(("share", "method"), [(0.01, "r2r"), (0.4, "n2v2")])
def test_only_strong_streaks_lead_to_blind_spots_which_erase_small_pores(
    share: float, method: str
) -> None:
    clean = np.full((24, 96, 96), 30_000.0)
    clean[:, :, :48] = 6000
    noise = np.random.default_rng(1).normal(0, 1, clean.shape)
    streaks = ndimage.gaussian_filter(noise, (12, 0.6, 0.6))
    scan = clean + share * clean.std() * streaks / streaks.std()
    found = estimate_noise(Volume(scan))
    task = SimpleNamespace(settings=DenoiseSettings(), may_draw_noise=True)
    chosen = decide_method(task, found, float(scan.std()))  # type: ignore[arg-type]
    assert chosen.name == method
    assert chosen.reason is not None
    assert chosen.reason.warning
    assert "correlated along z" in chosen.reason.message
    assert ("some may remain" in chosen.reason.message) == (method == "r2r")
