"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def shared_data() -> Path:
    """Folder of real scans beside the checkout; tests that need it are skipped without it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the real scans in ../shared/data, which are not part of the project")
    return folder


@pytest.fixture(autouse=True)
def preferences_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the preferences of whoever runs it."""
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "config" / "hushpore"))
    for name in ("DEVICE", "MEMORY", "TEMPORARY_FOLDER"):
        monkeypatch.delenv(f"HUSHPORE_{name}", raising=False)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
