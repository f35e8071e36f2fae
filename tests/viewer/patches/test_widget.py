from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Labels, Layer, Points, Vectors
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QFileDialog

import hushpore
from hushpore.patches.result import GAP, contact_sheet
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.patches.layers import patch_layers
from hushpore.viewer.patches.widget import PatchesPanel, PatchesWidget, PatchHistogram
from hushpore.viewer.running.task import capture


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
    boxes, hidden = viewer.layers["scan · patches"], viewer.layers["scan · masked pixels"]
    groups, sheet = viewer.layers["scan · patch groups"], viewer.layers["scan · contact sheet"]
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
        scan, name="scan · denoised",
        metadata={METADATA_KEY: {"model": model, "provenance": {"job": "denoise"}}},
    )  # fmt: skip
    widget.patch_size.value = 16
    widget.n_patches.value = 4
    return viewer, widget


def test_the_model_of_a_denoised_layer_is_taken(qtbot, denoised):
    viewer, widget = denoised
    assert widget.model.native.currentText() == "of scan · denoised"
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    result = widget.panel.result
    assert result.volume.name == "scan"
    assert (result.features["loss"] > 0).all()
    assert (
        viewer.layers["scan · contact sheet"].metadata[METADATA_KEY]["sheet"].rows[-1] == "residual"
    )
    viewer.layers.remove("scan · denoised")
    assert widget.form.model.value == ""


def test_a_model_is_read_though_its_layer_goes_meanwhile_and_its_file_then_goes_too(
    qtbot, denoised
):
    viewer, widget = denoised
    file = Path(widget.form.model.value)
    widget._buttons.run.click()
    viewer.layers.remove("scan · denoised")
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


@pytest.fixture
def panel(qtbot, rng):
    viewer = ViewerModel()
    scan = rng.normal(0, 100, (6, 64, 64)).astype(np.float32)
    layer = viewer.add_image(scan, name="scan", scale=(3, 0.5, 0.5), translate=(1, 2, 3))
    panel = PatchesPanel(viewer)
    qtbot.addWidget(panel)
    assert panel.isHidden()
    result = hushpore.sample_patches(scan, n_patches=30, patch_size=8, seed=4, device="cpu")
    for data in patch_layers(result, capture(layer)):
        viewer.add_layer(Layer.create(*data))
    assert panel.result is result
    yield panel
    panel.forget()


def sheet_of(panel):
    return panel._viewer.layers["scan · contact sheet"]


def colours(panel):
    """Return the colour of the first edge of each box."""
    return panel.boxes.edge_color[::4]


def test_boxes_are_coloured_by_any_feature(panel):
    assert len(np.unique(colours(panel), axis=0)) == 30
    panel.feature.setCurrentText("sd")
    order = panel.result.features["sd"].argsort()
    # who does not see colours sees them grow lighter
    light = colours(panel)[order, :3] @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(light) > -1e-3).all()
    assert light[0] < 0.1
    assert light[-1] > 0.8


def test_boxes_open_by_how_much_is_in_them_and_then_by_what_the_user_chose(panel):
    assert panel.feature.currentText() == "gradient"
    most = panel.result.features["gradient"].argmax()
    assert panel.boxes.edge_color[4 * most, 1] > 0.9
    sheet = sheet_of(panel).metadata[METADATA_KEY]["sheet"]
    assert sheet.patches[0] == most
    panel.feature.setCurrentText("mean")
    panel.feature.textActivated.emit("mean")
    again = panel.boxes
    panel._viewer.layers.remove(again)
    panel._viewer.add_layer(again)
    assert panel.feature.currentText() == "mean"


def test_a_sheet_that_is_out_of_sight_is_brought_into_view(panel):
    viewer = panel._viewer
    viewer.canvas.size = (400, 400)
    viewer.reset_view()
    viewer.scene.camera.zoom *= 20
    panel.bring_sheet_into_view()
    camera = viewer.scene.camera
    half = np.array(viewer.canvas.size) / camera.zoom / 2
    for layer in (viewer.layers["scan"], sheet_of(panel)):
        away = np.abs(layer.extent.world[:, -2:] - camera.center[-2:])
        assert (away <= half * 1.01).all()
    zoom = camera.zoom
    panel.bring_sheet_into_view()
    assert camera.zoom == zoom


def test_a_click_on_a_box_marks_its_tile_and_its_row(panel):
    patch = 7
    z, y, x = panel.result.centres[patch]
    panel._viewer.dims.set_point(0, 1 + 3 * z)
    panel.click(panel.boxes.data_to_world((z, y, x)))
    assert panel._marked == patch
    np.testing.assert_array_equal(colours(panel)[patch], (1, 1, 1, 1))
    layer = sheet_of(panel)
    sheet = layer.metadata[METADATA_KEY]["sheet"]
    top, left, *_ = sheet.box_of(patch)
    left += sheet.caption_width
    assert (layer.data[max(top - 1, 0), left : left + 8] == layer.contrast_limits[1]).all() or (
        layer.data[top : top + 8, left - 1] == layer.contrast_limits[1]
    ).all()
    assert panel.table.chosen_positions().tolist() == [patch]
    assert f"Patch {patch} (z {int(z)}" in panel.message.text()


def test_a_click_on_a_tile_moves_the_viewer_to_its_patch(panel):
    layer = sheet_of(panel)
    sheet = layer.metadata[METADATA_KEY]["sheet"]
    patch = 12
    y, x, _, _ = sheet.box_of(patch)
    world = (0.0, *layer.data_to_world((y + 2, x + 3 + sheet.caption_width)))
    panel.click(np.array(world))
    assert panel._marked == patch
    assert ", original" in panel.message.text()
    centre = panel.boxes.data_to_world(panel.result.centres[patch])
    assert panel._viewer.dims.point[0] == pytest.approx(centre[0])


def test_a_patch_out_of_sight_is_brought_into_the_middle(panel):
    camera = panel._viewer.scene.camera
    camera.zoom, camera.center = 200.0, (1000.0, 1000.0)
    panel.go_to(4)
    centre = np.array(panel.boxes.data_to_world(panel.result.centres[4]))
    np.testing.assert_allclose(camera.center[-2:], centre[1:])
    # what is in sight stays where it is
    camera.center = tuple(centre[1:] + 0.2)
    panel.go_to(4)
    np.testing.assert_allclose(camera.center[-2:], centre[1:] + 0.2)


def test_a_click_on_a_row_marks_and_moves_too(panel):
    panel.table.selectRow(20)
    assert panel._marked == 20
    assert panel._viewer.dims.point[0] == 1 + 3 * panel.result.corners[20][0]


def test_a_marked_patch_that_has_no_tile_is_given_one(panel, monkeypatch):
    monkeypatch.setattr("hushpore.viewer.patches.widget.TILES", 5)
    panel.feature.setCurrentText("mean")
    layer = sheet_of(panel)
    least = int(panel.result.features["mean"].argmin())
    assert layer.metadata[METADATA_KEY]["sheet"].box_of(least) is None
    panel.mark(least)
    assert layer.metadata[METADATA_KEY]["sheet"].patches[0] == least
    assert len(layer.metadata[METADATA_KEY]["sheet"].patches) == 5


def test_a_range_of_the_histogram_chooses_boxes_and_tiles(panel):
    values = panel.result.features["mean"]
    panel.feature.setCurrentText("mean")
    low, high = np.sort(values)[[20, 25]]
    panel.histogram.choose(low, high)
    chosen = panel.chosen()
    assert len(chosen) == 6
    opaque = colours(panel)[:, 3] == 1
    np.testing.assert_array_equal(np.flatnonzero(opaque), chosen)
    sheet = sheet_of(panel).metadata[METADATA_KEY]["sheet"]
    # the highest first
    np.testing.assert_array_equal(sheet.patches, chosen[values[chosen].argsort()[::-1]])
    assert "6 of 30 patches selected" in panel.message.text()
    panel.histogram.clear()
    assert len(panel.chosen()) == 30
    assert (colours(panel)[:, 3] == 1).all()


def test_patches_that_are_not_chosen_cannot_be_clicked(panel):
    panel.feature.setCurrentText("mean")
    values = panel.result.features["mean"]
    panel.histogram.choose(values.max(), values.max() + 1)
    least = int(values.argmin())
    panel.click(np.array(panel.boxes.data_to_world(panel.result.centres[least])))
    assert panel._marked is None


def test_the_sheet_keeps_its_place_and_height_when_it_changes(panel):
    layer = sheet_of(panel)
    before = layer.extent.world
    panel.feature.setCurrentText("mean")
    panel.histogram.choose(-1, 1e9)
    np.testing.assert_allclose(layer.extent.world[0], before[0], atol=1)
    height = layer.scale[0] * layer.data.shape[0]
    assert height == pytest.approx(32, rel=0.02)


def test_without_boxes_the_panel_hides(panel):
    panel._viewer.layers.remove("scan · patches")
    assert panel.isHidden()
    panel.click(np.zeros(3))
    panel.feature.setCurrentText("mean")
    panel.histogram.choose(0, 1)


def test_a_deleted_sheet_is_not_missed(panel):
    panel._viewer.layers.remove("scan · contact sheet")
    panel.mark(3)
    panel.feature.setCurrentText("gradient")
    assert panel.result is not None


def test_the_table_is_sorted_by_a_click_below_the_row_that_is_marked(panel):
    panel.mark(5)
    panel.table.sortByColumn(5, panel.table.horizontalHeader().sortIndicatorOrder())
    assert panel.table.chosen_positions().tolist() == [5]
    rows = panel.table.model()
    means = [float(rows.data(rows.index(row, 5))) for row in range(30)]
    assert rows.positions[0] == 5
    assert means[1:] == sorted(means[1:])


def test_each_row_of_the_sheet_has_its_name_beside_it():
    rows = {"original": np.zeros((6, 12, 12)), "residual": np.ones((6, 12, 12))}
    sheet = contact_sheet(rows, columns=3)
    image, width = sheet.captioned, sheet.caption_width
    np.testing.assert_array_equal(image[:, width:], sheet.image)
    is_text = (image[:, :width] > 0.5).any(axis=1)
    for patch in (0, 3):
        top, *_ = sheet.box_of(patch)
        for number in range(2):
            row = top + number * (12 + GAP)
            assert is_text[row : row + 12].any()
    # of equal names, equal pictures
    second = sheet.box_of(3)[0]
    np.testing.assert_array_equal(image[:12, :width], image[second : second + 12, :width])


@pytest.fixture
def histogram(qtbot):
    found = PatchHistogram(ViewerModel())
    qtbot.addWidget(found)
    found.resize(212, 90)
    found.show_values("mean", np.linspace(100, 200, 500))
    found.show()
    return found


def drag(qtbot, histogram, start, end):
    qtbot.mousePress(histogram, Qt.MouseButton.LeftButton, pos=QPoint(start, 40))
    qtbot.mouseMove(histogram, QPoint(end, 40))
    qtbot.mouseRelease(histogram, Qt.MouseButton.LeftButton, pos=QPoint(end, 40))


def test_dragging_chooses_a_range_in_either_direction(qtbot, histogram):
    told = []
    histogram.chosen.connect(told.append)
    drag(qtbot, histogram, 56, 106)
    assert told[-1] == pytest.approx((125, 150))
    drag(qtbot, histogram, 106, 56)
    assert told[-1] == pytest.approx((125, 150))


def test_a_range_ends_with_the_values(qtbot, histogram):
    drag(qtbot, histogram, 106, 500)
    assert histogram.range == pytest.approx((150, 200))


def test_a_click_clears_the_range(qtbot, histogram):
    histogram.choose(110, 120)
    drag(qtbot, histogram, 50, 51)
    assert histogram.range is None


@pytest.mark.parametrize("values", [[], [3.0, 3.0], [np.nan, 1.0, 2.0]])
def test_few_or_strange_values_are_drawn(histogram, values):
    histogram.show_values("loss", np.array(values, float))
    histogram.choose(1, 2)
    assert not histogram.grab().isNull()
    assert "loss" in histogram.accessibleName()
