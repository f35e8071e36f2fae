from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from hushpore.scan.noise_strength import DetrendedBlocks

SIZES = [((4, 5, 6), (1, 2, 3)), ((7, 8), (3, 3)), ((1, 6, 6), (0, 2, 2)), ((2, 6, 5), (1, 2, 2))]


def places(size: tuple[int, ...]) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, size))))


def dense(kind: DetrendedBlocks, half: np.ndarray) -> np.ndarray:
    """The covariance of all voxels of a block, from the autocovariance."""
    at = places(kind.size)
    lags = at[None] - at[:, None]
    near = (np.abs(lags) <= kind.reach).all(-1)
    index = np.where(near[..., None], lags + kind.reach, 0)
    return np.where(near, kind.unfold(half)[tuple(np.moveaxis(index, -1, 0))], 0.0)


@pytest.mark.parametrize(("size", "reach"), SIZES)
def test_the_solve_undoes_what_taking_polynomials_out_does(
    size: tuple[int, ...], reach: tuple[int, ...]
) -> None:
    kind = DetrendedBlocks(size, reach)
    n_lags = np.prod([2 * r + 1 for r in reach])
    half = np.random.default_rng(0).normal(size=n_lags // 2 + 1)
    at = places(size) - (np.array(size) - 1) / 2
    terms = [np.ones(len(at)), *at.T]
    terms += [a * b for a, b in itertools.combinations_with_replacement(at.T, 2)]
    q, r, _ = np.linalg.svd(np.stack(terms, 1), full_matrices=False)
    q = q[:, r > 1e-9 * r.max()]
    out = np.eye(len(at)) - q @ q.T
    covariance = out @ dense(kind, half) @ out
    lags = places(size)[None] - places(size)[:, None]
    wanted = np.array(list(itertools.product(*(range(-r, r + 1) for r in reach))))
    sums = np.array([covariance[(lags == lag).all(-1)].sum() for lag in wanted])
    np.testing.assert_allclose(kind.autocovariance(sums[len(sums) // 2 :]), half, atol=1e-8)
    assert kind.energy(half) == pytest.approx(np.trace(covariance))
    coarse = np.trace(q.T @ dense(kind, half) @ q) - dense(kind, half).mean() * len(at)
    assert kind.coarse_energy(half) == pytest.approx(coarse)


def test_products_are_sums_over_pairs_of_voxels() -> None:
    kind = DetrendedBlocks((3, 6, 7), (1, 2, 3))
    blocks = np.random.default_rng(1).normal(size=(4, 3, 6, 7)).astype(np.float32)
    found = np.stack([kind.unfold(each) for each in kind.products(blocks.reshape(4, -1))])
    pairs = blocks[:, 1:, :-2, 3:] * blocks[:, :-1, 2:, :-3]
    np.testing.assert_allclose(found[:, 2, 0, 6], pairs.sum((1, 2, 3)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[:, 1, 2, 3], (blocks**2).sum((1, 2, 3)), rtol=1e-5)


def test_a_quadratic_image_leaves_nothing() -> None:
    kind = DetrendedBlocks((4, 6, 6), (1, 2, 2))
    z, y, x = np.indices((4, 6, 6))
    image = (3.0 + z - 2 * y + 0.5 * x * y - x**2).astype(np.float32).reshape(1, -1)
    coarse, residual = kind.split(image - image.mean())
    assert np.abs(residual).max() < 1e-4 * np.ptp(image)
    assert (coarse**2).sum() == pytest.approx(((image - image.mean()) ** 2).sum(), rel=1e-5)


def test_threads_can_solve_at_the_same_time() -> None:
    # in a process of its own, since solutions that disturb each other destroy the heap
    script = """
import sys, threading, numpy as np
from hushpore.scan.noise_strength import DetrendedBlocks
sys.setswitchinterval(1e-6)
kind = DetrendedBlocks((6, 12, 12), (2, 3, 3))
products = np.random.default_rng(0).random(123)
expected, same = kind.autocovariance(products), []

def solve():
    for _ in range(500):
        same.append(np.array_equal(kind.autocovariance(products), expected))

threads = [threading.Thread(target=solve) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print(len(same), all(same))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == "2000 True\n", done.stderr
