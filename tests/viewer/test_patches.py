import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Labels, Layer

from hushpore.viewer.layers import KEY
from hushpore.viewer.patches import PatchesWidget, boxes


def test_boxes_surround_the_voxels_of_their_patches():
    (outline,) = boxes(np.array([[3, 10, 20]]), (4, 6))
    np.testing.assert_array_equal(outline[:, 0], 3)
    np.testing.assert_array_equal(outline[:, 1:].min(axis=0), (9.5, 19.5))
    np.testing.assert_array_equal(outline[:, 1:].max(axis=0), (13.5, 25.5))


@pytest.mark.parametrize("corner", [(5, 6), (2, 5, 6), (1, 2, 5, 6)])
def test_boxes_have_the_axes_of_the_volume(corner):
    assert boxes(np.array([corner]), (4, 4)).shape == (1, 4, len(corner))


def test_images_only_can_be_sampled():
    assert PatchesWidget.accepts(Image(np.zeros((4, 8, 8))))
    assert not PatchesWidget.accepts(Labels(np.zeros((4, 8, 8), int)))


def test_the_real_sampler_runs_behind_the_widget(qtbot, scan):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    widget = PatchesWidget(viewer)
    qtbot.addWidget(widget)
    widget.form.fields["n_patches"].set(5)
    widget.form.fields["patch_size"].set(8)
    widget._run_button.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    shapes = viewer.layers["scan patches"]
    assert shapes.nshapes == 5
    assert tuple(shapes.scale) == (2, 0.5, 0.5)
    z, y, x = np.ceil(shapes.data[2].min(axis=0)).astype(int)
    patch = scan[z, y : y + 8, x : x + 8]
    assert shapes.features["mean"][2] == pytest.approx(patch.mean())
    assert shapes.features["sd"][2] == pytest.approx(patch.std(), rel=1e-4)
    assert shapes.metadata[KEY]["provenance"]["job"] == "patches"


def test_boxes_are_coloured_by_their_order():
    from hushpore.base.volume import Volume
    from hushpore.patches.job import Patches
    from hushpore.viewer.target import capture

    volume = Volume(np.zeros((4, 32, 32)))
    layer = Image(volume.data)
    corners = np.array([(0, 0, 0), (1, 4, 4), (3, 8, 8)])
    result = Patches(corners, np.zeros((3, 8, 8)), (8, 8), volume, {}, {"job": "patches"})
    target = capture(layer)
    (data,) = PatchesWidget.result_layers(result, target)
    shapes = Layer.create(*data)
    assert len(np.unique(shapes.edge_color, axis=0)) == 3
    assert list(shapes.features["order"]) == [1, 2, 3]
