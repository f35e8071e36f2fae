import gc
from pathlib import Path

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Labels, Points, Vectors
from qtpy.QtWidgets import QFileDialog

from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.patches.widget import PatchesWidget


def test_images_only_can_be_sampled():
    assert PatchesWidget.accepts(Image(np.zeros((4, 8, 8))))
    assert not PatchesWidget.accepts(Labels(np.zeros((4, 8, 8), int)))


@pytest.fixture
def shown(qtbot, scan):
    """A viewer in which the real sampler has run behind the widget."""
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    widget = PatchesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.n_patches.value = 12
    widget.patch_size.value = 8
    widget.group_size.value = 3
    widget.n_neighbours.value = 4
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "12 patches of 8 x 8" in widget._result.text(), widget._result.text()
    return viewer, widget


def test_a_result_is_boxes_hidden_pixels_groups_and_a_sheet(shown, scan):
    viewer, widget = shown
    boxes, hidden = viewer.layers["scan patches"], viewer.layers["scan masked pixels"]
    groups, sheet = viewer.layers["scan patch groups"], viewer.layers["scan contact sheet"]
    assert isinstance(boxes, Vectors)
    assert isinstance(hidden, Points)
    assert isinstance(groups, Vectors)
    assert tuple(boxes.scale) == (2, 0.5, 0.5)
    assert boxes.metadata[METADATA_KEY]["provenance"]["job"] == "patches"
    result = widget.panel.result
    z, y, x = result.corners[2]
    assert boxes.features["mean"][8] == pytest.approx(scan[z, y : y + 8, x : x + 8].mean())
    at = tuple(hidden.data[5].astype(int))
    assert hidden.features["original"][5] == scan[at]
    assert len(groups.data) == 8 * 2
    # beside the image, and as high
    assert sheet.extent.world[0][1] > viewer.layers["scan"].extent.world[1][2]
    assert sheet.scale[0] * sheet.data.shape[0] == pytest.approx(16, rel=0.01)


def test_points_and_a_mask_of_chosen_patches_are_made_for_the_denoiser(shown):
    viewer, widget = shown
    result = widget.panel.result
    low, high = np.sort(result.features["mean"])[[0, 3]]
    widget.panel.feature.setCurrentText("mean")
    widget.panel.histogram.choose(low, high)
    chosen = widget.panel.chosen()
    assert len(chosen) == 4
    widget.panel.train_requested.emit(True)
    points = viewer.layers["scan training points"]
    np.testing.assert_array_equal(points.data, result.centres[chosen])
    assert tuple(points.scale) == (2, 0.5, 0.5)
    widget.panel.train_requested.emit(False)
    mask = viewer.layers["scan excluded from training"].data
    expected = np.zeros_like(mask)
    for z, y, x in result.corners[chosen]:
        expected[z, y : y + 8, x : x + 8] = 1
    np.testing.assert_array_equal(mask, expected)


def test_weights_of_a_labels_layer_are_labels_and_of_an_image_are_not(qtbot, scan):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan")
    whole = np.arange(scan.size, dtype=np.uint16).reshape(scan.shape)
    layers = viewer.add_labels(whole), viewer.add_image(whole)
    widget = PatchesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.layer.value = viewer.layers["scan"]
    widget.sampler.value = "weights"
    for layer, are_labels in zip(layers, (True, False), strict=True):
        widget.weights.value = layer
        settings = widget.settings()
        assert (settings.weights, settings.weights_are_labels) == (layer.name, are_labels)
        assert widget.weights_are_labels.enabled is not are_labels
        assert ("weights are a labels layer" in widget.weights_are_labels.tooltip) is are_labels


def test_a_contact_sheet_is_not_taken_as_what_to_work_on(shown):
    _, widget = shown
    assert widget.layer.value.name == "scan"


@pytest.fixture
def denoised(qtbot, scan):
    """A viewer with a scan and what a model has made of it, and the widget."""
    import torch

    from hushpore.denoising.model import Architecture, build_network
    from hushpore.denoising.trained_model import Model

    viewer = ViewerModel()
    viewer.add_image(scan, name="scan")
    widget = PatchesWidget(viewer)
    qtbot.addWidget(widget.native)
    network = build_network(Architecture(2), torch.Generator().manual_seed(0)).eval()
    model = Model(network, (0.0,), (500.0,))
    viewer.add_image(
        scan, name="scan denoised",
        metadata={METADATA_KEY: {"model": model, "provenance": {"job": "denoise"}}},
    )  # fmt: skip
    widget.patch_size.value = 16
    widget.n_patches.value = 4
    return viewer, widget


def test_the_model_of_a_denoised_layer_is_taken(qtbot, denoised):
    viewer, widget = denoised
    assert widget.model.native.currentText() == "of scan denoised"
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    result = widget.panel.result
    assert result.volume.name == "scan"
    assert (result.features["loss"] > 0).all()
    assert (
        viewer.layers["scan contact sheet"].metadata[METADATA_KEY]["sheet"].rows[-1] == "residual"
    )
    viewer.layers.remove("scan denoised")
    assert widget.form.model.value == ""


def test_a_model_is_read_though_its_layer_goes_meanwhile_and_its_file_then_goes_too(
    qtbot, denoised
):
    viewer, widget = denoised
    file = Path(widget.form.model.value)
    widget._buttons.run.click()
    viewer.layers.remove("scan denoised")
    gc.collect()
    assert file.is_file()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert (widget.panel.result.features["loss"] > 0).all()
    gc.collect()
    assert not file.parent.exists()


def test_patches_are_saved_from_their_link(qtbot, monkeypatch, shown, tmp_path):
    _, widget = shown
    path = tmp_path / "patches"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    widget._result.linkActivated.emit("save")
    qtbot.waitUntil(path.exists)
    assert (path / "result.json").is_file()
