import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.layers import Layer
from qtpy.QtWidgets import QWidget

import hushpore
from hushpore.base.errors import HushporeError, InputError
from hushpore.runs.compare import distributions
from hushpore.viewer.layers.conversion import Lineage, set_lineage
from hushpore.viewer.phases import phase_layers
from hushpore.viewer.results.compare import BY_VOLUME, CompareWidget
from hushpore.viewer.results.pore_layer import pore_layer
from hushpore.viewer.results.record_panel import save_table
from hushpore.viewer.running.task import capture

SOON = 10_000


def complete(result):
    """Give a stand-in the columns that real results have too."""
    pores, throats = result.pores, result.throats
    for column in ("inscribed_diameter", "surface_area", "elongation_ratio"):
        pores[column] = pores["equivalent_diameter"] * 0.5
    pores["coordination_number"] = 1
    throats["inscribed_diameter"] = throats["area"]
    return result


@pytest.fixture
def results(made_of_cubes):
    return [complete(made_of_cubes(sides)) for sides in ([2, 3, 4, 5], [4, 5, 6, 7, 8])]


@pytest.fixture
def viewer(results):
    viewer = ViewerModel()
    viewer.add_image(results[0].labels, name="scan")
    for name, result in zip(("before", "after"), results, strict=True):
        viewer.add_layer(Layer.create(*pore_layer(result, name)))
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = CompareWidget(viewer)
    qtbot.addWidget(widget.native)
    qtbot.waitUntil(lambda: widget.result is not None, timeout=SOON)
    return widget


def column(widget, number):
    return [widget.table.item(row, number).text() for row in range(widget.table.rowCount())]


def test_it_begins_with_the_two_newest_results(widget, results):
    assert [choice.native.currentText() for choice in (widget.a, widget.b)] == ["before", "after"]
    row = column(widget, 0).index("number of pores")
    assert [column(widget, place)[row] for place in (1, 2, 3)] == ["4", "5", "+25.0 %"]
    sizes = column(widget, 0).index("equivalent diameter (µm)")
    middle = results[0].pores["equivalent_diameter"].median()
    assert column(widget, 1)[sizes] == f"{middle:.3g}"
    assert not widget._nothing.isVisibleTo(widget.native)


def test_the_plot_shows_what_the_library_says(widget, results):
    np.testing.assert_allclose(widget.canvas.numbers["a"].sum(), 1)
    widget.shares.value = BY_VOLUME
    widget.cumulative.value = True
    widget.log.value = True
    both = widget.result
    pd.testing.assert_frame_equal(
        widget.canvas.numbers, distributions(both.first, both.second, by_volume=True, log=True)
    )
    axes = widget.canvas.figure.axes[0]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "A (4 pores)", "B (5 pores)",
    ]  # fmt: skip


def test_a_click_on_a_row_plots_its_quantity(widget):
    row = column(widget, 0).index("sphericity")
    widget.table.setCurrentCell(row, 0)
    assert widget.quantity.value == "sphericity"
    assert widget.canvas.figure.axes[0].get_xlabel() == "sphericity"


def test_another_layer_and_a_folder_can_be_chosen(qtbot, widget, viewer, results, tmp_path):
    viewer.add_layer(Layer.create(*pore_layer(results[0], "third")))
    qtbot.waitUntil(lambda: widget.result.second.name == "third", timeout=SOON)
    assert [choice.native.currentText() for choice in (widget.a, widget.b)] == ["after", "third"]
    widget.a.value = viewer.layers["before"]
    qtbot.waitUntil(lambda: widget.result.first.name == "before", timeout=SOON)
    assert set(widget.result.table["difference"].dropna()) == {0.0}
    widget.b.value = tmp_path / "nothing"
    qtbot.waitUntil(lambda: widget._problem.text() != "", timeout=SOON)
    assert "No result found in" in widget._problem.text()
    assert widget.table.rowCount() == 0


def test_numbers_that_change_are_compared_anew(qtbot, widget, viewer, results):
    layer = viewer.layers["before"]
    known = layer.features.iloc[:2].copy()
    layer.features = known
    qtbot.waitUntil(lambda: len(widget.result.first.pores) == 2, timeout=SOON)
    assert column(widget, 0)


def test_a_layer_that_goes_leaves_the_rest(qtbot, widget, viewer):
    viewer.layers.remove(viewer.layers["after"])
    qtbot.waitUntil(lambda: widget.result is None, timeout=SOON)
    assert widget._nothing.isVisibleTo(widget.native)
    assert not widget._save_plot.isEnabled()


def test_lengths_that_cannot_be_compared_are_said(qtbot, widget, viewer, made_of_cubes):
    unknown = complete(made_of_cubes([2, 3], unit="pixel"))
    viewer.add_layer(Layer.create(*pore_layer(unknown, "unknown")))
    qtbot.waitUntil(lambda: "cannot be converted" in widget._problem.text(), timeout=SOON)


def test_plot_and_table_are_saved(qtbot, widget, tmp_path):
    for name in ("a.png", "a.svg", "a.csv"):
        widget.canvas.save(tmp_path / name)
        qtbot.waitUntil((tmp_path / name).exists, timeout=SOON)
    assert pd.read_csv(tmp_path / "a.csv").columns.tolist()[:2] == ["from", "to"]
    table = widget.result.table
    save_table(tmp_path / "t.csv", table)
    qtbot.waitUntil((tmp_path / "t.csv").exists, timeout=SOON)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "t.csv").iloc[:, 2:], table.iloc[:, 2:])


def test_it_follows_no_layer_once_it_is_gone(qtbot, viewer):
    widget = CompareWidget(viewer)
    qtbot.addWidget(widget.native)
    before = len(viewer.layers.events.callbacks)
    dock = QWidget()
    qtbot.addWidget(dock)
    widget.native.setParent(dock)
    widget.native.setParent(None)
    assert len(viewer.layers.events.callbacks) == before - 2
    widget._wait.stop()


def test_a_script_compares_and_waits(widget, viewer, tmp_path):
    widget.a.value, widget.b.value = viewer.layers["after"], viewer.layers["before"]
    widget.run()
    compared = widget.wait(SOON / 1000)
    assert (compared.first.name, compared.second.name) == ("after", "before")
    assert widget.result is compared
    widget.b.value = viewer.layers["after"]
    with pytest.raises(InputError, match="Choose two results"):
        widget.run()
    widget.b.value = tmp_path / "nothing"
    widget.run()
    with pytest.raises(HushporeError, match="No result found in"):
        widget.wait(SOON / 1000)
    assert list(widget.asdict()) == ["a", "b", "quantity", "shares", "log", "cumulative"]


def test_two_measurements_of_phases_are_compared_by_name(widget, viewer, qtbot):
    for name, moved in (("one", 0), ("other", 2)):
        cuts = np.repeat([30, 100, 200], [6 + moved, 8 - moved, 6]).astype(np.uint8)
        target = capture(viewer.add_image(np.broadcast_to(cuts, (8, 20, 20)).copy(), name=name))
        found = hushpore.measure_phases(
            target.volume, thresholds="60,150", names="pores, clay, quartz", exterior="keep"
        )
        viewer.add_layer(Layer.create(*phase_layers(found, target)[0]))
    qtbot.waitUntil(lambda: widget.result is not None and widget.result.pores is None, timeout=SOON)
    assert [choice.native.currentText() for choice in (widget.a, widget.b)] == [
        "one · phases", "other · phases",
    ]  # fmt: skip
    row = column(widget, 0).index("share of pores (%)")
    assert [column(widget, place)[row] for place in (1, 2, 3)] == ["30", "40", "+33.3 %"]
    assert widget.quantity.value == "share of"
    assert not widget.log.enabled
    shown = widget.canvas.numbers
    assert shown["b"].tolist() == pytest.approx([0.4, 0.3, 0.3])
    widget.table.setCurrentCell(column(widget, 0).index("share of contact clay - pores (%)"), 0)
    assert widget.quantity.value == "share of contact"
    # as napari does whenever a layer comes or goes
    widget.reset_choices()
    assert widget.quantity.value == "share of contact"
    # of pores again, with what belongs to them
    widget.a.value, widget.b.value = viewer.layers["before"], viewer.layers["after"]
    widget.run()
    assert widget.wait().pores is not None
    assert widget.quantity.value == "equivalent_diameter"
    assert widget.log.enabled


def test_two_results_of_one_scan_have_no_test_of_significance(widget, viewer, qtbot):
    assert "Mann-Whitney p" in widget._shift.text()
    for name in ("before", "after"):
        set_lineage(viewer.layers[name], Lineage("one scan", name, "pores", name))
    widget.run()
    qtbot.waitUntil(lambda: widget.result is not None and widget.result.of_one_scan, timeout=SOON)
    assert "Median shifted by" in widget._shift.text()
    assert "Both results are of one scan" in widget._shift.text()
    assert "p =" not in widget._shift.text()
    assert "interval" not in widget._shift.text()
