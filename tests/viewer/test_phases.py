"""Phases in the window: lines to drag, names and colours, and what was measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tifffile
from napari.components import ViewerModel
from napari.layers import Layer
from qtpy.QtGui import QColor

import hushpore
from hushpore import Volume
from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.layers.layer_files import SavedLayer
from hushpore.viewer.layers.reader import read_layers
from hushpore.viewer.layers.voxel_size import set_voxel_size
from hushpore.viewer.phases import PhasesWidget, contacts_of
from hushpore.viewer.results.table import cell_text

UNIT = ("um",) * 3


@pytest.fixture
def rock() -> np.ndarray:
    """Plates of 30, 100 and 200 along x, with noise that parts nowhere."""
    grey = np.repeat([30, 100, 200], [10, 15, 5])
    noise = np.random.default_rng(0).integers(-9, 10, (6, 20, 30))
    return (grey + noise).astype(np.uint8)


@pytest.fixture
def widget(qtbot: Any, viewer: Any, rock: np.ndarray) -> PhasesWidget:
    viewer.add_image(rock, name="rock", scale=(2, 2, 2), units=UNIT)
    widget = PhasesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.native.show()
    widget.exterior.value = "keep"
    qtbot.waitUntil(lambda: widget.panel.greys is not None and not widget.panel.is_busy)
    return widget


def cells(table: Any) -> list[list[str]]:
    model = table.model()
    columns = range(model.columnCount())
    return [[str(model.index(row, column).data()) for column in columns]
            for row in range(model.rowCount())]  # fmt: skip


def test_lines_lie_where_multi_otsu_parts_the_values(widget: PhasesWidget) -> None:
    lines = widget.panel.histogram.lines
    assert list(lines) == ["1", "2"]
    assert 39 < lines["1"] < 91
    assert 109 < lines["2"] < 191
    table = cells(widget.panel._table)
    assert [row[0] for row in table] == ["phase 1", "phase 2", "phase 3"]
    assert [row[2] for row in table] == ["33.3 %", "50 %", "16.7 %"]
    assert not widget.panel._otsu.isEnabled()
    widget.phases.value = 2
    assert len(widget.panel.histogram.lines) == 1


def test_a_line_that_is_dragged_is_a_threshold_and_stays_between_its_neighbours(
    widget: PhasesWidget, qtbot: Any
) -> None:
    panel, before = widget.panel, widget.panel.histogram.lines["2"]
    panel.histogram.moved.emit("1", 60.2)
    assert widget.thresholds.value == f"60, {before:g}"
    assert not widget.phases.enabled
    panel.histogram.moved.emit("1", 250.0)
    assert panel.histogram.lines["1"] == before - 1
    # the slice on the screen shows them
    panel.histogram.moved.emit("1", 60.0)
    qtbot.waitUntil(lambda: panel.preview.layer is not None and not panel.is_busy)
    expected = 1 + np.digitize(widget.layer.value.data[2], [60, before], right=True)
    np.testing.assert_array_equal(panel.preview.layer.data[0], expected)
    panel._otsu.click()
    assert widget.thresholds.value == ""
    assert panel.histogram.lines["2"] == before
    panel.shown.setChecked(False)
    assert panel.preview.layer is None


def test_bars_have_the_colours_of_the_phases(widget: PhasesWidget) -> None:
    histogram = widget.panel.histogram
    histogram.show_lines({"1": 50.0, "2": 150.0})
    colours, kinds = histogram._kinds(np.array([49.0, 50, 51, 151]), QColor("white"))
    assert [colours[kind].name() for kind in kinds] == [COLOURS[k] for k in (0, 0, 1, 2)]
    assert not histogram.grab().isNull()
    assert "threshold above phase 2 150" in histogram.accessibleName()


def test_names_in_the_table_are_those_of_the_form(widget: PhasesWidget) -> None:
    table = widget.panel._table
    table.item(1, 0).setText("clay, wet")
    assert widget.names.value == ", clay  wet"
    assert cells(table)[1][0] == "clay  wet"
    widget.names.value = "pores, clay"
    assert [row[0] for row in cells(table)] == ["pores", "clay", "phase 3"]
    widget.names.value = "a, b, c, d"
    assert "4 names for 3 phases" in widget.panel._line.text()


def test_the_result_is_a_layer_with_a_name_and_a_colour_for_each_phase(
    widget: PhasesWidget, viewer: Any
) -> None:
    widget.names.value = "pores, clay, quartz"
    widget.thickness.value = widget.regions.value = True
    widget.run()
    result = widget.wait()
    layer = viewer.layers["rock · phases"]
    np.testing.assert_array_equal(layer.data, result.labels)
    assert layer.metadata[METADATA_KEY]["provenance"]["job"] == "phases"
    for number, colour in enumerate(COLOURS[:3], 1):
        shown = QColor.fromRgbF(*map(float, layer.get_color(number)))
        assert shown.name() == colour
    assert layer.features["phase"].tolist() == ["pores", "clay", "quartz"]
    assert not viewer.layers["rock · thickness"].visible
    assert viewer.layers["rock · thickness"].colorbar.visible
    regions = viewer.layers["rock · regions"]
    assert not regions.visible
    np.testing.assert_array_equal(np.unique(regions.data), regions.features["index"])
    assert set(regions.features["phase"]) == {"pores", "clay", "quartz"}
    tables = widget.tables
    assert tables.isVisible()
    assert [row[:2] for row in cells(tables.phases)] == [
        ["pores", "33.3 %"], ["clay", "50 %"], ["quartz", "16.7 %"],
    ]  # fmt: skip
    assert [row[0] for row in cells(tables.contacts)] == ["pores – clay", "clay – quartz"]
    shown = [tables.phases.rows.columnCount(), tables.contacts.rows.columnCount()]
    # all that was measured but the number of the phase, which its row says
    measured = result.phases.dropna(axis=1, how="all"), result.contacts
    assert shown == [measured[0].shape[1] - 1, measured[1].shape[1] - 3]
    viewer.layers.remove("rock · phases")
    viewer.layers.remove("rock · thickness")
    viewer.layers.remove("rock · regions")
    assert not tables.isVisible()


def test_a_voxel_size_given_later_scales_all_that_was_measured(
    widget: PhasesWidget, viewer: Any, rock: np.ndarray, tmp_path: Path
) -> None:
    widget.thickness.value = widget.regions.value = True
    widget.run()
    widget.wait()
    saved = SavedLayer.of(viewer.layers["rock · phases"]).write(tmp_path / "saved")
    read = [Layer.create(*each) for each in read_layers(str(saved))]
    other = ViewerModel()
    for layer in read:
        other.add_layer(layer)
        assert set_voxel_size(other, layer, "6µm") == []
    widget._set_voxel_size("6µm")
    how = {"exterior": "keep", "thickness": True, "regions": True}
    scan = Volume(rock, spacing=6.0, unit="um", metadata={"value_unit": "HU"})
    expected = hushpore.run("phases", scan, how, "cpu")
    assert "value_unit" not in expected.files().images["thickness"].metadata
    layers = {layer.name.removeprefix("rock · "): layer for layer in viewer.layers}
    again = {layer.name.removeprefix("saved · "): layer for layer in read}
    result = layers["phases"].metadata[METADATA_KEY]["phases"]
    assert result is widget.result
    tables = {"phases", "contacts", "profile", "regions", "region_contacts"}
    assert set(result.files().tables) == tables
    for name, table in expected.files().tables.items():
        pd.testing.assert_frame_equal(result.files().tables[name], table)
    totals, wanted = (each.provenance["result"] for each in (result, expected))
    for name in ("phases", "contacts"):
        pd.testing.assert_frame_equal(pd.DataFrame(totals[name]), pd.DataFrame(wanted[name]))
    for of in (layers, again):
        np.testing.assert_allclose(of["thickness"].data, expected.thickness, rtol=1e-6)
        assert of["thickness"].contrast_limits[1] == pytest.approx(expected.thickness.max())
        diameters = of["regions"].features["equivalent_diameter"]
        np.testing.assert_allclose(diameters, expected.region_table["equivalent_diameter"])
        known = of["phases"].metadata[METADATA_KEY]
        assert known["provenance"]["input"]["spacing"] == [6.0, 6.0, 6.0]
        assert known["phases"].contacts["area"].tolist() == pytest.approx(
            expected.contacts["area"].tolist()
        )
    shown = cells(widget.tables.contacts)
    assert shown == [[cell_text(each) for each in row] for row in contacts_of(expected).to_numpy()]
    # of voxels of another shape nothing that was measured is true
    for size in ("6,6,20µm", "12,12,40µm"):
        widget._set_voxel_size(size)
        assert not widget.tables.isVisible()


def test_of_labels_each_is_a_phase(widget: PhasesWidget, viewer: Any, rock: np.ndarray) -> None:
    labels = viewer.add_labels(np.digitize(rock, [60, 150]) * 3, name="given", scale=(2, 2, 2))
    widget.layer.value = labels
    assert not widget.panel.isVisible()
    assert not widget.phases.enabled
    assert "each label counts as a phase" in widget._facts.text()
    widget.run()
    result = widget.wait()
    # what is 0 is not of the sample
    assert result.phases["grey_from"].tolist() == [3, 6]
    assert result.phases["share"].tolist() == [0.75, 0.25]


def test_a_result_folder_opens_with_names_colours_and_tables(
    widget: PhasesWidget, viewer: Any, tmp_path: Path
) -> None:
    widget.names.value = "pores, clay, quartz"
    widget.thickness.value = widget.regions.value = True
    widget.run()
    result = widget.wait()
    folder = SavedLayer.of(viewer.layers["rock · phases"]).write(tmp_path / "saved")
    assert pd.read_csv(folder / "phases.csv")["name"].tolist() == ["pores", "clay", "quartz"]
    assert (folder / "report.html").is_file()
    opened = {
        keywords["name"]: Layer.create(data, keywords, kind)
        for data, keywords, kind in read_layers(str(folder))
    }
    for name in ("phases", "regions", "thickness"):
        before, again = viewer.layers[f"rock · {name}"], opened[f"saved · {name}"]
        assert type(again) is type(before)
        assert again.visible is (name == "phases")
        np.testing.assert_array_equal(again.data, before.data)
        if name != "thickness":
            pd.testing.assert_frame_equal(again.features, before.features, check_dtype=False)
    layer = viewer.add_layer(opened["saved · phases"])
    np.testing.assert_array_equal(layer.get_color(2), viewer.layers["rock · phases"].get_color(2))
    # nothing is lost on the way to another folder
    for name, table in SavedLayer.of(layer).result.files().tables.items():
        pd.testing.assert_frame_equal(table, pd.read_csv(folder / f"{name}.csv"), check_dtype=False)
    # as the layer that is chosen it shows what was measured of it
    widget.layer.value = layer
    assert widget.tables.isVisible()
    assert len(cells(widget.tables.phases)) == len(result.names)
    # by itself it is seen, whatever it is
    (alone,) = read_layers(str(folder / "regions.tif"))
    assert alone[1]["visible"]


def test_files_of_that_name_that_are_no_phases_are_images(tmp_path: Path) -> None:
    for name in ("phases.csv", "contacts.csv", "result.json"):
        (tmp_path / name).write_text("{}")
    tifffile.imwrite(tmp_path / "phases.tif", np.ones((5, 6, 7), np.uint8))
    ((_, _, kind),) = read_layers(str(tmp_path / "phases.tif"))
    assert kind == "image"


def test_the_preview_leaves_out_the_air_that_a_run_leaves_out(qtbot: Any, viewer: Any) -> None:
    y, x = np.indices((64, 64)) - 31.5
    core = np.where(x < 0, 100, 200) * (np.hypot(y, x) < 24) + 10
    grey = np.repeat(core[None].astype(np.uint8), 3, axis=0)
    grey[:, 28:34, 40:44] = 10
    viewer.add_image(grey, name="core")
    widget = PhasesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.native.show()
    widget.exterior.value = "remove"
    qtbot.waitUntil(lambda: widget.panel.greys is not None and not widget.panel.is_busy)
    widget.panel.shown.setChecked(True)
    qtbot.waitUntil(lambda: not widget.panel.is_busy and widget.panel.preview.layer is not None)
    painted = widget.panel.preview.layer.data.copy()
    widget.run()
    result = widget.wait()
    np.testing.assert_array_equal(painted[0], result.labels[1])
    # air without, pore within
    assert painted[0, 0, 0] == 0
    assert painted[0, 30, 42] == 1
