import dask.array as da
import numpy as np
import pytest
from napari.components import ViewerModel
from scipy import ndimage

import hushpore
from hushpore.pores import preview
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.segment.grey_panel import STRICT, THRESHOLD
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
    assert explained(widget).startswith(f"Otsu {found:.0f} HU: void ")
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
    assert "other void is kept only where it is connected to this" in explained(
        widget, "hysteresis"
    )
    widget.hysteresis.value = None
    assert not panel._hysteresis.isChecked()
    assert STRICT not in panel.histogram.lines


def test_for_bright_pores_stricter_is_brighter(qtbot, widget, panel):
    widget.pores_are.value = "bright"
    panel._hysteresis.setChecked(True)
    assert widget.form.value.hysteresis > panel.histogram.lines[THRESHOLD]
    qtbot.waitUntil(lambda: "is brighter" in explained(widget, "hysteresis"))


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
    np.testing.assert_array_equal(viewer.layers["scan · pores"].data[z] > 0, shown)


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
    assert panel._line.text().startswith("33 % of the scan, in slices; no exterior air found.")


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
    assert "Plausible: void " in panel._line.text()
    assert f"Shaded: {found - 20:g} to {found + 30:g}" in panel.histogram.toolTip()
    assert "plausible thresholds" in panel.histogram.toolTip()
    # otherwise those between the grey values of pores and solid
    widget.form[THRESHOLD].value = found + 50.0
    between = panel.histogram._band
    assert between == panel.greys.plausible(widget.form.value)
    widget.form[THRESHOLD].value = "auto"
    assert panel.histogram._band == (found - 20.0, found + 30.0)
    panel.show_band(volume, {"threshold": found})
    assert panel.histogram._band == between


def test_a_measured_porosity_replaces_the_line_until_a_link_clears_it(widget, panel):
    lines = panel.histogram.lines
    assert panel._match.html == ""
    widget.measured_porosity.value = 12.5
    assert panel.histogram.lines == {}
    assert "so that the porosity is 12.5 %" in explained(widget)
    assert "Threshold for a porosity of 12.5 %" in panel._match.html
    panel._match.linkActivated.emit("clear")
    assert widget.form.value.measured_porosity is None
    assert panel.histogram.lines == lines


@pytest.fixture
def in_air(qtbot, viewer):
    """The widget with a disc of noise in air, whose pores have a known share."""
    rng = np.random.default_rng(2)
    away = np.hypot(*(np.indices((64, 64)) - 31.5))
    sample = np.broadcast_to(away < 25, (12, 64, 64))
    noise = ndimage.gaussian_filter(rng.normal(size=sample.shape), 1.5)
    pores = sample & (away < 21) & (noise > np.quantile(noise, 0.8))
    grey = np.where(sample & ~pores, 20000, 8000) + rng.normal(0, 600, sample.shape)
    viewer.add_image(grey.astype(np.uint16), name="core")
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.true_share = pores.sum() / sample.sum()
    return widget


def test_histogram_and_share_are_those_of_the_sample_once_it_is_found(qtbot, in_air, viewer):
    panel, said = in_air.greys, []
    panel._search.changed.connect(lambda: said.append((panel._line.text(), explained(in_air))))
    qtbot.waitUntil(lambda: panel.greys is not None and panel._search._wanted is not None)
    assert panel._line.text().startswith("Whole scan; looking for exterior air …\n")
    assert explained(in_air).endswith("of the whole scan.")
    wait(qtbot, in_air)
    sample = panel._search.sample
    assert panel._line.text().startswith("Sample; 52 % of the scan is exterior.\nPlausible: ")
    assert panel.histogram._counted is sample.histogram
    job = hushpore.segment_pores(viewer.layers["core"].data, minimum_voxels=1)
    # the threshold stays that of the whole scan
    assert panel.histogram.lines == {THRESHOLD: job.threshold}
    assert sample.histogram.share_beyond(job.threshold) == pytest.approx(job.porosity)
    assert job.porosity == pytest.approx(in_air.true_share, abs=0.01)
    share = float(explained(in_air).split("void ")[1].split(" %")[0]) / 100
    assert explained(in_air).endswith("% of the sample.")
    assert share == pytest.approx(job.porosity, abs=0.01)
    # no line is added or removed
    assert {text.count("\n") for text, _ in said} == {1}


def test_while_the_line_is_dragged_the_sample_stays_and_is_found_again_after_it(
    qtbot, in_air, monkeypatch
):
    panel = in_air.greys
    wait(qtbot, in_air)
    first, range_before = panel._search.sample, panel._line.text().split("\n")[1]
    started = []
    submit = panel._search._worker.submit
    monkeypatch.setattr(
        panel._search._worker, "submit", lambda *given: started.append(1) or submit(*given)
    )
    for value in (15000.0, 16000.0, 17000.0):
        panel.histogram.moved.emit(THRESHOLD, value)
        assert panel._search.sample is first
        assert not started
        share = first.histogram.share_beyond(value)
        assert explained(in_air) == f"Void {100 * share:.0f} % of the sample."
        assert panel._line.text().split("\n")[1] == range_before
    assert panel.is_busy
    wait(qtbot, in_air)
    assert len(started) == 1
    assert panel._search.sample is not first
    job = hushpore.segment_pores(in_air.layer.value.data, threshold=17000.0, minimum_voxels=1)
    assert panel._search.sample.histogram.share_beyond(17000.0) == pytest.approx(job.porosity)


def test_where_air_counts_the_histogram_is_of_the_whole_scan(qtbot, in_air, viewer):
    panel = in_air.greys
    wait(qtbot, in_air)
    in_air.form.exterior.value = "keep"
    wait(qtbot, in_air)
    assert panel._line.text().startswith("Whole scan; exterior air counts as pore.")
    assert panel.histogram._counted is panel.greys.histogram
    assert explained(in_air).endswith("of the whole scan.")
    # and of a measured porosity, whose threshold is not known before the run
    in_air.form.exterior.value = "auto"
    in_air.form.measured_porosity.value = 12.0
    wait(qtbot, in_air)
    assert panel._line.text().startswith("Whole scan.\n")
    in_air.form.measured_porosity.value = None
    wait(qtbot, in_air)
    assert panel._line.text().startswith("Sample; ")
    viewer.layers.remove("core")
    wait(qtbot, in_air)
    assert panel._line.text().startswith("Whole scan; no exterior air found.")


def test_a_chosen_mask_is_the_sample(qtbot, in_air, viewer):
    panel = in_air.greys
    away = np.hypot(*(np.indices((64, 64)) - 31.5))
    mask = np.broadcast_to(away < 25, (12, 64, 64)).astype(np.uint8)
    viewer.add_labels(mask, name="disc")
    in_air.form.sample_mask.value = "disc"
    wait(qtbot, in_air)
    sample = panel._search.sample
    assert sample.excluded == pytest.approx(1 - mask.mean())
    threshold = panel.histogram.lines[THRESHOLD]
    share = sample.histogram.share_beyond(threshold)
    assert share == pytest.approx(in_air.true_share, abs=0.01)


def test_a_message_takes_the_place_of_the_lines_until_it_is_over(qtbot, in_air, viewer):
    panel = in_air.greys
    panel.shown.setChecked(True)
    wait(qtbot, in_air)
    viewer.dims.ndisplay = 3
    assert "shown in 2D only" in panel._line.text()
    panel._search.changed.emit()
    assert "shown in 2D only" in panel._line.text()
    viewer.dims.ndisplay = 2
    wait(qtbot, in_air)
    assert panel._line.text().startswith("Sample; ")
