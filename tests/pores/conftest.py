from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore.pores.parallel import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BEREA = Path(__file__).parents[3] / "shared" / "data" / "rocks" / "berea_200.npz"


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def balls() -> Callable[..., np.ndarray]:
    """Make a void of balls: all voxels nearer to a centre than its radius (or as near)."""

    def make(
        shape: tuple[int, ...], centres: object, radii: object, *, strict: bool = False
    ) -> np.ndarray:
        grid = np.indices(shape)
        centres = np.atleast_2d(np.asarray(centres, float))
        void = np.zeros(shape, bool)
        for centre, radius in zip(centres, np.broadcast_to(radii, len(centres)), strict=True):
            square = sum((g - c) ** 2 for g, c in zip(grid, centre, strict=True))
            void |= square < radius**2 if strict else square <= radius**2
        return void

    return make


@pytest.fixture(scope="session")
def berea() -> np.ndarray:
    if not BEREA.is_file():
        pytest.skip(f"{BEREA} is not there")
    with np.load(BEREA) as stored:
        shape = tuple(stored["shape"])
        return np.unpackbits(stored["void"], count=int(np.prod(shape))).reshape(shape).astype(bool)


@pytest.fixture(scope="session")
def rand_index() -> Callable[[np.ndarray, np.ndarray], float]:
    """Adjusted Rand index of two labellings (Hubert and Arabie, 1985)."""

    def index(first: np.ndarray, second: np.ndarray) -> float:
        first, second = first.ravel().astype(np.int64), second.ravel().astype(np.int64)
        _, both = np.unique(first * (second.max() + 1) + second, return_counts=True)
        rows, columns = np.bincount(first), np.bincount(second)

        def pairs(counts: np.ndarray) -> float:
            counts = counts.astype(float)
            return float((counts * (counts - 1) / 2).sum())

        expected = pairs(rows) * pairs(columns) / pairs(np.array([first.size]))
        most = (pairs(rows) + pairs(columns)) / 2
        return (pairs(both) - expected) / (most - expected)

    return index
