"""The swipe: shown by a link, dragged in the 2D view, and removed without a trace."""

import dask.array
import numpy as np
import pytest
from napari.components import ViewerModel

from hushpore.viewer.denoise.widget import REACH, DenoiseWidget, Swipe
from hushpore.viewer.forms.choices import is_preview

SHAPE = (6, 20, 40)


class Mouse:
    """Mouse events at positions in the world."""

    def __init__(self, viewer, swipe):
        self.viewer, self.swipe = viewer, swipe

    def drag(self, *xs, button=1):
        """Press at the first x and move to the others; return whether the swipe took the press."""
        event = type("Event", (), {"button": button, "handled": False})()
        event.type, event.position = "mouse_press", self._at(xs[0])
        drag = self.swipe._pressed(self.viewer, event)
        for x in xs[1:]:
            if next(drag, "over") == "over":
                break
            event.type, event.position = "mouse_move", self._at(x)
        next(drag, None)
        taken, event.type = event.handled, "mouse_release"
        next(drag, None)
        return taken

    def _at(self, x):
        point = np.array(self.viewer.dims.point, float)
        point[self.viewer.dims.displayed[-1]] = x
        return tuple(point)


@pytest.fixture(params=[np.asarray, dask.array.asarray], ids=["numpy", "dask"])
def opened(request):
    """The viewer with a scan of 0.5 mm voxels and its denoised one, and the swipe over them."""
    viewer = ViewerModel()
    values = np.random.default_rng(0).normal(100, 10, SHAPE).astype("f4")
    words = {"scale": (0.5,) * 3, "units": ("mm",) * 3, "contrast_limits": (0, 200)}
    before = viewer.add_image(request.param(values), name="scan", **words)
    after = viewer.add_image(values * 0 + 100, name="scan · denoised", **words)
    viewer.add_labels(
        np.zeros(SHAPE, int), name="pores", **{k: words[k] for k in ("scale", "units")}
    )
    swipe = Swipe(viewer, before, after)
    return viewer, before, after, swipe, values


def test_the_scan_is_shown_left_of_the_line_and_its_values_are_not_copied(opened):
    viewer, before, after, swipe, values = opened
    assert [layer.name for layer in viewer.layers] == [
        "scan", "scan · denoised", "Before | after", "pores",
    ]  # fmt: skip
    viewer.dims.set_point(0, 2 * 0.5)
    shown = swipe.layer._data_view
    np.testing.assert_array_equal(shown, values[2, :, :20])
    np.testing.assert_array_equal(before.data, values)
    assert is_preview(swipe.layer)
    if isinstance(before.data, np.ndarray):
        assert np.shares_memory(swipe.layer.data[2:3], before.data)
    assert tuple(swipe.layer.scale) == tuple(before.scale)
    assert swipe.layer.bounding_box.visible
    after.contrast_limits = (50, 150)
    assert tuple(swipe.layer.contrast_limits) == (50, 150)


def test_the_line_is_dragged_and_a_press_elsewhere_moves_the_view(opened):
    viewer, _, _, swipe, values = opened
    mouse = Mouse(viewer, swipe)
    line = 0.5 * swipe.place
    near, far = (share * REACH / viewer.scene.camera.zoom for share in (0.9, 1.1))
    assert not mouse.drag(line + far, 0.5 * 30)
    assert not mouse.drag(line, 0.5 * 30, button=2)
    assert swipe.layer.data.shape == (6, 20, 20)
    assert mouse.drag(line + near, 0.5 * 25, 0.5 * 29.5)
    assert swipe.place == 29.5
    np.testing.assert_array_equal(
        swipe.layer._data_view, values[viewer.dims.current_step[0], :, :30]
    )
    # beyond the edges a column stays on each side
    assert mouse.drag(0.5 * swipe.place, 1000.0)
    assert swipe.layer.data.shape[-1] == 39
    assert mouse.drag(0.5 * swipe.place, -1000.0)
    assert swipe.layer.data.shape[-1] == 1


def test_other_axes_and_3d_are_followed(opened):
    viewer, _, _, swipe, values = opened
    viewer.dims.order = (2, 0, 1)
    assert swipe.layer.data.shape == (6, 10, 40)
    swipe.move(14.5)
    shown = swipe.layer._data_view
    np.testing.assert_array_equal(shown, values[:, :15, viewer.dims.current_step[2]])
    viewer.dims.ndisplay = 3
    assert not swipe.layer.visible
    viewer.dims.ndisplay = 2
    assert swipe.layer.visible


@pytest.mark.parametrize("removed", ["the swipe", "scan · denoised"])
def test_the_swipe_ends_with_its_layer_or_the_denoised_one(opened, removed):
    viewer, _, after, swipe, _ = opened
    viewer.layers.remove(swipe.layer if removed == "the swipe" else after)
    assert not swipe.is_shown
    assert swipe._pressed not in viewer.mouse_drag_callbacks
    viewer.dims.ndisplay = 3
    after.contrast_limits = (1, 2)
    assert tuple(swipe.layer.contrast_limits) == (0, 200)


@pytest.mark.usefixtures("small_network")
def test_the_link_of_a_result_shows_the_swipe_and_removes_it(qtbot, scan, monkeypatch):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan")
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.form.update({"patch_size": 16, "batch_size": 2, "steps": 3})
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "Before | after" in widget._result.text()
    widget._result.linkActivated.emit("swipe")
    assert "Before | after" in viewer.layers
    # the choice of a layer does not offer it
    assert viewer.layers["Before | after"] not in widget.layer._listed
    widget._result.linkActivated.emit("swipe")
    assert "Before | after" not in viewer.layers
    warned = []
    monkeypatch.setattr("hushpore.viewer.denoise.widget.show_warning", warned.append)
    viewer.layers.remove("scan")
    widget._result.linkActivated.emit("swipe")
    assert "removed" in warned[0]
