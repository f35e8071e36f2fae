from __future__ import annotations

import json
from typing import TYPE_CHECKING

import imagecodecs
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

QUICK = ["--n-patches", "6", "--patch-size", "16", "--device", "cpu"]


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def scan(tmp_path: Path, rng: np.random.Generator) -> Path:
    values = rng.integers(0, 999, (5, 40, 40)).astype(np.uint16)
    return write_image(tmp_path / "bread.tif", Volume(values, name="bread"))


def test_a_folder_holds_sheet_coordinates_and_record(scan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("patches", scan, "-o", out, *QUICK, "--group-size", 3, "--n-neighbours", 4)
    assert done.exit_code == 0, done.output
    assert "6 patches of 16 x 16 px" in done.output
    values = hushpore.read(scan).data
    table = pd.read_csv(out / "patches.csv")
    for row in table.itertuples():
        patch = values[row.z, row.y : row.y + 16, row.x : row.x + 16]
        assert row.mean == pytest.approx(patch.mean())
    hidden = pd.read_csv(out / "hidden.csv")
    at = hidden.iloc[17]
    assert at.original == values[int(at.z), int(at.y), int(at.x)]
    assert pd.read_csv(out / "groups.csv").shape == (8, 3)
    sheet = hushpore.read(out / "sheet.tif").data
    png = imagecodecs.png_decode((out / "sheet.png").read_bytes())
    assert png.shape == sheet.shape
    provenance = json.loads((out / "result.json").read_text())
    assert provenance["sheet"]["rows"] == ["original", "masked", "replaced"]
    assert provenance["jobs"][0]["settings"]["n_patches"] == 6


@pytest.mark.parametrize("kind", ["npz", "zarr"])
def test_patches_are_kept_as_a_data_set_to_train_with(
    scan: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / f"patches.{kind}"
    done = call("patches", scan, "-o", tmp_path / "out", "--save-patches", target, *QUICK)
    assert done.exit_code == 0, done.output
    if kind == "npz":
        with np.load(target) as stored:
            kept = dict(stored)
    else:
        kept = pytest.importorskip("zarr").open_group(target, mode="r")
    values = hushpore.read(scan).data
    assert kept["patches"].shape == (6, 16, 16)
    for corner, patch in zip(kept["corners"][:], kept["patches"][:], strict=True):
        z, y, x = (int(at) for at in corner)
        np.testing.assert_array_equal(patch, values[z, y : y + 16, x : x + 16])
    again = call("patches", scan, "-o", tmp_path / "more", "--save-patches", target, *QUICK)
    assert again.exit_code == 1
    assert not (tmp_path / "more").exists()


def test_points_and_weights_are_files(scan: Path, tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("z,y,x\n2,20,20\n4,8,8\n")
    done = call("patches", scan, "-o", tmp_path / "out", "--sampler", "points", "--points", points,
                "--patch-size", 16, "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    table = pd.read_csv(tmp_path / "out" / "patches.csv")
    assert table[["z", "y", "x"]].to_numpy().tolist() == [[2, 12, 12], [4, 0, 0]]


def test_a_data_set_of_another_kind_is_refused(scan: Path, tmp_path: Path) -> None:
    done = call("patches", scan, "-o", tmp_path / "out", "--save-patches", "patches.h5", *QUICK)
    assert done.exit_code == 1
    assert "must end in .npz or .zarr" in done.output
