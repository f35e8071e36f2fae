"""Labels of another program, measured from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import tifffile
from click.testing import CliRunner, Result
from scipy import ndimage
from skimage.measure import regionprops_table

import hushpore
from hushpore import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io.results import write_image

if TYPE_CHECKING:
    from pathlib import Path


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def labels() -> np.ndarray:
    """Components of smoothed noise, numbered by threes."""
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((20, 30, 40)), 2)
    return (3 * ndimage.label(smooth < np.quantile(smooth, 0.2))[0]).astype(np.uint16)


@pytest.fixture
def files(tmp_path: Path, labels: np.ndarray) -> tuple[Path, Path]:
    grey = np.random.default_rng(1).integers(0, 4000, labels.shape).astype(np.uint16)
    tifffile.imwrite(tmp_path / "labels.tif", labels)
    scan = Volume(grey, spacing=2.5, unit="um", name="scan")
    return tmp_path / "labels.tif", write_image(tmp_path / "scan.tif", scan)


def test_a_result_folder_is_complete_and_is_used_like_that_of_pores(
    files: tuple[Path, Path], labels: np.ndarray, tmp_path: Path
) -> None:
    out, (given, scan) = tmp_path / "out", files
    done = call("measure", given, "--image", scan, "-o", out)
    assert done.exit_code == 0, done.output
    assert "renumbered" in done.output
    pores = pd.read_csv(out / "pores.csv")
    grey = tifffile.imread(scan)
    theirs = regionprops_table(
        labels, grey, spacing=(2.5,) * 3, properties=("label", "area", "intensity_mean")
    )
    np.testing.assert_array_equal(pores["given_label"], theirs["label"])
    np.testing.assert_allclose(pores["volume"], theirs["area"])
    np.testing.assert_allclose(pores["mean_grey"], theirs["intensity_mean"])
    record = json.loads((out / "result.json").read_text())["jobs"][-1]
    assert record["job"] == "measure"
    assert record["input"]["spacing"] == [2.5] * 3
    report = (out / "report.html").read_text()
    assert "segmented with another program" in report
    assert "threshold was found" not in report
    # export, comparison, methods and rerun take the folder
    assert call("export", out, "-o", tmp_path / "net.vtp", "--to", "vtk").exit_code == 0
    assert call("compare", out, out, "--csv", tmp_path / "both.csv").exit_code == 0
    assert "another program" in call("methods", out).output
    again = call("rerun", out, "-o", tmp_path / "again")
    assert again.exit_code == 0, again.output
    np.testing.assert_array_equal(
        tifffile.imread(tmp_path / "again" / "labels.tif"), tifffile.imread(out / "labels.tif")
    )


def test_many_files_are_measured_in_a_batch(files: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.tif").write_bytes(files[0].read_bytes())
    done = call("batch-measure", folder / "a.tif", folder / "b.tif", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert len(summary) == 2
    assert (summary["porosity"] > 0).all()


def test_grey_values_are_refused_and_labels_given_to_pores_are_said(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    given, scan = files
    refused = call("measure", scan, "-o", tmp_path / "out")
    assert refused.exit_code == 1
    assert "--values labels" in refused.output
    done = call("pores", given, "-o", tmp_path / "pores")
    assert done.exit_code == 0, done.output
    assert "Measure these labels: hushpore measure" in done.output


def test_the_function_of_the_library_is_the_job(labels: np.ndarray) -> None:
    found = hushpore.measure_labels(labels)
    assert len(found.pores) == np.unique(labels).size - 1
