"""``--cluster``: the same commands, and their errors in the user's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from hushpore.cli.commands import hushpore
from hushpore.io import read
from hushpore.io.dicom import write_series
from hushpore.io.results import write_image

pytest.importorskip("distributed")
pytest.importorskip("zarr")

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.volume import Volume

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = ["--steps", "2", "--patch-size", "16"]


@pytest.fixture
def scan(tmp_path: Path, noisy_ball: Volume) -> Path:
    return write_image(tmp_path / "scan.tif", noisy_ball)


def ran(*words: object) -> object:
    found = CliRunner().invoke(hushpore, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found


def test_a_scan_is_denoised_and_segmented(address: str, scan: Path, tmp_path: Path) -> None:
    shown = ran(
        "run", scan, "-o", tmp_path / "result", "--cluster", address, "--timings",
        "--trace", tmp_path / "trace.json", *QUICK, "--merge-height", "0.5",
    )  # fmt: skip
    assert "converted first" in shown.stderr
    assert "1 worker of dask.distributed" in shown.stderr
    assert "denoising" in shown.stderr
    assert f"Written: {tmp_path / 'result'}" in shown.stdout
    assert json.loads((tmp_path / "trace.json").read_text())
    clean = read(tmp_path / "result_denoised.ome.zarr")
    assert clean.dtype == np.float32
    assert (clean.spacing, clean.unit) == ((0.5, 0.5, 0.5), "mm")
    assert (tmp_path / "result" / "pores.csv").is_file()


def test_of_a_scan_with_several_series_the_one_asked_for_is_denoised_and_segmented(
    address: str, tmp_path: Path, noisy_ball: Volume
) -> None:
    (tmp_path / "scan").mkdir()
    for name in ("chest", "head"):
        write_series(noisy_ball, tmp_path / "scan" / name, description=name)
    # a number that what is denoised of it, one series of another name, knows nothing of
    ran(
        "run", tmp_path / "scan", "-o", tmp_path / "result", "--cluster", address,
        "--series", 2, *QUICK,
    )  # fmt: skip
    clean = read(tmp_path / "result_denoised.ome.zarr")
    assert clean.name == f"{read(tmp_path / 'scan', series=2).name} denoised"
    assert read(tmp_path / "result" / "labels.ome.zarr").shape == clean.shape


@pytest.mark.parametrize("name", ["scan.tif", "scan.ome.zarr"])
def test_pores_of_a_scan_that_was_read_in_another_way_are_made_again(
    address: str, tmp_path: Path, noisy_ball: Volume, name: str
) -> None:
    twice = noisy_ball.replace(np.stack([noisy_ball.data, noisy_ball.data + 1]), axes="tzyx")
    scan = write_image(tmp_path / name, twice)
    shown = ran(
        "pores", scan, "-o", tmp_path / "result", "--cluster", address,
        "--voxel-size", "7um", "--at", "t=1",
    )  # fmt: skip
    assert ("converted first" in shown.stderr) == (name == "scan.tif")
    assert "Identical" in ran("rerun", tmp_path / "result", "-o", tmp_path / "again").stdout
    assert read(tmp_path / "result" / "labels.ome.zarr").spacing == (7, 7, 7)


def test_a_model_is_kept_and_the_record_told(address: str, scan: Path, tmp_path: Path) -> None:
    target = tmp_path / "clean.ome.zarr"
    shown = ran(
        "denoise", scan, "-o", target, "--cluster", address, *QUICK, "--json",
        "--save-model", tmp_path / "model.safetensors",
    )  # fmt: skip
    told = json.loads(shown.stdout)
    assert told["written"] == str(target)
    assert told["cluster"]["blocks"] == 1
    assert (tmp_path / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "clean.tif", "--cluster", "local:1"], "must end in .zarr"),
        (["-o", "c.zarr", "--cluster", "nowhere.json"], "is not a cluster"),
        (["-o", "c.zarr", "--cluster", "local:1", "--picture", "p.png"], "--picture needs"),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(hushpore, ["denoise", "scan.tif", *words])
    assert found.exit_code == 1
    assert message in found.stderr.splitlines()[-1]
    assert [item.name for item in tmp_path.iterdir()] == ["scan.tif"]
