"""A voxel size that the user gives in the line of facts, and all that follows it."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.layers import Layer

import hushpore
from hushpore import Volume
from hushpore.base.events import Preview, Progress
from hushpore.base.formatting import readable_number
from hushpore.pores.tables.totals import totals_in_words
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    Lineage,
    identity,
    known_of,
    set_lineage,
    volume_of,
)
from hushpore.viewer.layers.layer_files import SavedLayer
from hushpore.viewer.layers.reader import read_layers
from hushpore.viewer.layers.voxel_size import set_voxel_size
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.plots import THICKNESS, PlotsWidget
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def viewer(scan):
    """A scan of which the file does not say how large its voxels are."""
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan")
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    return widget


def give(widget, across, unit="µm", along=None):
    """Fill the field in as a user does."""
    widget._facts.linkActivated.emit("voxel size")
    field = widget._voxel_size
    assert not field.isHidden()
    field._across.setText(across)
    field._unit.setCurrentText(unit)
    field._same.setChecked(along is None)
    if along is not None:
        field._along.setText(along)
    field._set.click()


def run(qtbot, widget):
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running)
    # new layers get the scale of the scan in the next turn of the event loop
    qtbot.wait(1)


def test_the_line_of_facts_asks_for_a_size_that_is_unknown(viewer, widget):
    assert "voxel size unknown" in widget._facts.text()
    assert 'href="voxel size"' in widget._facts.html
    assert "set\xa0it" in widget._facts.html
    assert not viewer.canvas.overlays.scale_bar.visible
    give(widget, "15,4")
    assert widget._voxel_size.isHidden()
    layer = viewer.layers["scan"]
    assert tuple(layer.scale) == (15.4, 15.4, 15.4)
    assert {str(unit) for unit in layer.units} == {"micrometer"}
    facts = widget._facts.text().replace("\xa0", " ")
    assert "15.4 x 15.4 x 15.4 µm" in facts
    assert "Voxel size set by the user: 15.4 µm." in facts
    assert viewer.canvas.overlays.scale_bar.visible
    # and can be mended
    give(widget, "16", "mm")
    assert volume_of(layer).notes[0].startswith("Voxel size set by the user: 16 mm. ")
    assert volume_of(layer).unit == "mm"


@pytest.mark.parametrize("text", ["", "wide", "0", "-3", "inf"])
def test_what_is_no_size_is_refused_with_words(viewer, widget, text):
    give(widget, text)
    assert "a number above 0" in widget._voxel_size._problem.text()
    assert not widget._voxel_size.isHidden()
    assert tuple(viewer.layers["scan"].scale) == (1, 1, 1)


def test_slices_may_be_farther_apart(viewer, widget):
    give(widget, "0.49", "mm", along="5")
    assert tuple(viewer.layers["scan"].scale) == (5, 0.49, 0.49)


def test_a_size_that_is_known_is_a_link_too(viewer, widget, scan):
    viewer.add_image(scan, name="known", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    widget._facts.linkActivated.emit("voxel size")
    field = widget._voxel_size
    assert (field._across.text(), field._along.text()) == ("0.5", "2")
    assert field._unit.currentText() == "mm"
    assert not field._same.isChecked()


def test_labels_tables_and_record_follow_at_once(qtbot, viewer, widget, scan):
    results = ResultsWidget(viewer)
    qtbot.addWidget(results)
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    viewer.dims.set_current_step(0, 5)
    give(widget, "15.4")
    assert viewer.dims.current_step[0] == 5
    assert tuple(labels.scale) == (15.4, 15.4, 15.4)
    assert viewer.canvas.overlays.scale_bar.visible
    assert "No scale bar" not in widget._facts.text()
    truth = hushpore.segment_pores(Volume(scan, spacing=15.4, unit="um"))
    qtbot.waitUntil(lambda: results.view.tables.unit == "um")
    pd.testing.assert_frame_equal(results.view.tables.pores, truth.pores)
    assert "µm" in results._summary.text()
    known = labels.metadata[METADATA_KEY]
    pd.testing.assert_frame_equal(known["throats"], truth.throats)
    assert known["provenance"]["result"] == truth.provenance["result"]
    assert known["provenance"]["input"]["spacing"] == [15.4] * 3
    assert "Voxel size set by the user: 15.4 µm." in known["provenance"]["notes"]
    # merging goes on with it
    widget.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not widget.remerging.is_busy)
    merged = truth.remerge(50.0)
    qtbot.waitUntil(lambda: len(results.view.tables.pores) == len(merged.pores))
    pd.testing.assert_frame_equal(results.view.tables.pores, merged.pores)


def test_pores_that_were_parted_in_voxels_of_another_shape_stay_and_say_so(qtbot, viewer, widget):
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    before = labels.features.copy()
    give(widget, "0.5", "mm", along="5")
    assert tuple(labels.scale) == (5, 0.5, 0.5)
    pd.testing.assert_frame_equal(labels.features, before)
    assert "the measurements of scan · pores are out of date" in widget._result.text()
    widget._result.linkActivated.emit("run again")
    qtbot.waitUntil(lambda: not widget.is_running)
    made = viewer.layers["scan · pores"].metadata[METADATA_KEY]["provenance"]
    assert made["result"]["unit"] == "mm"


def test_a_result_that_is_still_made_gets_the_new_size(qtbot, viewer, fake_job, scan):
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: widget._progress.bar.value() == 250)
    give(widget, "15.4")
    fake_job.gate.set()
    qtbot.waitUntil(lambda: not widget.is_running)
    assert tuple(viewer.layers["scan · denoised"].scale) == (15.4,) * 3
    assert {str(unit) for unit in viewer.layers["scan · denoised"].units} == {"micrometer"}


def test_a_preview_gets_the_new_size_and_the_result_in_its_place_gets_it_once(
    qtbot, viewer, fake_job, scan
):
    def script(volume):
        yield Preview("denoised", scan[4], (4,))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2)
    preview = viewer.layers["scan · denoised (preview)"]
    give(widget, "15")
    assert tuple(preview.scale) == (15,) * 3
    # another slice lies where that of the scan does
    widget._now.show_preview(Preview("denoised", scan[6], (6,)))
    assert tuple(preview.translate) == (90, 0, 0)
    fake_job.gate.set()
    qtbot.waitUntil(lambda: not widget.is_running)
    made = viewer.layers["scan · denoised"]
    assert (tuple(made.scale), tuple(made.translate)) == ((15,) * 3, (0,) * 3)
    assert {str(unit) for unit in made.units} == {"micrometer"}


def test_a_preview_that_comes_after_the_new_size_has_it(qtbot, viewer, fake_job, scan):
    gate = threading.Event()

    def script(volume):
        yield Progress("training", 1, 4, "steps", 0.25)
        assert gate.wait(60)
        yield Preview("denoised", scan[4], (4,))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: widget._progress.bar.value() == 250)
    give(widget, "15")
    gate.set()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2)
    preview = viewer.layers["scan · denoised (preview)"]
    assert (tuple(preview.scale), tuple(preview.translate)) == ((15,) * 3, (60, 0, 0))
    assert {str(unit) for unit in preview.units} == {"micrometer"}
    fake_job.gate.set()
    qtbot.waitUntil(lambda: not widget.is_running)
    assert tuple(viewer.layers["scan · denoised"].scale) == (15,) * 3


def test_another_scan_keeps_the_size_that_it_has(viewer, widget, scan):
    other = viewer.add_image(scan, name="other", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    widget.layer.value = viewer.layers["scan"]
    give(widget, "15.4")
    assert tuple(other.scale) == (2, 0.5, 0.5)


def test_a_scale_bar_is_shown_once_all_units_are_known_and_what_is_missing_is_said(
    viewer, widget, scan
):
    assert not viewer.canvas.overlays.scale_bar.visible
    assert "No scale bar" not in widget._facts.text()
    widget.layer.value = viewer.add_image(scan, name="known", units=("mm",) * 3)
    assert not viewer.canvas.overlays.scale_bar.visible
    assert "No scale bar: the voxel size of scan is unknown." in widget._facts.text()
    del viewer.layers["scan"]
    assert viewer.canvas.overlays.scale_bar.visible
    assert "No scale bar" not in widget._facts.text()


def test_the_sentence_on_the_result_is_in_the_new_unit(qtbot, viewer, widget, scan):
    run(qtbot, widget)
    assert "px" in widget._result.text()
    give(widget, "15.4")
    truth = hushpore.segment_pores(Volume(scan, spacing=15.4, unit="um"))
    assert truth.headline in widget._result.text()
    assert widget.result.headline == truth.headline


def test_the_sentence_on_what_was_merged_anew_is_in_the_new_unit_too(
    qtbot, viewer, widget, scan, tmp_path
):
    run(qtbot, widget)
    folder = SavedLayer.of(viewer.layers["scan · pores"]).write(tmp_path / "result")
    widget.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not widget.remerging.is_busy)
    give(widget, "15.4")
    truth = hushpore.segment_pores(Volume(scan, spacing=15.4, unit="um"), merge_height=50.0)
    assert truth.headline in widget._result.text()
    # and of pores that no run of this window has made
    other = ViewerModel()
    (labels,) = (Layer.create(*each) for each in read_layers(str(folder / "labels.tif")))
    other.add_layer(labels)
    alone = PoresWidget(other)
    qtbot.addWidget(alone.native)
    other.layers.selection.active = labels
    alone.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not alone.remerging.is_busy)
    give(alone, "15.4")
    assert truth.headline in alone._result.text()


def test_there_is_no_size_to_give_without_a_layer(viewer, widget):
    widget._facts.linkActivated.emit("voxel size")
    assert not widget._voxel_size.isHidden()
    viewer.layers.clear()
    assert widget._voxel_size.isHidden()


def test_a_local_thickness_that_was_measured_follows_in_layers_plot_and_totals(
    qtbot, viewer, widget, tmp_path
):
    widget.local_thickness.value = "both"
    run(qtbot, widget)
    pores, void, solid = viewer.layers[1:]
    assert [each.name for each in viewer.layers[2:]] == [
        "scan · thickness (pores)",
        "scan · thickness (solid)",
    ]
    assert not void.visible
    assert viewer.layers.selection.active is pores
    found, values, limits = widget.result, void.data.copy(), void.contrast_limits
    np.testing.assert_array_equal(values > 0, viewer.layers["scan"].data <= found.threshold)
    np.testing.assert_array_equal(solid.data > 0, values == 0)
    plots = PlotsWidget(viewer)
    qtbot.addWidget(plots)
    plots._kind.setCurrentText(THICKNESS)
    assert plots.axes.get_xlabel() == "local thickness (px)"
    give(widget, "2")
    np.testing.assert_allclose(void.data, 2 * values)
    assert void.contrast_limits == pytest.approx([2 * each for each in limits])
    mean = tables_of(pores).totals["void_thickness"]
    assert mean == pytest.approx(2 * found.provenance["result"]["void_thickness"])
    told = dict(totals_in_words(tables_of(pores).totals))
    assert told["Mean local thickness of the pores"] == f"{readable_number(mean, 4)} µm"
    qtbot.waitUntil(lambda: plots.axes.get_xlabel() == "local thickness (µm)")
    # and from its folder it comes back
    folder = SavedLayer.of(pores).write(tmp_path / "result")
    assert (folder / "solid_thickness.tif").is_file()
    (read,) = read_layers(str(folder / "labels.tif"))
    table = read[1]["metadata"][METADATA_KEY]["thickness"]
    assert table["thickness_to"].max() >= void.data.max()
    plots._let_go()


def test_tables_follow_a_scale_that_another_plugin_sets(qtbot, viewer, widget, scan):
    results = ResultsWidget(viewer)
    qtbot.addWidget(results)
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    assert not results.view.is_outdated
    # as napari-metadata does, unit and scale one after the other
    labels.units = ("um",) * 3
    labels.scale = (15.4,) * 3
    qtbot.waitUntil(lambda: results.view.tables.unit == "um")
    truth = hushpore.segment_pores(Volume(scan, spacing=15.4, unit="um"))
    pd.testing.assert_frame_equal(results.view.tables.pores, truth.pores)
    record = labels.metadata[METADATA_KEY]["provenance"]
    assert record["result"] == truth.provenance["result"]
    assert record["input"]["spacing"] == [15.4] * 3
    assert "Voxel size set by the user in napari: 15.4 x 15.4 x 15.4 µm." in record["notes"]
    assert tuple(labels.scale) == (15.4,) * 3
    assert not results.view.is_outdated


def test_tables_of_another_voxel_shape_are_said_to_be_out_of_date(qtbot, viewer, widget):
    results = ResultsWidget(viewer)
    qtbot.addWidget(results)
    run(qtbot, widget)
    labels = viewer.layers["scan · pores"]
    before = results.view.tables.pores
    labels.scale = (3, 1, 1)
    qtbot.waitUntil(lambda: results.view.is_outdated)
    assert "the tables are out of date" in results._limit.text()
    pd.testing.assert_frame_equal(results.view.tables.pores, before)
    labels.scale = (1, 1, 1)
    qtbot.waitUntil(lambda: not results.view.is_outdated)
    assert results._limit.text() == ""


def test_results_follow_a_scale_that_another_plugin_gives_the_scan_alone(qtbot, viewer, scan):
    denoised = viewer.add_image(scan, name="denoised")
    of_scan = identity(viewer.layers["scan"])
    set_lineage(denoised, Lineage(of_scan, of_scan, "denoise", "denoised"))
    pores = PoresWidget(viewer)
    qtbot.addWidget(pores.native)
    pores.layer.value = denoised
    run(qtbot, pores)
    results = ResultsWidget(viewer)
    qtbot.addWidget(results)
    labels = viewer.layers["denoised · pores"]
    before = tables_of(labels).pores
    viewer.layers["scan"].units = ("um",) * 3
    viewer.layers["scan"].scale = (15.4,) * 3
    qtbot.waitUntil(lambda: results.view.tables.unit == "um")
    assert tuple(labels.scale) == (15.4,) * 3
    after = results.view.tables.pores
    np.testing.assert_allclose(after["volume"], before["volume"] * 15.4**3)
    assert not results.view.is_outdated
    # another voxel shape: geometry follows, and the tables say so
    viewer.layers["scan"].scale = (30, 15.4, 15.4)
    qtbot.waitUntil(lambda: results.view.is_outdated)
    assert tuple(labels.scale) == (30, 15.4, 15.4)
    viewer.layers["scan"].scale = (15.4,) * 3
    qtbot.waitUntil(lambda: not results.view.is_outdated)
    pd.testing.assert_frame_equal(results.view.tables.pores, after)
    # both layers at once, as the field for the voxel size does
    labels.scale = viewer.layers["scan"].scale = (2,) * 3
    qtbot.waitUntil(lambda: results.view.tables.pores["volume"][0] < after["volume"][0])
    assert tuple(labels.scale) == (2,) * 3


def test_a_scale_that_the_scan_gets_while_a_job_runs_is_followed(qtbot, viewer, fake_job, scan):
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: widget.is_running)
    viewer.layers["scan"].scale = (2, 2, 2)
    viewer.layers["scan"].translate = (4, 0, 0)
    fake_job.gate.set()
    qtbot.waitUntil(lambda: not widget.is_running)
    qtbot.waitUntil(lambda: tuple(viewer.layers["scan · denoised"].scale) == (2, 2, 2))


def test_a_size_that_no_scan_has_is_said_with_the_likely_unit(viewer):
    layer = viewer.add_image(np.zeros((4, 8, 8), np.float32), name="typed without µ")
    set_voxel_size(viewer, layer, "25m")
    said = " ".join(known_of(layer)["notes"])
    assert "Voxel size set by the user: 25 m" in said
    assert "The voxel size, 25 x 25 x 25 m, is unusual" in said
    assert "If 25 x 25 x 25 µm is meant" in said
    set_voxel_size(viewer, layer, "25um")
    assert not any("unusual" in note for note in known_of(layer)["notes"])
