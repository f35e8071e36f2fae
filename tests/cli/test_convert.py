import json

import numpy as np
import pytest
from click.testing import CliRunner

from hushpore.base.volume import Volume
from hushpore.cli.commands import hushpore
from hushpore.io import read
from hushpore.io.results import write_image

pytest.importorskip("zarr")


@pytest.fixture
def scan(tmp_path):
    values = np.random.default_rng(0).integers(0, 99, (6, 40, 50)).astype(np.uint16)
    return write_image(tmp_path / "scan.tif", Volume(values, spacing=2.0, unit="um"))


def test_a_scan_becomes_ome_zarr(scan, tmp_path):
    target = tmp_path / "scan.ome.zarr"
    ran = CliRunner().invoke(
        hushpore,
        ["convert", str(scan), str(target), "--memory-budget", "0.1", "--timings", "--trace",
         str(tmp_path / "trace.json")],
    )  # fmt: skip
    assert ran.exit_code == 0, ran.output
    assert f"Written: {target}" in ran.stdout
    assert "6 x 40 x 50" in ran.stdout
    assert "writing" in ran.stderr
    assert json.loads((tmp_path / "trace.json").read_text())
    np.testing.assert_array_equal(read(target).data, read(scan).data)


def test_what_was_written_is_told_as_json(scan, tmp_path):
    ran = CliRunner().invoke(hushpore, ["convert", str(scan), str(tmp_path / "a.zarr"), "--json"])
    assert ran.exit_code == 0
    told = json.loads(ran.stdout)
    assert told["path"] == str(tmp_path / "a.zarr")
    assert told["levels"] == [[6, 40, 50]]


def test_a_scan_is_read_as_other_commands_read_it(scan, tmp_path):
    target = tmp_path / "a.zarr"
    words = ["convert", str(scan), str(target), "--voxel-size", "0.5mm", "--series", "1"]
    ran = CliRunner().invoke(hushpore, words)
    assert ran.exit_code == 0, ran.output
    assert (read(target).spacing, read(target).unit) == ((0.5, 0.5, 0.5), "mm")


def test_an_error_is_one_line(scan, tmp_path):
    ran = CliRunner().invoke(hushpore, ["convert", str(scan), str(tmp_path / "a.tif")])
    assert ran.exit_code == 1
    assert ran.stderr.startswith("hushpore: Cannot write")
