import dask.array as da
import numpy as np
import pytest
from napari.components import ViewerModel

import hushpore
from hushpore.pores import preview
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.segment.grey_histogram import STRICT, THRESHOLD
from hushpore.viewer.segment.widget import PoresWidget

SOON = 60_000


@pytest.fixture
def viewer(scan):
    viewer = ViewerModel()
    metadata = {METADATA_KEY: {"metadata": {"value_unit": "HU"}}}
    viewer.add_image(scan.round().astype(np.int16), name="scan", metadata=metadata)
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    wait(qtbot, widget)
    return widget


@pytest.fixture
def panel(widget):
    return widget.greys


def wait(qtbot, widget):
    qtbot.waitUntil(lambda: not widget.greys.is_busy, timeout=SOON)


def threshold(widget):
    return widget.form.value.threshold


def explained(widget, name="threshold"):
    line = widget.form._lines[name]
    return "" if line.isHidden() else line.text().replace("\u00a0", " ")


def void(viewer):
    return next((layer for layer in viewer.layers if layer.name.endswith("void (preview)")), None)


def test_the_line_is_where_the_method_of_the_form_finds_it(widget, panel, viewer):
    found = hushpore.segment_pores(viewer.layers["scan"].data).threshold
    assert panel.histogram.lines == {THRESHOLD: found}
    assert explained(widget).startswith(f"Auto (Otsu) {found:.0f} HU: ")
    assert threshold(widget) == "auto"
    assert void(viewer) is None


def test_moving_the_line_sets_the_threshold_and_shows_the_void(qtbot, widget, panel, viewer):
    panel.histogram.moved.emit(THRESHOLD, -120.4)
    wait(qtbot, widget)
    assert threshold(widget) == -120.0
    assert widget.form.threshold._box.currentText() == "Manual"
    assert "HU" in widget.form.threshold._spin.text()
    assert panel.histogram.lines == {THRESHOLD: -120.0}
    assert panel.shown.isChecked()
    z = viewer.dims.current_step[0]
    values = viewer.layers["scan"].data[z]
    np.testing.assert_array_equal(void(viewer).data[0] > 0, values <= -120)


def test_typing_moves_the_line_and_a_method_moves_it_back(qtbot, widget, panel):
    automatic = panel.histogram.lines[THRESHOLD]
    field = widget.form.threshold
    field._box.setCurrentText("Manual")
    assert threshold(widget) == automatic
    field._spin.setValue(33.0)
    assert panel.histogram.lines == {THRESHOLD: 33.0}
    assert panel.histogram._mark == ("Auto", automatic)
    field._box.setCurrentText("Li")
    wait(qtbot, widget)
    assert panel.histogram.lines[THRESHOLD] != 33.0
    assert explained(widget).startswith("Li -")


def test_a_second_line_is_the_hysteresis(qtbot, widget, panel):
    automatic = panel.histogram.lines[THRESHOLD]
    panel._hysteresis.setChecked(True)
    strict = widget.form.value.hysteresis
    assert strict < automatic
    assert panel.histogram.lines[STRICT] == strict
    assert "other void is kept only where it is connected to these" in explained(
        widget, "hysteresis"
    )
    widget.hysteresis.value = None
    assert not panel._hysteresis.isChecked()
    assert STRICT not in panel.histogram.lines


def test_for_bright_pores_stricter_is_brighter(qtbot, widget, panel):
    widget.pores_are.value = "bright"
    panel._hysteresis.setChecked(True)
    assert widget.form.value.hysteresis > panel.histogram.lines[THRESHOLD]
    qtbot.waitUntil(lambda: "brighter" in explained(widget))


def test_a_local_threshold_has_no_line_and_says_why_but_a_void(qtbot, widget, panel, viewer):
    panel.shown.setChecked(True)
    widget.threshold.value = "sauvola"
    wait(qtbot, widget)
    assert not panel.histogram.lines
    assert "no line to drag" in panel.histogram.toolTip()
    assert not panel._hysteresis.isEnabled()
    assert "no line to drag" in panel._hysteresis.toolTip()
    assert void(viewer).data.any()


def test_a_method_that_finds_nothing_is_said(qtbot, widget, panel, viewer, scan):
    viewer.add_image((scan > 0).astype(np.uint8), name="two greys")
    widget.threshold.value = "minimum"
    wait(qtbot, widget)
    assert not panel.histogram.lines
    assert "finds no threshold" in explained(widget)


def test_run_takes_the_void_away(qtbot, widget, panel, viewer):
    panel.histogram.moved.emit(THRESHOLD, 0.0)
    wait(qtbot, widget)
    shown = void(viewer).data[0] > 0
    z = viewer.dims.current_step[0]
    widget.run()
    qtbot.waitUntil(lambda: void(viewer) is None)
    assert not panel.shown.isChecked()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=SOON)
    np.testing.assert_array_equal(viewer.layers["scan pores"].data[z] > 0, shown)


def test_deleting_the_void_unchecks_it(qtbot, widget, panel, viewer):
    panel.shown.setChecked(True)
    wait(qtbot, widget)
    viewer.layers.remove(void(viewer))
    assert not panel.shown.isChecked()


def test_another_layer_has_another_histogram_and_is_counted_once(
    qtbot, widget, panel, viewer, scan, monkeypatch
):
    counted = []
    survey = preview.survey_greys

    def count(volume, threads):
        counted.append(volume.name)
        return survey(volume, threads)

    monkeypatch.setattr(preview, "survey_greys", count)
    first = panel.greys
    viewer.add_image((scan / 1e5).astype(np.float32), name="small numbers")
    wait(qtbot, widget)
    assert panel.greys is not first
    field = widget.form.threshold
    panel.histogram.moved.emit(THRESHOLD, 0.00123)
    assert threshold(widget) == pytest.approx(0.00123, abs=2e-5)
    assert "HU" not in field._spin.text()
    widget.layer.value = viewer.layers["scan"]
    wait(qtbot, widget)
    assert panel.greys is first
    assert counted == ["small numbers"]


def test_labels_have_no_histogram_and_no_threshold(qtbot, widget, panel, viewer, scan):
    labels = viewer.add_labels((scan < 0).astype(np.uint8), name="void")
    widget.layer.value = labels
    assert panel.isHidden()
    field = widget.form.threshold
    assert not field.enabled
    assert "without grey values" in field.tooltip
    widget.layer.value = viewer.layers["scan"]
    wait(qtbot, widget)
    assert not panel.isHidden()
    assert field.enabled


def test_a_large_volume_is_sampled_and_that_is_said(qtbot, widget, panel, viewer, scan):
    lazy = da.from_array(np.tile(scan, (6, 1, 1)), chunks=(1, 32, 32))
    viewer.add_image(lazy, name="on disk")
    wait(qtbot, widget)
    assert panel.greys.share == pytest.approx(16 / 48)
    assert "Histogram of 33 % of the voxels" in panel._line.text()
    assert "sampled voxels" in explained(widget)


def test_an_image_that_cannot_be_counted_says_why(qtbot, widget, panel, viewer):
    viewer.add_image(np.full((4, 16, 16), 3, np.uint8), name="flat")
    wait(qtbot, widget)
    assert "constant" in panel._line.text()
    assert not panel.histogram.lines
    panel.shown.setChecked(True)
    assert void(viewer) is None


def test_the_tab_key_comes_to_the_histogram_before_the_form(widget, panel):
    chain, at = [], widget.layer.native
    while at is not widget.pores_are.native:
        chain.append(at)
        at = at.nextInFocusChain()
    wanted = [panel.histogram, panel.shown, panel._hysteresis, panel._log]
    wanted.append(widget.form.threshold._box)
    assert [each for each in chain if each in wanted] == wanted


def test_without_a_layer_there_is_nothing(qtbot, widget, panel, viewer):
    viewer.layers.clear()
    assert panel.isHidden()
    assert panel.greys is None


def test_thresholds_that_cannot_be_told_apart_are_shaded_while_the_result_s_is_set(widget, panel):
    volume, found = panel._target.volume, panel.histogram.lines[THRESHOLD]
    band = {"threshold": found, "threshold_low": found - 20.0, "threshold_high": found + 30.0}
    panel.show_band(volume, band)
    assert panel.histogram._band == (found - 20.0, found + 30.0)
    assert "equally plausible" in panel.histogram.toolTip()
    widget.form[THRESHOLD].value = found + 50.0
    assert panel.histogram._band is None
    widget.form[THRESHOLD].value = "auto"
    assert panel.histogram._band is not None
    panel.show_band(volume, {"threshold": found})
    assert panel.histogram._band is None


def test_a_link_sets_and_clears_the_measured_porosity(widget, panel, monkeypatch):
    lines = panel.histogram.lines
    assert "Match a measured porosity" in panel._match.html.replace("\u00a0", " ")
    monkeypatch.setattr(
        "hushpore.viewer.segment.threshold_panel.QInputDialog.getDouble", lambda *a: (12.5, True)
    )
    panel._match.linkActivated.emit("ask")
    assert widget.form.value.measured_porosity == 12.5
    assert panel.histogram.lines == {}
    assert "so that the porosity is 12.5 %" in explained(widget)
    assert "Threshold for a porosity of 12.5 %" in panel._match.html
    panel._match.linkActivated.emit("clear")
    assert widget.form.value.measured_porosity is None
    assert panel.histogram.lines == lines
