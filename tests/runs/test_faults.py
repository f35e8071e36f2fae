"""What goes wrong late, or in what others wrote, costs no work and is told in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Note, result_of
from hushpore.cli import commands
from hushpore.io.results import write_image
from hushpore.pores.settings import PoreSettings
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.rerun import rerun
from hushpore.runs.result_folder import read_provenance, write_result
from hushpore.runs.scan_recipe import ScanRecipe


@pytest.fixture(scope="module")
def volume() -> Volume:
    rng = np.random.default_rng(0)
    return Volume(rng.integers(0, 99, (6, 24, 24)).astype(np.uint8), spacing=1.0, unit="um")


@pytest.mark.parametrize("unit", [r"$\frac", r"$\frac$", "u" * 100_000, "\x1b]0;title\x07"])
def test_an_odd_unit_costs_no_result(tmp_path: Path, volume: Volume, unit: str) -> None:
    odd = Volume(volume.data, spacing=1.0, unit=unit)
    found = hushpore.segment_pores(odd, threshold=30, device="cpu")
    written = write_result(tmp_path / "r", [found], odd)
    assert {"labels.tif", "pores.csv", "report.png"} <= {each.name for each in written.iterdir()}
    assert "notes" not in read_provenance(written)
    assert len(found.labels_volume.unit) <= 40


def test_a_report_that_cannot_be_drawn_costs_no_result(
    tmp_path: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no font")

    monkeypatch.setattr("hushpore.runs.report_page.pore_report", broken)
    found = hushpore.segment_pores(volume, threshold=30, device="cpu")
    written = write_result(tmp_path / "r", [found], volume)
    assert {"labels.tif", "pores.csv"} <= {each.name for each in written.iterdir()}
    assert "no font" in read_provenance(written)["notes"][0]


ODD = {
    "a list of jobs that is none": {"jobs": 5},
    "no jobs": {"jobs": []},
    "a job that is a text": {"jobs": ["pores"]},
    "settings that are a list": {"settings": [1]},
    "an input that is a text": {"input": "blake2b"},
    "a result that is a list": {"result": [1, 2]},
    "versions that are a number": {"versions": 5},
    "a source that is a list": {"source": [1]},
    "a memory that is a list": {"auxiliary": 5},
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_record_is_refused_before_any_work(
    tmp_path: Path, volume: Volume, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushpore.runs.rerun.run_pipeline", None)
    write_image(tmp_path / "scan.tif", volume)
    job = {"job": "pores", "settings": {}, "input": {"blake2b": "x"}, "result": {}, "versions": {}}
    record = {"source": {"path": str(tmp_path / "scan.tif")}, "jobs": [job]}
    change = ODD[what]
    if set(change) & {"jobs", "source"}:
        record |= change
    else:
        record["jobs"] = [{**job, **change}]
    (tmp_path / "result.json").write_text(json.dumps(record))
    with pytest.raises(InputError):
        result_of(rerun(tmp_path / "result.json", tmp_path / "again"))
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("text", ["[" * 100_000, "null", "\ud800", '{"jobs": Infinity}'])
def test_a_record_that_is_no_record_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError):
        result_of(rerun(tmp_path, tmp_path / "again"))


def test_what_a_file_says_of_itself_does_not_command_the_terminal(
    tmp_path: Path, volume: Volume
) -> None:
    name = "\x1b]0;title\x07"
    write_image(tmp_path / "a.ome.zarr", Volume(volume.data, name=name))
    shown = CliRunner().invoke(commands.hushpore, ["info", str(tmp_path / "a.ome.zarr")])
    assert shown.exit_code == 0
    assert "\x1b" not in shown.output
    assert r"\x1b]0;title" in shown.output


def test_a_voxel_size_of_which_no_volume_is_a_number_is_refused(
    tmp_path: Path, volume: Volume
) -> None:
    write_image(tmp_path / "scan.tif", volume)
    words = ["pores", str(tmp_path / "scan.tif"), "-o", str(tmp_path / "r")]
    shown = CliRunner().invoke(commands.hushpore, [*words, "--voxel-size", "1e-300um"])
    assert shown.exit_code == commands.USER_ERROR


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_goes_nowhere_is_one_line(tmp_path: Path, volume: Volume) -> None:
    write_image(tmp_path / "scan.tif", volume)
    call = "from hushpore.cli import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", call, "info", str(tmp_path / "scan.tif")],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ},
        )  # fmt: skip
    assert done.returncode == commands.USER_ERROR
    assert len(done.stderr.splitlines()) == 1


def test_a_scan_that_is_changed_meanwhile_is_told(tmp_path: Path, volume: Volume) -> None:
    write_image(tmp_path / "scan.tif", volume)
    source = ScanRecipe(str(tmp_path / "scan.tif"))
    steps = {"pores": PoreSettings(threshold=30)}
    events = []

    def touched(_: Volume) -> None:
        os.utime(tmp_path / "scan.tif", (1, 1))

    work = run_pipeline(source, tmp_path / "r", steps, device="cpu", check=touched)
    result_of(work, events.append)
    assert any(
        "changed during the run" in e.message for e in events if isinstance(e, Note) and e.warning
    )
    assert "changed during the run" in read_provenance(tmp_path / "r")["notes"][0]
    assert source.changes_since(source.to_dict()) == []
