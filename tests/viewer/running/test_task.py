"""A widget runs its job on a cluster as it does here; the result comes from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from napari.components import ViewerModel

from hushpore import jobs
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.forms.choices import RunOn
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.layers.reader import _layer
from hushpore.viewer.patches.widget import PatchesWidget
from hushpore.viewer.results.pore_layer import PROFILE, THROATS
from hushpore.viewer.running.task import result_folder_for, unused_path
from hushpore.viewer.segment.widget import PoresWidget

distributed = pytest.importorskip("distributed")
pytest.importorskip("zarr")

from hushpore.io.zarr import write_zarr  # noqa: E402

pytestmark = pytest.mark.usefixtures("small_network")

PATIENCE = 300_000


@pytest.fixture
def viewer(tmp_path, noisy_ball):
    """A window with a scan that was opened from OME-Zarr."""
    path = write_zarr(tmp_path / "scan.ome.zarr", noisy_ball)
    viewer = ViewerModel()
    (opened,) = read_all(path, lazy=True)
    data, keywords, _ = _layer(opened)
    viewer.add_image(data, **keywords)
    return viewer


def test_this_computer_is_the_default_and_an_address_is_typed(qtbot):
    choice = RunOn()
    qtbot.addWidget(choice)
    assert choice.value() == ""
    choice.set("tcp://head-node:8786")
    assert choice.value() == "tcp://head-node:8786"
    assert "all workers must be able to access" in choice.line.text()
    choice.set("local:2")
    assert "Worker processes on this computer" in choice.line.text()
    choice.set("")
    assert choice.value() == ""


def test_only_jobs_that_know_clusters_offer_them(qtbot):
    for kind in (DenoiseWidget, PoresWidget, PatchesWidget):
        widget = kind(ViewerModel())
        qtbot.addWidget(widget.native)
        assert widget.run_on.native.isHidden() != bool(jobs.JOBS[widget.job].cluster)


def test_denoised_on_a_cluster_the_result_is_a_layer_from_disk(qtbot, viewer, address, tmp_path):
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    for name, value in {"patch_size": 16, "batch_size": 2, "steps": 3}.items():
        widget.form[name].value = value
    widget.run_on.value = address
    widget._buttons.run.click()
    assert widget._buttons.cancel.isEnabled()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=PATIENCE)
    assert "scan_denoised.ome.zarr" in widget._remarks.text(), widget._result._details
    layer = viewer.layers["scan · denoised"]
    assert not isinstance(layer.data, np.ndarray)
    assert layer.metadata[METADATA_KEY]["provenance"]["cluster"]["blocks"] == 1
    assert tuple(layer.scale) == (0.5, 0.5, 0.5)
    back = read(tmp_path / "scan_denoised.ome.zarr")
    np.testing.assert_array_equal(np.asarray(layer.data), back.data)
    # dask's own page, as a link
    assert '<a href="http://127.0.0.1:' in widget._remarks.text()
    assert {"training", "denoising", "writing"} <= set(
        layer.metadata[METADATA_KEY]["provenance"]["timings"]
    )


def test_pores_segmented_on_a_cluster_come_with_their_tables(qtbot, viewer, address, tmp_path):
    # a name that no folder can have
    viewer.layers[0].name = "CT 1/2"
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.run_on.value = address
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=PATIENCE)
    assert "CT 1_2_pores" in widget._remarks.text(), widget._result._details
    layer = viewer.layers["CT 1/2 · pores"]
    assert not isinstance(layer.data, np.ndarray)
    assert len(layer.features) > 0
    assert {THROATS, PROFILE} <= set(layer.metadata[METADATA_KEY])
    assert (tmp_path / "CT 1_2_pores" / "pores.csv").is_file()
    # and the same from the folder
    (labels,) = read_all(tmp_path / "CT 1_2_pores" / "labels.ome.zarr", lazy=True)
    _, keywords, kind = _layer(labels)
    assert kind == "labels"
    assert len(keywords["features"]) == len(layer.features)


def test_a_cluster_that_is_not_there_is_a_problem_in_words(qtbot, viewer, tmp_path):
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.run_on.value = "nowhere.json"
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=PATIENCE)
    assert "is not a cluster" in widget._result.text()
    assert [item.name for item in tmp_path.iterdir() if "scan" in item.name] == ["scan.ome.zarr"]


def test_a_cancel_leaves_nothing_behind(qtbot, viewer, address, tmp_path):
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    for name, value in {"patch_size": 16, "batch_size": 2, "steps": 100_000}.items():
        widget.form[name].value = value
    widget.run_on.value = address
    widget._buttons.run.click()
    qtbot.waitUntil(widget._buttons.finish.isEnabled, timeout=PATIENCE)
    widget._buttons.cancel.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=PATIENCE)
    assert "Cancelled" in widget._result.text()
    assert [item.name for item in tmp_path.iterdir() if "scan" in item.name] == ["scan.ome.zarr"]


def test_the_result_goes_where_the_scan_is(tmp_path):
    values = np.zeros((2, 3))
    known = Volume(values, source=str(tmp_path / "scan"))
    (tmp_path / "scan").mkdir()
    assert result_folder_for(known, "tcp://there:1") == tmp_path
    unknown = Volume(values, name="made here")
    with pytest.raises(
        InputError, match=r"made here is not in a writable folder.*Save it as OME-Zarr"
    ):
        result_folder_for(unknown, "tcp://there:1")
    # no temporary one: the result is the user's
    for where in ("local", "local:2"):
        assert result_folder_for(unknown, where) == Path.home()


def test_an_earlier_result_is_left_as_it_is(tmp_path):
    assert unused_path(tmp_path, "a", ".zarr") == tmp_path / "a.zarr"
    (tmp_path / "a.zarr").mkdir()
    assert unused_path(tmp_path, "a", ".zarr") == tmp_path / "a 2.zarr"


def test_labels_in_an_ome_zarr_stay_on_disk_in_all_levels(tmp_path):
    labels = Volume(
        np.ones((4, 300, 520), np.int32), spacing=(9, 1, 1), unit="um", metadata={"labels": True}
    )
    image = labels.replace(labels.data.astype(np.uint8), metadata={})
    path = write_zarr(tmp_path / "a.zarr", image, labels={"pores": labels})
    for volume in (*read_all(path, lazy=True)[1:],
                   *read_all(write_zarr(tmp_path / "b.zarr", labels), lazy=True)):  # fmt: skip
        data, keywords, kind = _layer(volume)
        layer = ViewerModel().add_labels(data, **keywords)
        assert kind == "labels"
        assert layer.multiscale
        assert [level.shape for level in layer.data] == [(4, 300, 520), (4, 150, 260), (4, 75, 130)]
        assert not any(isinstance(level, np.ndarray) for level in layer.data)
