"""What is saved from the window, and opened again in another."""

from __future__ import annotations

import json
from pathlib import Path

import napari_builtins
import npe2
import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.layers import Labels, Layer
from napari.layers.utils.stack_utils import stack_to_images
from qtpy.QtWidgets import QFileDialog

import hushpore
from hushpore.base.errors import OutputError
from hushpore.base.events import Timing, result_of
from hushpore.base.provenance import make_provenance
from hushpore.denoising.settings import DenoiseSettings
from hushpore.io.dicom import write_series
from hushpore.jobs import JOBS
from hushpore.runs.rerun import rerun
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers.conversion import METADATA_KEY, is_result, layer_data
from hushpore.viewer.layers.layer_files import (
    SavedLayer,
    prefer_our_writers,
    write_image_layer,
    write_labels_layer,
)
from hushpore.viewer.layers.reader import read_layers, resample
from hushpore.viewer.layers.visibility import show_new_scans
from hushpore.viewer.phases import PhasesWidget
from hushpore.viewer.results import record_panel
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.pore_layer import result_of as result_of_layer
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.results.record_panel import provenance_of
from hushpore.viewer.running.task import capture, local_task
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def viewer(scan, tmp_path):
    """A scan from a file that does not say how large its voxels are."""
    np.save(tmp_path / "core.npy", scan)
    viewer = ViewerModel()
    viewer.add_layer(Layer.create(*read_layers(str(tmp_path / "core.npy"))[0]))
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    return widget


@pytest.fixture
def pores(qtbot, viewer, widget):
    """The pores of the scan, of a voxel size that the user gave."""
    widget._set_voxel_size("15.4um")
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running)
    return viewer.layers["core · pores"]


@pytest.fixture
def written(monkeypatch, qtbot, tmp_path):
    """Return what presses something that saves, and then where it was written."""

    def save(press, name):
        path = tmp_path / name
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
        press()
        qtbot.waitUntil(path.exists)
        return path

    return save


def opened(path):
    """Drop a file or folder on a window that knows nothing of it."""
    viewer = ViewerModel()
    for data in read_layers(str(path)):
        viewer.add_layer(Layer.create(*data))
    return viewer


def test_a_result_is_saved_from_its_link_and_dropped_again(qtbot, viewer, widget, pores, written):
    folder = written(lambda: widget._result.linkActivated.emit("save"), "my core")
    names = {file.name for file in folder.iterdir()}
    assert names >= {"labels.tif", "pores.csv", "throats.csv", "result.json", "report.png"}
    again = opened(folder)
    (layer,) = again.layers
    assert isinstance(layer, Labels)
    assert layer.name == "my core · pores"
    assert tuple(layer.scale) == (15.4,) * 3
    before, after = tables_of(pores), tables_of(layer)
    pd.testing.assert_frame_equal(after.pores, before.pores, check_dtype=False)
    pd.testing.assert_frame_equal(after.throats, before.throats, check_dtype=False)
    np.testing.assert_array_equal(after.profile, before.profile)
    assert provenance_of(layer)["settings"] == provenance_of(pores)["settings"]
    assert "Voxel size set by the user: 15.4 µm." in provenance_of(layer)["notes"]
    # and merges on, as if it had just been made
    other = PoresWidget(again)
    qtbot.addWidget(other.native)
    again.layers.selection.active = layer
    assert not other.remerging.isHidden()
    other.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not other.remerging.is_busy)
    widget.remerging._box.setValue(50.0)
    qtbot.waitUntil(lambda: not widget.remerging.is_busy)
    np.testing.assert_array_equal(layer.data, pores.data)
    pd.testing.assert_frame_equal(tables_of(layer).pores, tables_of(pores).pores)


def test_the_panel_of_results_saves_it_too(qtbot, viewer, pores, written):
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    folder = written(panel._save, "from the panel")
    assert hushpore.read(folder / "labels.tif").spacing == (15.4,) * 3


def test_what_was_saved_can_be_run_again_to_the_bit(tmp_path, widget, pores, written):
    folder = written(lambda: widget._result.linkActivated.emit("save"), "result")
    again = result_of(rerun(folder, tmp_path / "again"))
    assert again.summary == "Identical: the new result equals the original bit for bit."


def test_a_result_that_was_opened_can_be_saved_and_opened_again(viewer, widget, pores, written):
    first = written(lambda: widget._result.linkActivated.emit("save"), "first")
    layer = opened(first).layers[0]
    second = SavedLayer.of(layer).write(first.parent / "second")
    again = opened(second).layers[0]
    pd.testing.assert_frame_equal(tables_of(again).pores, tables_of(layer).pores)
    (first / "merging.npz").unlink()
    third = SavedLayer.of(opened(first).layers[0]).write(first.parent / "third")
    pd.testing.assert_frame_equal(tables_of(opened(third).layers[0]).pores, tables_of(layer).pores)


def test_labels_saved_by_naparis_own_dialog_keep_table_and_merging(tmp_path, pores):
    data, attributes, _ = pores.as_layer_data_tuple()
    written = write_labels_layer(str(tmp_path / "alone.tif"), data, attributes)
    of_tables = [f"alone_{name}.csv" for name in ("pores", "throats", "totals", "profile")]
    assert [Path(each).name for each in written] == ["alone.tif", *of_tables, "alone_merging.npz"]
    (layer,) = opened(tmp_path / "alone.tif").layers
    assert layer.name == "alone"
    pd.testing.assert_frame_equal(tables_of(layer).pores, tables_of(pores).pores, check_dtype=False)
    assert tables_of(layer).unit == "um"
    known = layer.metadata[METADATA_KEY]
    assert known["pores"].remerge(50.0).headline == known["pores"].remerge(50.0).headline


def test_a_denoised_image_comes_back_with_its_record(qtbot, viewer, fake_job, tmp_path, scan):
    record = {"job": "denoise", "input": {"shape": list(scan.shape)}, "settings": {"seed": 7}}
    volume = hushpore.Volume(scan, 0.5, "mm", name="core · denoised")
    data, attributes, kind = layer_data(volume, provenance=record)
    layer = Layer.create(data, attributes, kind)
    write_image_layer(str(tmp_path / "clean.tif"), *layer.as_layer_data_tuple()[:2])
    again = opened(tmp_path / "clean.tif")
    assert provenance_of(again.layers[0])["settings"] == {"seed": 7}
    # the next step takes it, and it is not denoised again unasked
    assert PoresWidget.prefers(again.layers[0])
    assert not DenoiseWidget.prefers(again.layers[0])


def test_a_record_of_another_image_is_not_believed(tmp_path, scan):
    path = hushpore.io.results.write_image(
        tmp_path / "clean.tif",
        hushpore.Volume(scan),
        provenance={
            "job": "denoise",
            "input": {"shape": list(scan.shape)},
            "fingerprints": {"image": "0" * 32},
        },
    )
    assert not is_result(opened(path).layers[0], "denoise")


def test_the_chain_of_jobs_is_kept(viewer, widget, scan, qtbot, tmp_path):
    volume = hushpore.Volume(scan, name="core · denoised")
    record = make_provenance("denoise", volume, DenoiseSettings(), "CPU", Timing())
    layer = Layer.create(*layer_data(volume, provenance=record))
    viewer.add_layer(layer)
    assert widget.layer.value is layer
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running)
    folder = SavedLayer.of(viewer.layers["core · pores"]).write(tmp_path / "chain")
    made = json.loads((folder / "result.json").read_text())
    assert [job["job"] for job in made["jobs"]] == ["denoise", "pores"]
    assert set(made["fingerprints"]) == {"denoised", "labels"}


def test_labels_that_were_painted_on_are_saved_without_what_is_not_of_them(
    qtbot, viewer, widget, pores, written, tmp_path, monkeypatch
):
    said = []
    monkeypatch.setattr(record_panel, "show_info", said.append)
    pores.paint((4, 8, 8), 77)
    file = written(lambda: widget._result.linkActivated.emit("save"), "painted.tif")
    qtbot.waitUntil(lambda: bool(said))
    assert "edited by hand" in said[0]
    assert (hushpore.read(file).array() == 77).any()
    record = json.loads(file.with_suffix(".json").read_text())
    assert "edited by hand" in record["notes"][-1]
    data, attributes, _ = pores.as_layer_data_tuple()
    alone = tmp_path / "alone.tif"
    assert write_labels_layer(str(alone), data, attributes) == [str(alone)]
    assert "edited by hand" in json.loads(alone.with_suffix(".json").read_text())["notes"][-1]


def test_labels_from_a_folder_are_known_to_be_painted_on(viewer, pores, tmp_path, qtbot):
    folder = SavedLayer.of(pores).write(tmp_path / "result")
    other = ViewerModel()
    (layer,) = [Layer.create(*each) for each in read_layers(str(folder))]
    other.add_layer(layer)
    show_new_scans(other, [layer])
    assert result_of_layer(layer) is not None
    layer.paint((4, 8, 8), 77)
    assert result_of_layer(layer) is None


@pytest.mark.usefixtures("small_network")
@pytest.mark.parametrize(
    ("kind", "given"), [(PhasesWidget, {"phases": 2}), (PoresWidget, {"exterior": "keep"})]
)
def test_what_was_measured_in_a_denoised_scan_is_run_again_to_the_bit(
    viewer, tmp_path, kind, given
):
    steps = {"patch_size": 16, "steps": 3, "method": "n2v2", "test_time_augmentation": False}
    layer = viewer.layers["core"]
    for widget, values in ((DenoiseWidget, steps), (kind, given)):
        settings = JOBS[widget.job].settings(**values)
        task = local_task(widget, capture(layer, job=widget.job), settings, "cpu")
        layer = viewer.add_layer(result_of(task).layers[0])
    folder = SavedLayer.of(layer).write(tmp_path / "result")
    again = result_of(rerun(folder, tmp_path / "again"))
    assert again.summary == "Identical: the new result equals the original bit for bit."


def measured(viewer, layer, folder):
    """Measure the pores of a layer, save them, and run that again."""
    task = local_task(PoresWidget, capture(layer, job="pores"), JOBS["pores"].settings(), "cpu")
    pores = viewer.add_layer(result_of(task).layers[0])
    written = SavedLayer.of(pores).write(folder / "result")
    source = json.loads((written / "result.json").read_text())["source"]
    return source, result_of(rerun(written, folder / "again")).summary


def test_the_series_is_that_of_the_folder_whatever_the_layer_is_called(scan, tmp_path):
    (tmp_path / "scans").mkdir()
    volume = hushpore.Volume(scan.astype(np.int16), 1, "mm", name="ct")
    folder = write_series(volume, tmp_path / "scans" / "core")
    viewer = opened(folder)
    layer, name = viewer.layers[0], viewer.layers[0].name
    layer.name = "before firing"
    source, summary = measured(viewer, layer, tmp_path)
    assert source["series"] == name
    assert summary.startswith("Identical")


def test_a_part_of_a_stack_that_was_split_names_no_scan(scan, tmp_path):
    # napari gives no units to the parts
    volume = hushpore.Volume(np.stack([scan, scan]), axes="tzyx")
    hushpore.io.results.write_image(tmp_path / "series.tif", volume)
    viewer = opened(tmp_path / "series.tif")
    later = viewer.add_layer(stack_to_images(viewer.layers[0], 0)[1])
    task = local_task(PoresWidget, capture(later, job="pores"), JOBS["pores"].settings(), "cpu")
    written = SavedLayer.of(viewer.add_layer(result_of(task).layers[0])).write(tmp_path / "pores")
    assert json.loads((written / "result.json").read_text())["source"] == {}


def test_a_layer_that_was_resampled_says_so(scan, tmp_path, qtbot):
    (tmp_path / "scans").mkdir()
    volume = hushpore.Volume(scan.astype(np.int16), 1, "mm", name="ct")
    folder = write_series(volume, tmp_path / "scans" / "core")
    sorted(folder.iterdir())[3].unlink()
    viewer = opened(folder)
    resample(viewer, viewer.layers[0])
    qtbot.waitUntil(lambda: len(viewer.layers) == 2)
    source, summary = measured(viewer, viewer.layers[1], tmp_path)
    assert source["resample"] is True
    assert summary.startswith("Identical")


def test_a_result_without_what_it_was_merged_from_is_saved_whole(widget, pores, written):
    first = written(lambda: widget._result.linkActivated.emit("save"), "first")
    (first / "merging.npz").unlink()
    second = SavedLayer.of(opened(first).layers[0]).write(first.parent / "second")
    before, after = (json.loads((each / "result.json").read_text()) for each in (first, second))
    for name in ("headline", "remarks", "fingerprints", "source", "jobs"):
        assert after[name] == before[name]
    assert (second / "report.html").is_file()
    names = {file.name for file in first.iterdir()}
    assert {file.name for file in second.iterdir()} == names
    assert "notes" not in after


def test_merging_that_is_damaged_is_said_and_the_rest_is_there(widget, pores, written):
    folder = written(lambda: widget._result.linkActivated.emit("save"), "result")
    (folder / "merging.npz").write_bytes(b"PK damaged")
    (layer,) = opened(folder).layers
    assert len(tables_of(layer).pores) == len(tables_of(pores).pores)
    assert "cannot be merged again" in layer.metadata[METADATA_KEY]["notes"][-1]


@pytest.mark.parametrize("kind", ["image", "labels"])
def test_our_writers_come_first_in_naparis_dialog(npe2pm, kind):
    for package, name in ((napari_builtins, "builtins.yaml"), (hushpore, "napari.yaml")):
        file = Path(package.__file__).parent / name
        npe2pm.register(npe2.PluginManifest.from_file(file), warn_disabled=False)
    before = [each.command for each in npe2pm.iter_compatible_writers([kind])]
    assert before[0].startswith("napari.")
    prefer_our_writers()
    after = [each.command for each in npe2pm.iter_compatible_writers([kind])]
    assert after[0].startswith("hushpore.")
    # and the others are where they were
    assert sorted(after) == sorted(before)


def test_a_result_is_not_saved_over_what_it_was_made_of(viewer, pores, tmp_path):
    before = (tmp_path / "core.npy").read_bytes()
    (tmp_path / "r").mkdir()
    for place in (tmp_path, tmp_path / "core.npy"):
        with pytest.raises(OutputError, match="Cannot write"):
            SavedLayer.of(pores).write(place)
    assert (tmp_path / "core.npy").read_bytes() == before
