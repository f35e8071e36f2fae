import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Layer

import hushpore
from hushpore.patches.result import GAP, contact_sheet
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.patches.layers import caption_width, captioned, patch_layers
from hushpore.viewer.patches.panel import PatchesPanel
from hushpore.viewer.running.task import capture


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
    return panel._viewer.layers["scan contact sheet"]


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
    left += caption_width(sheet)
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
    world = (0.0, *layer.data_to_world((y + 2, x + 3 + caption_width(sheet))))
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
    monkeypatch.setattr("hushpore.viewer.patches.panel.TILES", 5)
    panel.feature.setCurrentText("mean")
    layer = sheet_of(panel)
    least = int(panel.result.features["mean"].argmin())
    assert layer.metadata[METADATA_KEY]["sheet"].box_of(least) is None
    panel.mark(least)
    assert layer.metadata[METADATA_KEY]["sheet"].patches[0] == least
    assert len(layer.metadata[METADATA_KEY]["sheet"].patches) == 5


def test_a_click_beside_everything_changes_nothing(panel):
    panel.click(np.array([0.0, -50.0, -50.0]))
    assert panel._marked is None


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
    panel._viewer.layers.remove("scan patches")
    assert panel.isHidden()
    panel.click(np.zeros(3))
    panel.feature.setCurrentText("mean")
    panel.histogram.choose(0, 1)


def test_a_deleted_sheet_is_not_missed(panel):
    panel._viewer.layers.remove("scan contact sheet")
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
    image, width = captioned(sheet), caption_width(sheet)
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
