"""Every number of a whole volume is wherever numbers are, through the one table of them."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import hushpore
from hushpore import Volume, read
from hushpore.base.events import result_of
from hushpore.io.results import write_image
from hushpore.pores.numbering import weighted_median
from hushpore.pores.settings import PoreSettings
from hushpore.pores.tables.totals import TOTALS
from hushpore.runs.batch import run_batch
from hushpore.runs.compare import compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


UNITS = {0: "", 1: "um", 2: "um^2", -1: "um^-1", -3: "um^-3"}
EVERYTHING = PoreSettings(
    local_thickness="both",
    tortuosity=True,
    transport="both",
    intervals=True,
    detection_limit=True,
    subvoxel_porosity=True,
    report_form="rock",
)


def lattice() -> Volume:
    """Pores that open into each other along each axis, in solid with room for balls."""
    place = 2 * np.pi * np.indices((40, 40, 40)) / 20
    void = np.clip(4 * (np.cos(place).sum(axis=0) - 0.6), -1, 1)
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


def totals_of_void(void: np.ndarray, **settings: Any) -> dict[str, Any]:
    volume = Volume(void, spacing=0.5, unit="mm")
    found = hushpore.segment_pores(volume, exterior="keep", **settings)
    result: dict[str, Any] = found.provenance["result"]
    return result


def test_plates_have_the_walls_and_the_surface_of_the_plate_model() -> None:
    # solid plates 8 voxels (4 mm) thick and 12 (6 mm) apart, which nothing cuts but the faces
    void = np.ones((80, 60, 60), bool)
    for first in range(6, 80, 20):
        void[first : first + 8] = False
    found = totals_of_void(void, local_thickness="both")
    # two walls in 10 mm, an eighth of that in 2 % of the surface at most
    assert found["plate_number"] == pytest.approx(1 / 10, rel=0.02)
    assert found["solid_specific_surface"] == pytest.approx(2 / 4, rel=0.02)
    # between flat walls up to a voxel more than fits is measured
    assert found["solid_thickness"] == pytest.approx(4, abs=0.5)
    assert found["wall_number"] == pytest.approx(
        1 / (found["solid_thickness"] + found["void_thickness"])
    )
    assert found["solid_shape_index"] == pytest.approx(2, rel=0.15)


def test_rods_and_balls_have_their_plate_rod_index(balls: Callable[..., np.ndarray]) -> None:
    y, x = np.indices((120, 120))
    rods = ((y % 40 - 20) ** 2 + (x % 40 - 20) ** 2) > 12**2
    # 4 of rods, 6 of balls: the surface is right within 2 %, thickness within a voxel in 24
    found = totals_of_void(np.broadcast_to(rods, (60, 120, 120)).copy(), local_thickness="solid")
    assert found["solid_shape_index"] == pytest.approx(4, rel=0.07)
    centres = [(z, y, x) for z in (20, 60) for y in (20, 60) for x in (20, 60)]
    found = totals_of_void(balls((80, 80, 80), centres, 12), local_thickness="void")
    assert found["void_shape_index"] == pytest.approx(6, rel=0.07)
    assert found["solid_shape_index"] is None
    assert found["pore_density"] == pytest.approx(8 / 40**3)


def test_parallel_needles_have_one_direction() -> None:
    direction = np.array([2.0, 3.0, 6.0]) / 7
    places = np.moveaxis(np.indices((90, 90, 90)), 0, -1).astype(float)
    void = np.zeros((90, 90, 90), bool)
    for centre in ((25, 25, 45), (60, 25, 45), (25, 65, 45), (65, 65, 45)):
        apart = places - centre
        along = apart @ direction
        void |= (along / 25) ** 2 + ((apart**2).sum(axis=-1) - along**2) / 25 <= 1
    found = totals_of_void(void, merge_height=5)
    assert found["count"] == 4
    assert found["orientation_1"] == pytest.approx(1, abs=1e-3)
    vector = [found[f"orientation_1_{axis}"] for axis in "zyx"]
    assert abs(np.dot(vector, direction)) == pytest.approx(1, abs=1e-4)
    assert sum(found[f"orientation_{n}"] for n in (1, 2, 3)) == pytest.approx(1)


def test_an_image_has_two_eigenvalues_and_no_density() -> None:
    void = np.zeros((40, 40), bool)
    void[10:14, 5:30] = True
    found = totals_of_void(void)
    assert found["pore_density"] is None
    assert found["orientation_1_x"] == pytest.approx(1)
    assert "orientation_3" not in found


def test_a_volume_without_pores_has_no_index_of_them() -> None:
    found = totals_of_void(np.zeros((10, 10, 10), bool))
    assert found["pore_density"] == 0
    assert found["plate_number"] == 0
    assert found["orientation_1"] is None
    assert found["void_shape_index"] is None
