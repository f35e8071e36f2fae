from __future__ import annotations

import html
import threading

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Labels

import hushpore
from hushpore import jobs
from hushpore.base.events import Progress
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers.conversion import METADATA_KEY, Lineage, scan_of, set_lineage
from hushpore.viewer.patches.widget import PatchesWidget
from hushpore.viewer.phases import PhasesWidget
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.segment import widget as segment_widget
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def viewer(scan):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    return widget


def run(qtbot, widget):
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=120_000)


def test_the_result_of_the_denoiser_is_taken_as_soon_as_it_is_there(viewer, widget, scan):
    metadata = {METADATA_KEY: {"provenance": {"job": "denoise"}}}
    denoised = viewer.add_image(scan, name="scan · denoised", metadata=metadata)
    assert widget.layer.value is denoised


def test_what_was_measured_in_a_scan_is_no_scan(viewer, widget, scan):
    metadata = {METADATA_KEY: {"provenance": {"job": "pores"}}}
    thickness = viewer.add_image(scan, name="scan · thickness (pores)", metadata=metadata)
    assert widget.layer.value is viewer.layers["scan"]
    for kind in (DenoiseWidget, PoresWidget, PhasesWidget, PatchesWidget):
        assert kind.accepts(thickness)
        assert not kind.prefers(thickness)


def test_what_is_wrong_with_a_setting_is_said_in_the_words_of_the_form(qtbot, widget):
    widget.form.hysteresis.value = 1e6
    run(qtbot, widget)
    assert "must be stricter" in widget._result.text()
    widget.form.update({"hysteresis": None, "threshold": "li", "otsu_classes": 3})
    run(qtbot, widget)
    assert "or 'Otsu classes' = 2" in html.unescape(widget._result.text())


def test_labels_can_be_chosen_but_are_not_taken_unasked(viewer, widget, scan):
    labels = viewer.add_labels((scan < 0).astype(np.uint8), name="void")
    assert PoresWidget.accepts(labels)
    assert widget.layer.value is viewer.layers["scan"]
    widget.layer.value = labels
    assert "all labels count as void" in widget._facts.text()


def test_a_threshold_of_ones_own_begins_where_the_method_found_one(qtbot, viewer, widget, scan):
    qtbot.waitUntil(lambda: not widget.greys.is_busy, timeout=60_000)
    widget.form.threshold._box.setCurrentText("Manual")
    found = hushpore.segment_pores(scan).threshold
    assert widget.form.value.threshold == pytest.approx(found, abs=0.5)


def test_the_real_segmentation_runs_behind_the_widget(qtbot, viewer, widget, scan):
    run(qtbot, widget)
    assert "Porosity" in widget._result.text()
    labels = viewer.layers["scan · pores"]
    assert isinstance(labels, Labels)
    assert labels.data.shape == scan.shape
    assert tuple(labels.scale) == (2, 0.5, 0.5)
    assert labels.data.max() == len(labels.features) == 4
    assert np.mean((labels.data > 0) == (scan < 0)) > 0.99
    assert labels.metadata[METADATA_KEY]["provenance"]["job"] == "pores"
    assert widget.layer.value is viewer.layers["scan"]


def test_labels_are_given_to_the_job_as_the_void(qtbot, viewer, widget, scan, monkeypatch):
    given = []

    def stop(volume, settings, backend):
        given.append(volume)
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(jobs.JobDescription, "load", lambda kind: stop)
    labels = viewer.add_labels((scan < 0) * 7, name="void")
    widget.layer.value = labels
    run(qtbot, widget)
    assert given[0].dtype == np.bool_
    np.testing.assert_array_equal(given[0].data, scan < 0)


def test_of_a_series_one_image_is_to_be_chosen(qtbot, viewer, widget, scan):
    series = np.stack([scan, scan + 1, scan + 2])
    layer = viewer.add_image(series, name="series", scale=(1, 3, 2, 2), colormap="magma")
    assert "Split Stack" in widget._facts.text()
    assert not widget._buttons.run.isEnabled()
    qtbot.waitUntil(lambda: not widget.greys.is_busy, timeout=60_000)
    assert widget.greys.histogram.lines
    viewer.dims.set_point(0, 2)
    assert "Use the image shown" in widget._facts.html
    widget._follow("shown image")
    shown = widget.layer.value
    assert (shown.name, shown.colormap.name, layer.visible) == ("series t=2", "magma", False)
    np.testing.assert_array_equal(shown.data, series[2])
    np.testing.assert_allclose(shown.scale, (3, 2, 2))
    assert widget._buttons.run.isEnabled()


def test_the_result_can_be_merged_anew_at_once(qtbot, viewer, widget, scan):
    assert widget.remerging.isHidden()
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    assert widget.remerging.layer is labels
    assert not widget.remerging.isHidden()
    widget.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not widget.remerging.is_busy, timeout=20_000)
    provenance = labels.metadata[METADATA_KEY]["provenance"]
    assert provenance["settings"]["merge_height"] == 50.0
    assert f"{provenance['result']['count']} pores" in widget._result.text()
    assert widget.form.value.merge_height == 50.0
    assert "Open results table" in widget._result.text()
    assert "Plots" in widget._result.text()
    widget.remerging.undo()
    qtbot.waitUntil(lambda: not widget.remerging.is_busy, timeout=20_000)
    assert widget.form.value.merge_height == "auto"


def test_a_mask_and_markers_are_layers(qtbot, viewer, widget, scan):
    mask = np.zeros(scan.shape, np.uint8)
    mask[:, :, :16] = 1
    viewer.add_labels(mask, name="left")
    viewer.add_points([[4, 8.2, 8.3]], scale=(2, 0.5, 0.5), units=("mm",) * 3, name="seed")
    widget.sample_mask.value = "left"
    widget.markers.value = "seed"
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    assert labels.data.max() == 1
    assert labels.data[4, 8, 8] == 1
    assert not labels.data[:, :, 16:].any()
    assert "Split at markers" in widget.remerging._note.text()
    widget.remerging._box.setValue(2.0)
    qtbot.waitUntil(lambda: not widget.remerging.is_busy, timeout=20_000)
    assert (widget.form.value.merge_height, widget.form.value.markers) == (2.0, "")
    widget.remerging.undo()
    assert widget.form.value.markers == "seed"


def test_another_scan_begins_with_the_method_and_not_with_the_number(qtbot, viewer, widget, scan):
    widget.threshold.value = "li"
    widget.threshold.value = 120.0
    widget.merge_height.value = 2.0
    mask = viewer.add_labels(np.ones(scan.shape, np.uint8), name="mask")
    widget.sample_mask.value = mask
    other = viewer.add_image(scan * 0.1, name="other")
    assert widget.layer.value is other
    assert widget.form.value.threshold == "li"
    assert widget.form.value.sample_mask == ""
    # which is no grey value, and is marked as changed
    assert widget.form.value.merge_height == 2.0
    assert "Threshold (120)" in widget._result.text()
    # nothing is lost: back at the first scan all is as it was
    widget.layer.value = viewer.layers["scan"]
    assert widget.form.value.threshold == 120.0
    assert widget.form.value.sample_mask == "mask"
    assert widget._result.isHidden()


def test_a_threshold_can_be_taken_over_to_another_scan(qtbot, viewer, widget, scan):
    widget.threshold.value = 120.0
    viewer.add_image(scan, name="other")
    widget._result.linkActivated.emit("keep settings")
    assert widget.form.value.threshold == 120.0
    assert widget._result.isHidden()


def test_a_layer_that_was_made_of_the_scan_keeps_its_threshold(qtbot, viewer, widget, scan):
    widget.threshold.value = 120.0
    denoised = Image(scan, name="scan · denoised")
    set_lineage(denoised, Lineage(scan_of(viewer.layers["scan"]), "", "denoise", denoised.name))
    viewer.add_layer(denoised)
    assert widget.layer.value is denoised
    assert widget.form.value.threshold == 120.0


def test_the_merging_of_another_scan_is_out_of_the_way(qtbot, viewer, widget, scan):
    run(qtbot, widget)
    viewer.add_image(scan, name="other")
    assert widget.remerging.isHidden()
    assert "Porosity" not in widget._result.text()
    viewer.layers.selection.active = viewer.layers["scan · pores"]
    assert not widget.remerging.isHidden()
    widget.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not widget.remerging.is_busy)
    assert "<br>scan · pores: " in widget._result.text()
    assert widget.timing.isHidden()
    # which the next run on the other scan does not take over
    assert widget.form.value.merge_height == "auto"


def test_labels_that_were_painted_on_are_not_taken_away(qtbot, viewer, widget):
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    labels.paint((4, 8, 8), 1)
    for _ in range(2):
        run(qtbot, widget)
    assert labels in viewer.layers
    assert not labels.visible


def test_labels_that_were_painted_on_are_not_merged_anew(qtbot, viewer, widget):
    run(qtbot, widget)
    labels, control = viewer.layers["scan · pores"], widget.remerging
    control._box.setValue(50.0)
    # one that is asked for already is of no use, either
    labels.paint((4, 8, 8), 77)
    painted = labels.data.copy()
    qtbot.waitUntil(lambda: not control.is_busy)
    assert not control.isHidden()
    assert not control._slider.isEnabled()
    assert "Edited by hand" in control._note.text().replace("\u00a0", " ")
    control.undo()
    np.testing.assert_array_equal(labels.data, painted)
    # nor made anew of what was there before by another voxel size
    widget._set_voxel_size("4000,1000,1000um")
    np.testing.assert_array_equal(labels.data, painted)
    # the tables, which are out of date, keep numbers and unit
    assert tables_of(labels).unit == "mm"
    # those of another run are
    run(qtbot, widget)
    assert control._slider.isEnabled()


@pytest.fixture
def core(viewer):
    """A core in air, with pores of 27 voxels and of one."""
    y, x = np.indices((80, 80)) - 39.5
    values = np.where(np.hypot(y, x) < 30, 1000, 100) * np.ones((12, 80, 80))
    values[4:7, 30:33, 30:33] = values[4:7, 50:53, 40:43] = values[2, 40, 60] = 100
    noise = np.random.default_rng(0).normal(0, 10, values.shape)
    layer = viewer.add_image((values + noise).astype(np.float32), name="core")
    return layer


def follow_remedy(widget, setting):
    """Click the link of the remark whose remedy changes a setting."""
    (number,) = (
        number
        for number, remark in enumerate(widget._remarks.remarks)
        if remark.remedy is not None and setting in remark.remedy.settings
    )
    widget._remarks._first.linkActivated.emit(f"remedy {number}")


def test_the_result_says_first_what_was_done_about_air_and_a_link_changes_it(
    qtbot, viewer, widget, core
):
    widget.layer.value = core
    run(qtbot, widget)
    text = widget._remarks.text()
    assert "Surrounding air (56 % of the volume) was excluded. " in text
    assert widget.result.porosity == pytest.approx(54 / (12 * np.pi * 30**2), rel=0.02)
    assert "Include it" in text
    follow_remedy(widget, "exterior")
    qtbot.waitUntil(lambda: not widget.is_running, timeout=120_000)
    assert widget.exterior.value == "keep"
    text = widget._remarks.text()
    assert "Surrounding air (52 % of the volume) was counted as pore. " in text
    assert widget.result.porosity > 0.5
    # and back
    assert "Exclude it" in text
    follow_remedy(widget, "exterior")
    qtbot.waitUntil(lambda: not widget.is_running, timeout=120_000)
    assert widget.exterior.value == "auto"
    assert "Surrounding air (56 % of the volume)" in widget._remarks.text()


def test_pores_too_small_for_a_shape_are_left_out_and_links_change_that(
    qtbot, viewer, widget, core
):
    widget.layer.value = core
    assert widget.minimum_voxels.value is None
    run(qtbot, widget)
    text = widget._remarks.text()
    assert "1 pore smaller than 8 voxels is left out (1.8 % of the void): too small for " in text
    assert "Count it" in text
    assert len(widget.result.pores) == 2
    follow_remedy(widget, "minimum_voxels")
    qtbot.waitUntil(lambda: not widget.is_running, timeout=120_000)
    assert widget.minimum_voxels.value == 1
    text = widget._remarks.text()
    assert "1 of 3 pores is smaller than 8 voxels, too small for shape measures." in text
    assert "Exclude it" in text
    follow_remedy(widget, "minimum_voxels")
    qtbot.waitUntil(lambda: not widget.is_running, timeout=120_000)
    assert widget.minimum_voxels.value == 8
    assert len(widget.result.pores) == 2
    assert "smaller than 8" not in widget._remarks.text()


def test_the_choices_about_air_are_in_plain_words(widget):
    box = widget.form.exterior.native
    words = [box.itemText(row) for row in range(box.count())]
    assert words == ["Exclude if found", "Count as pore", "Always exclude", "Exclude by slice"]
    # where it is explained, too
    assert "Count as pore: never excluded" in box.toolTip()
    widget.exterior.value = "remove"
    assert box.currentText() == "Always exclude"
    assert widget.form.value.exterior == "remove"


@pytest.fixture
def compiling(monkeypatch):
    """A preparation that goes on until the event is set."""
    done, closed = threading.Event(), threading.Event()

    def prepare():
        try:
            while not done.wait(0.01):
                yield Progress("preparing, first time only", 0, 0, "", 0.0)
        finally:
            closed.set()

    monkeypatch.setattr(segment_widget, "prepare_kernels", prepare)
    yield done, closed
    done.set()


def test_it_says_so_while_kernels_are_compiled_and_stops_with_the_widget(
    qtbot, viewer, compiling, monkeypatch
):
    monkeypatch.setattr(segment_widget, "_COMPILING", 100)
    done, closed = compiling
    for ends in ("compiled", "closed"):
        widget = PoresWidget(viewer)
        assert widget._said.isHidden()
        qtbot.waitUntil(lambda widget=widget: not widget._said.isHidden())
        assert "first time only" in widget._said.text()
        if ends == "compiled":
            done.set()
            qtbot.waitUntil(widget._said.isHidden)
            done.clear()
            closed.clear()
        widget.native.deleteLater()
    qtbot.waitUntil(closed.is_set)


def test_loading_from_the_disk_says_nothing(qtbot, viewer, monkeypatch):
    monkeypatch.setattr(segment_widget, "_COMPILING", 100)
    monkeypatch.setattr(segment_widget, "prepare_kernels", lambda *_: iter(()))
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    qtbot.wait(200)
    assert widget._said.isHidden()
