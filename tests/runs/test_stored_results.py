"""Results that are stored in the repository come out the same again."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from hushpore.base.events import result_of
from hushpore.runs.rerun import rerun

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stored(data_folder: Path, tmp_path: Path) -> Path:
    """The results with their scan, where their records say that it is."""
    folder = tmp_path / "scans"
    shutil.copytree(data_folder / "results", folder)
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace("/scans/", f"{folder.as_posix()}/"))
    return folder


def last_job(file: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(file.read_text())
    job: dict[str, Any] = made.get("jobs", [made])[-1]
    return job


@pytest.mark.parametrize(
    "name", ["pores", "pores_sauvola", "pores_markers", "patches", "patches_points"]
)
def test_a_result_comes_out_the_same(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # of patches no more than the name of the scan was kept
    monkeypatch.chdir(stored)
    done = result_of(rerun(stored / name, tmp_path / "again", "cpu"))
    assert done.identical, done.summary
    before, after = (
        last_job(folder / "result.json")["settings"] for folder in (stored / name, done.written)
    )
    assert before == after
    for file in stored.joinpath(name).glob("*.csv"):
        # but for the last digits, which are each processor's own
        before, after = (pd.read_csv(each) for each in (file, done.written / file.name))
        pd.testing.assert_frame_equal(after, before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "written"), [("denoised.json", "o.tif"), ("run", "out")])
def test_a_training_is_repeated_with_its_settings(
    stored: Path, tmp_path: Path, name: str, written: str
) -> None:
    # another processor rounds otherwise, and so the bits are its own
    result_of(rerun(stored / name, tmp_path / written, "cpu"))
    files = [
        place / "result.json" if place.is_dir() else place.with_suffix(".json")
        for place in (stored / name, tmp_path / written)
    ]
    before, after = (json.loads(file.read_text()) for file in files)
    before, after = (made.get("jobs", [made])[0] for made in (before, after))
    assert before["result"]["steps"] == after["result"]["steps"] == 3
    removed = [made["result"]["noise_removed"] for made in (before, after)]
    assert removed[1] == pytest.approx(removed[0], rel=0.02)
    # what was laid beside the scan is the same
    assert before["auxiliary"] == after["auxiliary"]
