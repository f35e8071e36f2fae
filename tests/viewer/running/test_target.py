"""What a job works on, and which slice of it is on the screen."""

import numpy as np
import pytest
from napari.components import ViewerModel

from hushpore.viewer.running.task import capture, slice_on_screen


@pytest.fixture
def viewer():
    viewer = ViewerModel()
    viewer.add_image(
        np.zeros((3, 10, 8, 9)),
        scale=(1, 2, 0.5, 0.5),
        translate=(0, 100, 0, 0),
        axis_labels=("t", "z", "y", "x"),
    )
    return viewer


def test_the_slice_on_the_screen_is_told_in_voxels(viewer):
    target = capture(viewer.layers[0])
    viewer.dims.set_point((0, 1), (2, 100 + 2 * 7))
    assert slice_on_screen(viewer, target) == (2, 7)


def test_it_is_known_after_the_layer_is_gone(viewer):
    target = capture(viewer.layers[0])
    viewer.add_image(np.zeros((3, 200, 8, 9)))
    viewer.layers.pop(0)
    viewer.dims.set_point((0, 1), (1, 104))
    assert slice_on_screen(viewer, target) == (1, 2)


def test_a_turned_layer_has_its_slices_where_it_lies():
    viewer = ViewerModel()
    affine = np.eye(4)
    affine[:3, 3] = 5, 0, 0
    viewer.add_image(np.zeros((10, 8, 9)), rotate=np.diag([-1.0, -1.0, 1.0]), affine=affine)
    target = capture(viewer.layers[0])
    viewer.dims.set_point(0, 2.0)
    # z of the world is 5 less that of the layer
    assert slice_on_screen(viewer, target) == (3,)


@pytest.mark.parametrize(
    "turn",
    [
        lambda viewer: setattr(viewer.dims, "ndisplay", 3),
        lambda viewer: setattr(viewer.dims, "order", (0, 2, 1, 3)),
        lambda viewer: viewer.dims.set_point(1, 50),
    ],
    ids=["3d", "turned", "beyond"],
)
def test_where_no_slice_of_it_is_on_the_screen_nothing_is_told(viewer, turn):
    target = capture(viewer.layers[0])
    viewer.add_image(np.zeros((3, 200, 8, 9)))
    turn(viewer)
    assert slice_on_screen(viewer, target) is None


def test_an_image_has_one_slice():
    viewer = ViewerModel()
    viewer.add_image(np.zeros((8, 9)))
    assert slice_on_screen(viewer, capture(viewer.layers[0])) == ()
