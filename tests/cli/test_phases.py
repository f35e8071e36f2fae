from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import hushpore
from hushpore import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io.results import write_image

if TYPE_CHECKING:
    from pathlib import Path


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def plates() -> np.ndarray:
    """Slices of 12, 40, 160 and 200, with a gradient that parts nowhere."""
    grey = np.repeat(np.array([12, 12, 40, 40, 40, 160, 200, 200], np.uint8), 400)
    return (grey + np.arange(3200) % 7).reshape(8, 20, 20).astype(np.uint8)


@pytest.fixture
def scan(tmp_path: Path, plates: np.ndarray) -> Path:
    return write_image(tmp_path / "rock.tif", Volume(plates, spacing=2.0, unit="um", name="rock"))


def test_a_folder_holds_labels_tables_report_and_record(scan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = "pores, clay, <quartz>, pyrite"
    done = call("phases", scan, "-o", out, "--phases", 4, "--names", names, "--thickness")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == (
        "4 phases · pores 25 % · clay 38 % · <quartz> 12 % · pyrite 25 %"
    )
    labels = hushpore.read(out / "phases.tif")
    assert (labels.dtype, labels.spacing, labels.unit) == (np.uint8, (2.0,) * 3, "um")
    assert labels.data[:, 0, 0].tolist() == [1, 1, 2, 2, 2, 3, 4, 4]
    table = pd.read_csv(out / "phases.csv")
    assert table["name"].tolist() == ["pores", "clay", "<quartz>", "pyrite"]
    assert table["share"].tolist() == [0.25, 0.375, 0.125, 0.25]
    contacts = pd.read_csv(out / "contacts.csv")
    assert contacts["name_2"].tolist() == ["clay", "<quartz>", "pyrite"]
    assert pd.read_csv(out / "profile.csv")["clay"].tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    assert hushpore.read(out / "thickness.tif").data[5].max() == pytest.approx(2, abs=2)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "&lt;quartz&gt;" in page
    assert "Specific surface (µm⁻¹)" in page
    record = json.loads((out / "result.json").read_text(encoding="utf-8"))["jobs"][0]
    assert record["result"]["phases"][1]["name"] == "clay"
    assert record["result"]["contacts"][0]["area"] == contacts["area"][0]
    again = call("rerun", out, "-o", tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert "Identical: the new result equals the original bit for bit." in again.output


def test_labels_are_measured_as_they_are(scan: Path, tmp_path: Path, plates: np.ndarray) -> None:
    given = write_image(tmp_path / "given.tif", Volume((plates // 30).astype(np.uint16)))
    done = call("phases", given, "-o", tmp_path / "out", "--are-labels", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)["result"]
    assert [each["grey_from"] for each in result["phases"]] == [1, 5, 6]
    assert result["sample_voxels"] == 6 * 400
    assert result["phases"][0]["thickness"] is None


def test_what_does_not_fit_is_refused_before_it_is_read(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        pytest.fail("the scan was read")

    monkeypatch.setattr("hushpore.runs.scan_recipe.read", read)
    monkeypatch.setattr("hushpore.device.backend.Backend.free_memory", lambda _: 9_000)
    done = call("phases", scan, "-o", tmp_path / "out", "--thickness")
    assert done.exit_code != 0
    # 3,200 voxels of 1 byte, and 22 more of each
    assert "7.68e-05 GB, and 9e-06 GB are free" in done.stderr
    assert "Leave them out, crop the volume or bin it" in done.stderr
    assert "Thickness, regions, transport" in done.stderr
    assert not (tmp_path / "out").exists()


def test_thresholds_below_zero_are_a_flag_too(scan: Path, tmp_path: Path) -> None:
    done = call("phases", scan, "-o", tmp_path / "out", "--thresholds", "-5,100")
    assert done.exit_code == 0, done.output
    assert "phase 1 is empty: no voxel is" in done.output
    done = call("phases", scan, "-o", tmp_path / "other", "--thresholds", "100,-5")
    assert done.exit_code != 0
    assert "must be ascending" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "other").exists()
