"""What N2V2 mends of N2V, and structN2V of N2V2, on data of which the truth is known."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

import hushpore

QUICK = {"patch_size": 32, "batch_size": 4, "device": "cpu", "precision": "float32"}


def energy_at_nyquist(stack):
    edge = stack.shape[-1]
    window = np.hanning(edge + 2)[1:-1]
    power = np.abs(np.fft.fft2((stack - stack.mean()) * np.outer(window, window))) ** 2
    return power[:, edge // 2].mean() + power[:, :, edge // 2].mean()


def test_n2v2_leaves_far_less_energy_at_the_nyquist_frequency_than_n2v():
    rng = np.random.default_rng(0)
    # smooth, so that what is found there is not of the image
    clean = 300 * gaussian_filter(rng.normal(size=(4, 64, 64)), (0, 3, 3))
    noisy = clean + rng.normal(0, 30, clean.shape)
    found = {}
    for method in ("n2v", "n2v2"):
        result = hushpore.denoise(
            noisy, method=method, context=0, masked_share=0.01, steps=60, **QUICK
        )
        assert (result.volume.data - clean).std() < 0.5 * 30
        found[method] = energy_at_nyquist(result.volume.data)
    assert found["n2v2"] < found["n2v"] / 8


def test_structn2v_removes_lines_that_n2v2_leaves_and_the_diagnosis_names_their_axis_before():
    rng = np.random.default_rng(0)
    clean = np.zeros((4, 64, 64))
    clean[:, :, 20:40] = 100
    lines = rng.normal(0, 30, (4, 64, 1))
    noisy = clean + lines + rng.normal(0, 10, clean.shape)
    left = {}
    for along in ("none", "x"):
        how = {**QUICK, "method": "n2v2", "context": 0, "steps": 40}
        result = hushpore.denoise(noisy, correlated_along=along, correlated_reach=8, **how)
        error = result.volume.data - clean
        left[along] = (error * lines).mean() / (lines**2).mean()
        advised = any("Try correlated_along='x'" in note for note in result.notes)
        assert advised is (along == "none")
    assert left["none"] > 0.1
    assert abs(left["x"]) < 0.03
