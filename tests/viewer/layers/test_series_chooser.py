import numpy as np
import pytest
from qtpy.QtCore import Qt

from hushpore import InputError, Volume
from hushpore.io.lazy_arrays import PlaneStack
from hushpore.viewer.layers import series_chooser
from hushpore.viewer.layers.series_chooser import THUMBNAIL, SeriesChooser, thumbnail


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
    widget._stop()


def test_a_series_is_listed_with_its_size_and_its_notes(chooser):
    name, shape, rest, note = chooser._rows[1].text.text().splitlines()
    assert (name, shape) == ("thorax", "40 x 90 x 60")
    assert rest == "2 x 1 x 1 mm · int16 · 432 kB"
    assert note == "⚠ Slice 6 is missing."


def test_a_click_anywhere_in_a_row_changes_its_tick(qtbot, chooser):
    chooser.tick([])
    qtbot.mouseClick(chooser._rows[2], Qt.MouseButton.LeftButton)
    assert chooser.ticked() == [2]


def test_the_ticks_are_told_in_number_and_size(chooser):
    chooser.tick([1])
    assert chooser._total.text() == "1 of 3 series, 432 kB"
    chooser.tick([])
    assert not chooser._open.isEnabled()
    assert chooser._open.toolTip() == "Tick a series first."
    chooser.tick(range(3))
    assert chooser.ticked() == [0, 1, 2]


def test_what_has_a_tick_is_chosen(qtbot, chooser):
    chooser.tick([0, 2])
    with qtbot.waitSignal(chooser.chosen) as heard:
        chooser._open.click()
    assert [volume.name for volume in heard.args[0]] == ["scout", "head"]


def test_where_memory_is_short_the_largest_is_proposed(qtbot, monkeypatch):
    monkeypatch.setattr(series_chooser, "free_memory", lambda: 1000.0)
    widget = SeriesChooser([stack("a", 2), stack("b", 5), stack("c", 1)])
    qtbot.addWidget(widget)
    assert widget.ticked() == [1]
    widget._stop()


def test_each_series_gets_its_picture(qtbot, chooser):
    qtbot.waitUntil(lambda: not chooser._timer.isActive(), timeout=10_000)
    assert all(not row.thumbnail.pixmap().isNull() for row in chooser._rows)


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
    drawn = list(series_chooser._thumbnails([damaged, stack("head", 3)]))
    assert [preview.name for preview in drawn] == ["1"]
