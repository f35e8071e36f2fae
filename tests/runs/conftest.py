"""Small scans and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import hushpore
from hushpore import Volume
from hushpore.io.results import write_image
from hushpore.runs.result_folder import write_result
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.result import Pores


def foam(seed: int = 0, name: str = "foam") -> Volume:
    """Balls of void that touch, in a noisy solid."""
    rng = np.random.default_rng(seed)
    z, y, x = np.ogrid[:12, :40, :48]
    grey = np.full((12, 40, 48), 900.0)
    for centre in rng.uniform((2, 4, 4), (10, 36, 44), (12, 3)):
        near = sum((axis - at) ** 2 for axis, at in zip((z, y, x), centre, strict=True))
        grey[near < rng.uniform(9, 36)] = 100
    noisy = (grey + rng.normal(0, 20, grey.shape)).round().astype(np.uint16)
    return Volume(noisy, spacing=5, unit="um", name=name)


@pytest.fixture(scope="session")
def found() -> Pores:
    return hushpore.segment_pores(foam(), device="cpu")


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    return write_image(tmp_path / "foam.tif", foam())


@pytest.fixture
def folder(tmp_path: Path, scan: Path, found: Pores) -> Path:
    """A result folder of `scan`."""
    return write_result(
        tmp_path / "result", [found], found.volume, source=ScanRecipe(str(scan)).to_dict()
    )
