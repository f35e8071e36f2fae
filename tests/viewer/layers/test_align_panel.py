"""Two scans aligned in the window."""

import numpy as np
import pytest
from napari.components import ViewerModel
from scipy import ndimage

from hushpore.io.align import aligned
from hushpore.viewer.layers.conversion import volume_of
from hushpore.viewer.layers.scan_panels import AlignWidget


@pytest.fixture
def viewer():
    """A scan and the same sample three voxels higher, both with a voxel size and a place."""
    noise = np.random.default_rng(0).normal(size=(40, 44, 48))
    sample = 1000 * ndimage.gaussian_filter(noise, 2)
    viewer = ViewerModel()
    where = {"scale": (2, 2, 2), "units": "um", "translate": (10, 0, 0)}
    viewer.add_image(sample[:, :-3], name="before", **where)
    viewer.add_image(sample[:, 3:], name="after", colormap="magma", **where)
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = AlignWidget(viewer)
    qtbot.addWidget(widget)
    return widget


def test_the_newer_scan_is_moved_onto_the_older_one(qtbot, viewer, widget):
    before, after = viewer.layers
    assert (widget.moving.value, widget.fixed.value) == (after, before)
    expected, motion = aligned(volume_of(after), volume_of(before))
    widget._run.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 3)
    made = viewer.layers[2]
    assert made.name == "after aligned"
    assert motion.shift == pytest.approx([0, -6, 0], abs=0.1)
    np.testing.assert_array_equal(made.data, expected.array())
    within = made.data[4:-4, 4:-4, 4:-4], before.data[4:-4, 4:-4, 4:-4]
    assert np.corrcoef(within[0].ravel(), within[1].ravel())[0, 1] > 0.99
    np.testing.assert_allclose(made.scale, before.scale)
    np.testing.assert_allclose(made.translate, before.translate)
    assert (made.colormap.name, after.visible) == ("magma", False)
    assert "93 % of its volume overlaps" in widget._result.html
    assert "shifted by" in widget._result.html
    assert volume_of(made).metadata["padding_value"] < made.data[5, 5, 5]
    assert widget._run.isEnabled()


def test_scans_that_do_not_match_say_so_in_the_widget(qtbot, viewer, widget):
    viewer.add_image(np.random.default_rng(5).normal(size=(40, 41, 48)), name="other")
    viewer.layers[-1].scale, viewer.layers[-1].units = (2, 2, 2), "um"
    widget.moving.value = viewer.layers[-1]
    widget._run.click()
    qtbot.waitUntil(lambda: "do not match" in widget._result.html)
    assert len(viewer.layers) == 3
    assert widget._run.isEnabled()


def test_one_scan_cannot_be_aligned_with_itself(viewer, widget):
    widget.moving.value = viewer.layers[0]
    assert not widget._run.isEnabled()
    assert "Open two scans" in widget._result.html
    viewer.layers.clear()
    assert not widget._run.isEnabled()
