"""Comparison of a network with filters, without a clean image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy
import skimage.restoration
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.denoising.noise import compare_with_filters
from hushpore.denoising.plane_reader import Scale
from hushpore.scan.noise import estimate_noise

if TYPE_CHECKING:
    from collections.abc import Callable

DEVIATION = 60.0


def squares(width: float, grows: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """An image of flat squares, and the same with noise blurred by a width."""
    rng = np.random.default_rng(2)
    clean = np.kron(rng.choice([100.0, 300.0], (8, 8)), np.ones((32, 32)))
    noise = ndimage.gaussian_filter(rng.standard_normal(clean.shape), width, mode="wrap")
    strength = np.sqrt(clean / clean.mean()) if grows else 1.0
    return clean, clean + DEVIATION * strength * noise / noise.std()


@pytest.mark.parametrize(("width", "grows"), [(0.0, False), (0.8, False), (0.0, True)])
@pytest.mark.parametrize("result", ["scan", "narrow", "wide", "truth"])
def test_the_estimated_errors_differ_as_the_true_ones_do(
    width: float, grows: bool, result: str
) -> None:
    clean, noisy = squares(width, grows)
    noise, scale = estimate_noise(Volume(noisy)), Scale((200.0,), (100.0,))
    ways: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "scan": lambda x: x,
        "narrow": lambda x: ndimage.gaussian_filter(x, (0, 0.7, 0.7)),
        "wide": lambda x: ndimage.gaussian_filter(x, (0, 9, 9)),
        "truth": lambda x: ((clean - 200) / 100)[None] + 0 * x,
    }
    part = ((noisy - 200) / 100)[None].astype(np.float32)
    found = compare_with_filters(
        lambda number, x: ways[result](x), [part], [slice(None)], noise, scale
    )
    # the call that is given to the user does what was compared
    filtered = eval(found.call, {"scipy": scipy, "skimage": skimage, "scan": noisy, "image": noisy})
    mine = 100 * ways[result](part)[0] + 200
    truth = float(np.mean((mine - clean) ** 2) - np.mean((filtered - clean) ** 2)) / DEVIATION**2
    assert found.excess == pytest.approx(truth, abs=4 * found.error + 0.05 * abs(truth))
    assert found.is_better == (result != "truth")


def test_a_filter_that_is_better_away_from_edges_is_named_although_it_blurs_them() -> None:
    rng = np.random.default_rng(4)
    clean = np.where(np.hypot(*(np.indices((256, 256)) - 127.5)) < 100, 0.0, -10.0)
    noise = ndimage.gaussian_filter(rng.standard_normal(clean.shape), 0.8, mode="wrap")
    scan = (clean + noise / noise.std())[None].astype(np.float32)
    model = estimate_noise(Volume(scan))

    def network(number: int, x: np.ndarray) -> np.ndarray:
        # keeps a fifth of the noise everywhere, and the edge
        return (clean + 0.2 * (x - clean)).astype(np.float32)

    found = compare_with_filters(network, [scan], [slice(None)], model, Scale((0.0,), (1.0,)))
    assert found.is_better
    assert found.in_flat
    assert "Gaussian" in found.best


def test_noise_of_some_strength_is_compared_with_its_strength_at_each_place() -> None:
    rng = np.random.default_rng(5)
    strength = np.linspace(0.5, 1.5, 256)[None].repeat(256, 0).astype(np.float32)
    noise = rng.standard_normal((1, 256, 256)) * strength
    model = estimate_noise(Volume(rng.standard_normal((256, 256))))
    found = compare_with_filters(
        lambda number, x: x, [noise.astype(np.float32)], [slice(None)], model,
        Scale((0.0,), (1.0,)), strength,
    )  # fmt: skip
    # of nothing but noise, a wide filter leaves hardly any
    assert found.excess == pytest.approx(float((strength**2).mean()), abs=5 * found.error)


def test_a_network_after_few_steps_is_not_better_than_a_filter_and_it_is_said() -> None:
    _, noisy = squares(0.8)
    result = hushpore.denoise(Volume(noisy), steps=3, batch_size=4, device="cpu")
    compared = result.provenance["compared"]
    assert compared["excess"] > 3 * compared["error"] > 0
    (note,) = (note for note in result.notes if f"A {compared['best']} comes closer" in note)
    assert note.endswith(f" To apply that filter: {compared['call']}.")
    rng = np.random.default_rng(0)
    stack = Volume(
        np.where(np.indices((12, 96, 96))[1] < 48, 0, 50) + rng.normal(0, 30, (12, 96, 96))
    )
    volume = hushpore.denoise(stack, dimensions=3, steps=1, batch_size=1, device="cpu")
    assert "in 3D" in volume.provenance["compared"]["best"]
