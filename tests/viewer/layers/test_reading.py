"""The form for raw files without header."""

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.utils.notifications import notification_manager
from qtpy.QtCore import Qt

from hushpore import InputError, Volume
from hushpore.io.lazy_arrays import PlaneStack
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.docks import open_page
from hushpore.viewer.layers import reading
from hushpore.viewer.layers.conversion import READ, known_of, volume_of
from hushpore.viewer.layers.reader import read_layers
from hushpore.viewer.layers.reading import THUMBNAIL, RawImportWidget, SeriesChooser, thumbnail

SHAPE = (20, 40, 50)


@pytest.fixture
def values():
    z, y, x = np.indices(SHAPE)
    return (1000 + 500 * np.sin(x / 5) * np.cos(y / 6 + z / 9)).astype(">i2")


@pytest.fixture
def path(tmp_path, values):
    path = tmp_path / "scan_50_40_20.vol"
    path.write_bytes(b"h" * 128 + values.tobytes())
    return path


@pytest.fixture
def viewer():
    return ViewerModel()


@pytest.fixture
def widget(qtbot, viewer, path):
    widget = RawImportWidget(viewer)
    qtbot.addWidget(widget)
    widget.set_file(str(path))
    return widget


def test_the_guess_fills_the_form_and_opens_the_scan(qtbot, viewer, widget, values):
    assert [spin.value() for spin in widget._lengths] == list(SHAPE)
    assert (widget._order.currentText(), widget._offset.value()) == ("big", 128)
    assert "file name" in widget._result.html
    assert widget._fits.text() == "✓ Fits the file size exactly."
    assert widget._picture.pixmap().width() > 100
    widget._type.setCurrentText("int16")
    widget._size.setText("12 um")
    widget._open.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 1)
    (layer,) = viewer.layers
    np.testing.assert_array_equal(layer.data, values)
    assert volume_of(layer).spacing == (12, 12, 12)
    # as rerun reads it
    read = ScanRecipe.of(known_of(layer)[READ]).read()
    np.testing.assert_array_equal(read.data, values)
    assert read.spacing == (12, 12, 12)


def test_what_does_not_fit_is_said_at_once(qtbot, widget):
    widget._lengths[0].setValue(10)
    qtbot.waitUntil(lambda: "40,000 bytes at the end" in widget._fits.text())
    assert widget._open.isEnabled()
    widget._lengths[0].setValue(21)
    qtbot.waitUntil(lambda: "4,000 bytes more than the file has" in widget._fits.text())
    assert not widget._open.isEnabled()
    widget._lengths[0].setValue(20)
    qtbot.waitUntil(widget._open.isEnabled)
    widget._size.setText("12")
    widget._open.click()
    assert "is not a voxel size" in widget._result.html


def test_a_file_that_is_gone(qtbot, viewer, tmp_path):
    widget = RawImportWidget(viewer)
    qtbot.addWidget(widget)
    assert not widget._open.isEnabled()
    widget.set_file(str(tmp_path / "none.raw"))
    assert "cannot be read" in widget._result.html


def test_a_dropped_raw_file_opens_the_form(make_napari_viewer, path):
    viewer = make_napari_viewer()
    assert read_layers(str(path)) == [(None,)]
    form = open_page(viewer, "Raw file")
    assert form.recipe.shape == "20,40,50"
    assert "has no header" in form._result.html


def test_a_dropped_raw_file_that_its_name_does_not_fit(make_napari_viewer, tmp_path, values):
    path = tmp_path / "half_50x40x20_int16.raw"
    path.write_bytes(values.tobytes()[: values.nbytes // 2])
    viewer = make_napari_viewer()
    read_layers(str(path))
    assert list(viewer.window.dock_widgets) == ["Prepare (hushpore)"]
    form = open_page(viewer, "Raw file")
    said = "voxels of int16 (80,000 bytes), but the file has 40,000 bytes. Copy it again"
    assert said in form._result.html
    assert said in notification_manager.records[-1].message


def test_the_button_is_in_sight_on_a_low_screen(qtbot, widget):
    widget.resize(320, 500)
    widget.show()
    qtbot.waitUntil(lambda: widget.height() == 500)
    assert widget.rect().contains(widget._open.geometry())
    assert widget.rect().contains(widget._fits.geometry())


def stack(name, depth, notes=()):
    values = np.zeros((depth, 90, 60), np.int16)
    values[:, :30] = 100
    return Volume(values, spacing=(2, 1, 1), unit="mm", name=name, notes=list(notes))


@pytest.fixture
def chooser(qtbot):
    widget = SeriesChooser(
        [stack("scout", 1), stack("thorax", 40, ["Slice 6 is missing."]), stack("head", 9)]
    )
    qtbot.addWidget(widget)
    yield widget
    widget._thumbnails.cancel()


def test_a_series_is_listed_with_its_size_and_its_notes(chooser):
    name, shape, rest, note = chooser._list.item(1).text().splitlines()
    assert (name, shape) == ("thorax", "40 x 90 x 60")
    assert rest == "2 x 1 x 1 mm · int16 · 432 kB"
    assert note == "⚠ Slice 6 is missing."


def test_a_click_anywhere_in_a_row_selects_it_or_not(qtbot, chooser):
    chooser.tick([])
    shown = chooser._list
    place = shown.visualItemRect(shown.item(2)).center()
    for ticked in ([2], []):
        qtbot.mouseClick(shown.viewport(), Qt.MouseButton.LeftButton, pos=place)
        assert chooser.ticked() == ticked


def test_the_ticks_are_told_in_number_and_size(chooser):
    chooser.tick([1])
    assert chooser._total.text() == "1 of 3 series, 432 kB"
    chooser.tick([])
    assert not chooser._open.isEnabled()
    assert chooser._open.toolTip() == "Select a series first."
    chooser.tick(range(3))
    assert chooser.ticked() == [0, 1, 2]


def test_what_has_a_tick_is_chosen(qtbot, chooser):
    chooser.tick([0, 2])
    with qtbot.waitSignal(chooser.chosen) as heard:
        chooser._open.click()
    assert [volume.name for volume in heard.args[0]] == ["scout", "head"]


def test_where_memory_is_short_the_largest_is_proposed(qtbot, monkeypatch):
    monkeypatch.setattr(reading, "free_memory", lambda: 1000.0)
    widget = SeriesChooser([stack("a", 2), stack("b", 5), stack("c", 1)])
    qtbot.addWidget(widget)
    assert widget.ticked() == [1]
    widget._thumbnails.cancel()


def test_each_series_gets_its_picture(qtbot, chooser):
    qtbot.waitUntil(lambda: not chooser._timer.isActive(), timeout=10_000)
    assert all(not chooser._list.item(number).icon().isNull() for number in range(3))


def test_a_picture_is_small_and_keeps_the_proportions():
    drawn = thumbnail(stack("thorax", 40))
    assert drawn.shape == (45, 30)
    assert max(drawn.shape) <= THUMBNAIL
    assert (drawn[:15] == 255).all()
    assert (drawn[15:] == 0).all()


def test_only_the_middle_slice_is_read_for_a_picture():
    seen = []
    planes = PlaneStack(
        np.arange(9), (4, 4), np.dtype(int), lambda n, out: (seen.append(n), out.fill(n))
    )
    thumbnail(Volume(planes))
    assert seen == [4]


def test_a_damaged_series_has_no_picture_and_the_others_have(qtbot, monkeypatch):
    def refuse(number, out):
        raise InputError("damaged")

    damaged = Volume(PlaneStack(np.arange(9), (4, 4), np.dtype(int), refuse))
    drawn = list(reading._thumbnails([damaged, stack("head", 3)]))
    assert [preview.name for preview in drawn] == ["1"]
