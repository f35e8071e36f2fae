from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from napari.components import ViewerModel
from qtpy.QtCore import QPoint, Qt
from qtpy.QtGui import QImage

from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.preview import GreySurvey, survey_greys
from hushpore.pores.settings import PoreSettings
from hushpore.pores.void.threshold import Range
from hushpore.scan.histogram import Histogram
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.running.task import capture
from hushpore.viewer.segment.grey_panel import STRICT, THRESHOLD, GreyHistogram, VoidPreview


def survey(values, **known):
    levels, counts = np.unique(values, return_counts=True)
    centers = np.arange(levels[0], levels[-1] + 1, dtype=float)
    full = np.zeros(centers.size, np.int64)
    full[(levels - levels[0]).astype(int)] = counts
    return GreySurvey(Histogram(full, centers), Range(levels[0], levels[-1]), **known)


@pytest.fixture
def greys():
    """Two phases of noise about -600 and 400, and one voxel far away."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-600, 60, 9000), rng.normal(400, 60, 9000), [30000]])
    return survey(values.round(), unit="HU")


@pytest.fixture
def histogram(qtbot, greys):
    histogram = GreyHistogram(ViewerModel())
    qtbot.addWidget(histogram)
    histogram.resize(320, histogram.height())
    histogram.show_greys(greys)
    histogram.came = []
    histogram.moved.connect(lambda name, value: histogram.came.append((name, value)))
    return histogram


def place(histogram, value):
    return QPoint(round(histogram._x(value)), 40)


def one_value(histogram):
    """How many grey values a pixel stands for."""
    low, high = histogram.limits
    return (high - low) / histogram._area().width()


def test_a_few_voxels_far_away_do_not_squeeze_the_rest(greys):
    low, high = greys.limits
    assert -1000 < low < -700
    assert 500 < high < 800


@pytest.mark.parametrize("bins", [7, 60, 150])
def test_bars_hold_every_voxel_between_the_limits_once(greys, bins):
    limits = greys.limits
    counts, edges = greys.histogram.bars(bins, limits)
    centers = greys.histogram.centers
    within = (centers >= limits[0]) & (centers < limits[1])
    assert counts.sum() == greys.histogram.counts[within].sum()
    assert counts.size <= bins
    assert np.allclose(np.diff(edges), np.diff(edges)[0])


def test_bars_are_never_narrower_than_a_level():
    greys = survey(np.array([0, 1, 2, 2, 3]))
    counts, edges = greys.histogram.bars(150, (0.0, 4.0))
    np.testing.assert_array_equal(counts, [1, 1, 2, 1])
    np.testing.assert_array_equal(edges, [-0.5, 0.5, 1.5, 2.5, 3.5])


def test_a_line_is_dragged_to_a_grey_value(qtbot, histogram):
    histogram.show_lines({THRESHOLD: 0.0})
    qtbot.mousePress(histogram, Qt.MouseButton.LeftButton, pos=place(histogram, 0.0))
    qtbot.mouseMove(histogram, place(histogram, -200.0))
    qtbot.mouseRelease(histogram, Qt.MouseButton.LeftButton, pos=place(histogram, -200.0))
    name, value = histogram.came[-1]
    assert name == THRESHOLD
    assert value == pytest.approx(-200.0, abs=one_value(histogram))
    count = len(histogram.came)
    qtbot.mouseMove(histogram, place(histogram, 300.0))
    assert len(histogram.came) == count


def test_of_two_lines_the_nearer_one_moves(qtbot, histogram):
    histogram.show_lines({THRESHOLD: 100.0, STRICT: -300.0})
    for value, name in ((-250.0, STRICT), (80.0, THRESHOLD)):
        qtbot.mouseClick(histogram, Qt.MouseButton.LeftButton, pos=place(histogram, value))
        assert histogram.came[-1][0] == name


def test_a_line_stays_within_what_is_shown(qtbot, histogram):
    histogram.show_lines({THRESHOLD: 0.0})
    qtbot.mousePress(histogram, Qt.MouseButton.LeftButton, pos=place(histogram, 0.0))
    qtbot.mouseMove(histogram, QPoint(5000, 40))
    qtbot.mouseRelease(histogram, Qt.MouseButton.LeftButton, pos=QPoint(5000, 40))
    assert histogram.came[-1][1] == histogram.limits[1]


def test_without_lines_nothing_moves_and_the_tooltip_says_why(qtbot, histogram):
    histogram.show_lines({}, reason="no line here")
    qtbot.mouseClick(histogram, Qt.MouseButton.LeftButton, pos=QPoint(50, 40))
    qtbot.keyClick(histogram, Qt.Key.Key_Right)
    assert not histogram.came
    assert histogram.toolTip() == "no line here"


def test_arrow_keys_move_the_line_at_hand(qtbot, histogram):
    histogram.step = 2.0
    histogram.show_lines({THRESHOLD: 100.0, STRICT: -300.0})
    qtbot.keyClick(histogram, Qt.Key.Key_Right)
    qtbot.keyClick(histogram, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClick(histogram, Qt.Key.Key_Down)
    qtbot.keyClick(histogram, Qt.Key.Key_Left)
    assert histogram.came == [(THRESHOLD, 102.0), (THRESHOLD, 80.0), (STRICT, -302.0)]


def test_it_says_what_it_shows_to_those_who_do_not_see_it(histogram):
    histogram.show_lines({THRESHOLD: -337.0})
    assert histogram.accessibleName() == "Histogram of grey values: threshold -337 HU"


def colours_in(histogram):
    image = histogram.grab().toImage()
    row = image.height() - 25
    return {image.pixelColor(x, row).name() for x in range(10, image.width() - 10)}


@pytest.mark.parametrize("bright", [False, True])
def test_bars_of_the_void_have_its_colour(histogram, bright):
    from hushpore.viewer.segment.grey_panel import VOID_COLOUR, WEAK_COLOUR

    histogram.set_log(True)
    histogram.show_lines({})
    assert not {VOID_COLOUR, WEAK_COLOUR} & colours_in(histogram)
    histogram.show_lines({THRESHOLD: 0.0}, bright=bright, mark=("otsu", 20.0))
    assert VOID_COLOUR in colours_in(histogram)
    assert WEAK_COLOUR not in colours_in(histogram)
    strict = 400.0 if bright else -600.0
    histogram.show_lines({THRESHOLD: 0.0, STRICT: strict}, bright=bright)
    assert {VOID_COLOUR, WEAK_COLOUR} <= colours_in(histogram)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("mark", [None, ("otsu", 100.0), ("otsu", 0.0)])
def test_focus_draws_a_frame_and_nothing_within(qtbot, histogram, theme, mark):
    histogram._viewer.theme = theme
    histogram.show_lines({THRESHOLD: 0.0}, mark=mark)
    histogram.show()
    histogram.activateWindow()

    def pixels():
        image = histogram.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
        bits = image.constBits()
        # PyQt has a pointer, PySide a memoryview
        values = bits.asarray(image.sizeInBytes()) if hasattr(bits, "asarray") else bits
        return np.array(values, int).reshape(image.height(), image.width(), 4)[..., :3]

    histogram.setFocus()
    qtbot.waitUntil(histogram.hasFocus)
    focused = pixels()
    histogram.clearFocus()
    plain = pixels()
    differs = np.abs(focused - plain).max(axis=2) > 0
    frame = np.ones_like(differs)
    frame[3:-3, 3:-3] = False
    assert differs[frame].mean() > 0.5
    # the line at hand is drawn thicker; all else is as it was
    within = differs & ~frame
    assert within.any(axis=0).sum() <= 4
    assert within.mean() < 0.02


def test_it_follows_the_theme(histogram):
    histogram._viewer.theme = "light"
    light = histogram.grab().toImage().pixelColor(4, 60).name()
    histogram._viewer.theme = "dark"
    assert histogram.grab().toImage().pixelColor(4, 60).name() != light


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
    assert layer.name == "scan · void (preview)"
    assert is_preview(layer)


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
    assert [each.name for each in viewer.layers] == ["scan", "scan · void (preview)"]
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
