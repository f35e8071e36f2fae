import dataclasses
import io

import numpy as np
import pandas as pd
import pytest
from napari.layers import Layer
from qtpy.QtWidgets import QApplication

import hushpore
from hushpore import Volume
from hushpore.viewer.layers.conversion import known_of
from hushpore.viewer.results.choices import NO_BASINS, NO_FORM
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.pore_layer import RESULT, pore_layer


def add(viewer, edges, **settings):
    """A layer of cubes in a row, segmented."""
    void = np.zeros((20, 20, 14 * len(edges)), bool)
    for number, edge in enumerate(edges):
        void[5 : 5 + edge, 5 : 5 + edge, 14 * number + 2 : 14 * number + 2 + edge] = True
    result = hushpore.segment_pores(Volume(void, 0.1, "mm"), exterior="keep", **settings)
    return viewer.add_layer(Layer.create(*pore_layer(result, f"cubes {len(edges)}")))


@pytest.fixture
def layer(viewer):
    return add(viewer, [7, 8, 9])


@pytest.fixture
def panel(qtbot, viewer, layer):
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    panel.resize(1000, 400)
    panel.show()
    panel._tabs.setCurrentWidget(panel.form)
    yield panel
    panel._let_go()


def choose(panel, qtbot, name):
    panel.form.choice.setCurrentIndex(panel.form.choice.findData(name))
    qtbot.waitUntil(lambda: panel.form.table is not None, timeout=20_000)


def test_a_form_is_that_of_the_report_and_says_what_is_missing(panel, layer, qtbot):
    assert panel.form.page.toPlainText() == NO_FORM
    assert not panel._copy.isEnabled()
    choose(panel, qtbot, "bone")
    expected = known_of(layer)[RESULT].form("bone")
    pd.testing.assert_frame_equal(panel.form.table, expected)
    page = panel.form.page.toPlainText()
    assert "BV/TV" in page
    assert "Not in this scan" in page
    missing = expected["missing"]
    assert all(reason in page for reason in missing[missing != ""])
    assert (missing != "").any()


@pytest.mark.parametrize("form", ["none", "casting"])
def test_depths_below_the_surface_are_in_the_table_of_a_casting(panel, viewer, form):
    layer = add(viewer, [6, 8], report_form=form)
    viewer.layers.selection.active = layer
    shown = panel.view.tables.pores
    assert ("surface_distance" in shown) == (form == "casting")
    if form == "casting":
        np.testing.assert_array_equal(shown["surface_distance"], shown["face_distance"])


def test_a_copied_form_is_a_table(panel, qtbot):
    choose(panel, qtbot, "foam")
    panel._copy.click()
    copied = QApplication.clipboard().mimeData()
    table = pd.read_csv(io.StringIO(copied.text()), sep="\t")
    assert table["symbol"].tolist() == panel.form.table["symbol"].tolist()
    np.testing.assert_allclose(table["value"], panel.form.table["value"])
    assert "<table" in copied.html()


def test_another_form_and_another_layer_are_shown(panel, viewer, qtbot):
    choose(panel, qtbot, "casting")
    first = panel.form.table
    viewer.layers.selection.active = add(viewer, [6, 6])
    qtbot.waitUntil(lambda: panel.form.table is not None and panel.form.table is not first)
    assert panel.form.table.set_index("symbol")["value"]["N"] == 2
    panel.form.choice.setCurrentIndex(0)
    assert panel.form.page.toPlainText() == NO_FORM


def test_the_form_of_the_settings_is_shown_at_first(panel, viewer, qtbot):
    viewer.layers.selection.active = add(viewer, [6, 6], report_form="bread")
    qtbot.waitUntil(lambda: panel.form.table is not None, timeout=20_000)
    assert panel.form.name == "bread"


def test_a_layer_without_basins_says_what_to_do(panel, viewer, layer):
    other = add(viewer, [6, 6])
    known_of(other).pop(RESULT)
    viewer.layers.selection.active = layer
    viewer.layers.selection.active = other
    assert panel.form.page.toPlainText() == NO_BASINS


def test_a_stored_casting_in_air_has_no_depths_without_its_scan(tmp_path):
    z, y, x = np.indices((40, 60, 60))
    radius = np.hypot(y - 30, x - 30)
    grey = np.where(radius < 24, 200, 20).astype(np.uint8)
    for cy in (18, 30, 42):
        grey[(z - 20) ** 2 + (y - cy) ** 2 + (x - 30) ** 2 < 16] = 20
    scan = Volume(grey, 0.1, "mm")
    found = hushpore.segment_pores(scan, exterior="remove", report_form="casting", threshold=110.0)
    in_window = Layer.create(*pore_layer(found, "pores")).features["surface_distance"]
    np.testing.assert_array_equal(in_window, found.files().tables["pores"]["surface_distance"])
    assert len(in_window) == 3
    assert not np.isnan(found.form("casting").set_index("symbol")["value"]["a_max"])
    stored = dataclasses.replace(found, volume=found.labels_volume)
    line = stored.form("casting").set_index("symbol").loc["a_max"]
    assert np.isnan(line["value"])
    assert "Segment the scan again" in line["missing"]
    assert "surface_distance" not in stored.pores_of_form
