import dask.array as da
import numpy as np
import pytest
from napari.components import ViewerModel

from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.preview import survey_greys
from hushpore.pores.settings import PoreSettings
from hushpore.viewer.forms.layer_choice import is_preview
from hushpore.viewer.running.task import capture
from hushpore.viewer.segment.grey_panel import VoidPreview

SOON = 60_000


@pytest.fixture
def viewer(scan):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    viewer.dims.set_current_step(0, 3)
    return viewer


@pytest.fixture
def preview(qtbot, viewer):
    return VoidPreview(viewer)


def show(qtbot, preview, layer, **settings):
    target = capture(layer)
    with KernelThreads(1) as threads:
        greys = result_of(survey_greys(target.volume, threads))
    preview.show(target, PoreSettings(**{"exterior": "keep", **settings}), greys)
    wait(qtbot, preview)


def wait(qtbot, preview):
    qtbot.waitUntil(lambda: not preview.is_busy, timeout=SOON)


def test_the_void_lies_over_the_slice_on_the_screen(qtbot, viewer, preview, scan):
    show(qtbot, preview, viewer.layers["scan"], threshold=-20.5)
    layer = preview.layer
    np.testing.assert_array_equal(layer.data, (scan[3:4] <= -20.5).astype(np.uint8))
    assert tuple(layer.scale) == (2, 0.5, 0.5)
    assert tuple(layer.translate) == (6, 0, 0)
    assert layer.name == "scan void (preview)"
    assert is_preview(layer)


def test_the_void_of_a_preview_is_named_after_its_result(qtbot, viewer, preview, scan):
    viewer.layers["scan"].name = "scan denoised (preview)"
    show(qtbot, preview, viewer.layers[0], threshold=-20.5)
    assert preview.layer.name == "scan denoised void (preview)"


def test_it_follows_the_slider_and_the_settings_in_one_layer(qtbot, viewer, preview, scan):
    show(qtbot, preview, viewer.layers["scan"], threshold=0.0)
    layer = preview.layer
    viewer.dims.set_current_step(0, 6)
    wait(qtbot, preview)
    np.testing.assert_array_equal(layer.data[0] > 0, scan[6] <= 0)
    assert layer.translate[0] == 12
    show(qtbot, preview, viewer.layers["scan"], threshold=0.0, pores_are="bright")
    np.testing.assert_array_equal(layer.data[0] > 0, scan[6] > 0)
    assert preview.layer is layer
    assert len(viewer.layers) == 2


def test_it_has_the_voxel_size_of_the_scan_when_that_is_another(qtbot, viewer, preview, scan):
    layer = viewer.layers["scan"]
    show(qtbot, preview, layer, threshold=0.0)
    layer.scale, layer.units = (15,) * 3, ("um",) * 3
    viewer.dims.set_point(0, 45)
    show(qtbot, preview, layer, threshold=0.0)
    assert [each.name for each in viewer.layers] == ["scan", "scan void (preview)"]
    assert tuple(preview.layer.scale) == (15, 15, 15)
    assert tuple(preview.layer.translate) == (45, 0, 0)
    assert preview.layer.units == layer.units
    np.testing.assert_array_equal(preview.layer.data[0] > 0, scan[3] <= 0)


def test_what_the_user_has_at_hand_stays_at_hand(qtbot, viewer, preview):
    scan = viewer.layers["scan"]
    viewer.layers.selection.active = scan
    show(qtbot, preview, scan)
    # in a turn of its own
    qtbot.waitUntil(lambda: viewer.layers.selection.active is scan, timeout=SOON)


def test_hysteresis_has_two_colours(qtbot, viewer, preview, scan):
    show(qtbot, preview, viewer.layers["scan"], threshold=-300.0, hysteresis=-600.0)
    assert set(np.unique(preview.layer.data)) == {0, 1, 2}
    colours = preview.layer.colormap.map(np.array([0, 1, 2], np.uint8))
    assert colours[0, 3] == 0
    assert not np.allclose(colours[1], colours[2])


def test_it_goes_when_it_is_not_wanted(qtbot, viewer, preview):
    show(qtbot, preview, viewer.layers["scan"])
    preview.hide()
    viewer.dims.set_current_step(0, 1)
    wait(qtbot, preview)
    assert [layer.name for layer in viewer.layers] == ["scan"]
    assert preview.layer is None


def test_deleting_the_layer_refuses_it(qtbot, viewer, preview):
    show(qtbot, preview, viewer.layers["scan"])
    with qtbot.waitSignal(preview.dismissed, timeout=SOON):
        viewer.layers.remove(preview.layer)
    viewer.dims.set_current_step(0, 1)
    wait(qtbot, preview)
    assert len(viewer.layers) == 1


def test_in_3d_it_waits_for_slices_to_come_back(qtbot, viewer, preview):
    show(qtbot, preview, viewer.layers["scan"])
    messages = []
    preview.message_changed.connect(messages.append)
    viewer.dims.ndisplay = 3
    assert not preview.layer.visible
    assert "in 2D only" in messages[-1]
    viewer.dims.ndisplay = 2
    wait(qtbot, preview)
    assert preview.layer.visible
    assert messages[-1] == ""


def test_hidden_by_the_user_it_stays_hidden(qtbot, viewer, preview):
    show(qtbot, preview, viewer.layers["scan"])
    preview.layer.visible = False
    viewer.dims.set_current_step(0, 1)
    wait(qtbot, preview)
    assert not preview.layer.visible


def test_images_series_and_arrays_on_disk_are_shown_too(qtbot, viewer, preview, scan):
    viewer.layers.clear()
    image = viewer.add_image(scan[4], name="image")
    show(qtbot, preview, image, threshold=0.0)
    np.testing.assert_array_equal(preview.layer.data > 0, scan[4] <= 0)
    series = np.stack([scan, -scan])
    layer = viewer.add_image(da.from_array(series, chunks=(1, 1, 32, 32)), name="series")
    viewer.dims.set_current_step((0, 1), (1, 5))
    show(qtbot, preview, layer, threshold=0.0)
    np.testing.assert_array_equal(preview.layer.data[0, 0] > 0, series[1, 5] <= 0)
    assert tuple(preview.layer.translate) == (1, 5, 0, 0)


def test_a_slice_that_cannot_be_read_is_said(qtbot, viewer, preview, scan):
    def broken(block):
        raise OSError("the disk is gone")

    lazy = da.from_array(scan, chunks=(1, 32, 32))
    layer = viewer.add_image(lazy, name="lazy")
    show(qtbot, preview, layer)
    preview.hide()
    layer_broken = capture(layer)
    object.__setattr__(layer_broken.volume, "data", lazy.map_blocks(broken, meta=scan[:0]))
    messages = []
    preview.message_changed.connect(messages.append)
    with KernelThreads(1) as threads:
        greys = result_of(survey_greys(capture(viewer.layers["scan"]).volume, threads))
    preview.show(layer_broken, PoreSettings(threshold=0.0), greys)
    wait(qtbot, preview)
    assert "the disk is gone" in messages[-1]
    assert preview.layer is None
