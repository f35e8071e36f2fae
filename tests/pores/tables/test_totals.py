"""Every number of a whole volume is wherever numbers are, through the one table of them."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from hushpore import Volume, read
from hushpore.base.events import result_of
from hushpore.io.results import write_image
from hushpore.pores.numbering import weighted_median
from hushpore.pores.settings import PoreSettings
from hushpore.pores.tables.totals import TOTALS
from hushpore.runs.batch import run_batch
from hushpore.runs.compare import compare

if TYPE_CHECKING:
    from pathlib import Path

UNITS = {0: "", 1: "um", 2: "um^2", -1: "um^-1", -3: "um^-3"}
EVERYTHING = PoreSettings(
    local_thickness="both",
    tortuosity=True,
    intervals=True,
    subvoxel_porosity=True,
    report_form="rock",
)


def lattice() -> Volume:
    """Pores that open into each other along each axis, so that nothing remains unmeasured."""
    place = 2 * np.pi * np.indices((40, 40, 40)) / 10
    void = np.clip(2 * np.cos(place).sum(axis=0), -1, 1)
    noise = np.random.default_rng(0).normal(0, 3, void.shape)
    return Volume((100 - 40 * void + noise).astype(np.float32), spacing=2.0, unit="um")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A batch of one scan of which everything is measured."""
    where = tmp_path_factory.mktemp("everything")
    write_image(where / "scan.tif", lattice())
    steps = {"pores": EVERYTHING}
    result_of(run_batch(str(where / "scan.tif"), where / "out", steps, device="cpu"))
    return where / "out"


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, float]:
    """Its totals, as its record has them."""
    record = json.loads((folder / "scan" / "result.json").read_text(encoding="utf-8"))
    result: dict[str, float] = record["jobs"][-1]["result"]
    return result


def test_every_total_is_measured(result: dict[str, float]) -> None:
    assert [total.name for total in TOTALS if result.get(total.name) is None] == []


def test_every_total_is_in_the_report(folder: Path, result: dict[str, float]) -> None:
    page = (folder / "scan" / "report.html").read_text(encoding="utf-8")
    for total in TOTALS:
        value = total.in_words(result[total.name], "um")
        assert f"<th>{escape(total.title)}</th><td>{escape(value)}</td>" in page


def test_every_total_is_in_a_table_with_its_unit(folder: Path, result: dict[str, float]) -> None:
    table = pd.read_csv(folder / "scan" / "totals.csv", keep_default_na=False)
    assert table["name"].tolist() == [total.name for total in TOTALS]
    assert table["title"].tolist() == [total.title for total in TOTALS]
    np.testing.assert_allclose(table["value"], [result[total.name] for total in TOTALS])
    assert table["unit"].tolist() == [UNITS[total.unit_power] for total in TOTALS]


def test_every_total_is_in_the_summary_of_a_batch(folder: Path, result: dict[str, float]) -> None:
    row = pd.read_csv(folder / "summary.csv").iloc[0]
    for total in TOTALS:
        assert row[total.name] == pytest.approx(result[total.name])


def test_every_total_that_is_compared_is_in_a_comparison(folder: Path) -> None:
    table = compare(folder / "scan", folder / "scan")
    assert {total.name for total in TOTALS if total.is_compared} <= set(table["quantity"])


def test_every_total_is_in_the_results_of_the_viewer(
    folder: Path, result: dict[str, float], request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("napari")
    from napari.components import ViewerModel
    from napari.layers import Layer

    from hushpore.viewer.layers.result_folder import labels_from_result
    from hushpore.viewer.results.panel import ResultsWidget

    qtbot = request.getfixturevalue("qtbot")
    viewer, labels = ViewerModel(), read(folder / "scan" / "labels.tif")
    viewer.add_layer(Layer.create(*labels_from_result(labels)))
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    for total in TOTALS:
        assert escape(total.title) in panel.figures.text()
        assert escape(total.in_words(result[total.name], "um")) in panel.figures.text()


def test_the_median_by_volume_is_that_of_all_voxels() -> None:
    rng = np.random.default_rng(3)
    for count in (1, 2, 5, 40):
        values = rng.integers(1, 9, count) / 4
        weights = rng.integers(1, 7, count)
        expected = np.median(np.repeat(values, weights))
        assert weighted_median(values, weights) == expected
    assert weighted_median(np.zeros(0), np.zeros(0, int)) is None
