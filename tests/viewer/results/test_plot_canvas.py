import numpy as np
import pytest
from napari.utils.theme import get_theme
from qtpy.QtCore import QSize
from qtpy.QtGui import QResizeEvent

from hushpore.viewer.results.plots import PlotCanvas


def test_words_have_room_and_a_mark_that_moves_lays_nothing_out(qtbot, viewer):
    canvas = PlotCanvas(viewer)
    qtbot.addWidget(canvas)
    axes = canvas.figure.add_subplot()
    axes.set_ylabel("a long\nname in\nmany\nlines")
    canvas.show_figure()

    def is_within():
        return axes.get_tightbbox(canvas.get_renderer()).x0 >= 0

    assert not is_within()
    qtbot.waitUntil(is_within, timeout=5000)
    placed = axes.get_position().bounds
    axes.set_ylabel("")
    canvas.draw()
    assert axes.get_position().bounds == placed
    axes.set_ylabel("a long\nname in\nmany\nlines")
    canvas.resizeEvent(QResizeEvent(QSize(200, 150), canvas.size()))
    canvas.draw()
    assert is_within()


def test_plots_are_drawn_once_for_all_sizes_a_dock_goes_through_and_stretched_till_then(
    qtbot, viewer
):
    canvas = PlotCanvas(viewer)
    qtbot.addWidget(canvas)
    canvas.figure.add_subplot().axvspan(0.4, 0.6, color="red")
    drawn = []
    canvas.mpl_connect("draw_event", drawn.append)
    canvas.resize(200, 150)
    canvas.show()
    canvas.show_figure()
    qtbot.waitUntil(lambda: len(drawn) == 1)

    def red_share():
        picture = canvas.grab().toImage()
        row = [picture.pixelColor(x, picture.height() // 2) for x in range(picture.width())]
        return np.mean([colour.red() > 200 and colour.blue() < 50 for colour in row])

    share = red_share()
    assert share > 0.1
    for width in (260, 320, 400):
        canvas.resize(width, 300)
        assert abs(red_share() - share) < 0.02
    assert len(drawn) == 1
    qtbot.waitUntil(lambda: len(drawn) == 2)
    qtbot.wait(200)
    assert len(drawn) == 2
    assert red_share() > 0.1


def test_a_picture_is_png_where_its_name_says_nothing_else(qtbot, viewer, tmp_path):
    canvas = PlotCanvas(viewer)
    qtbot.addWidget(canvas)
    canvas.figure.add_subplot()
    canvas.save(tmp_path / "plot v1.2")
    canvas.save(tmp_path / "plot.svg")
    qtbot.waitUntil((tmp_path / "plot.svg").exists)
    qtbot.waitUntil((tmp_path / "plot v1.2.png").exists)
    assert (tmp_path / "plot v1.2.png").read_bytes().startswith(b"\x89PNG")


def test_all_words_have_the_colour_of_the_window(qtbot, viewer):
    canvas = PlotCanvas(viewer)
    qtbot.addWidget(canvas)
    axes = canvas.figure.add_subplot()
    words = (
        axes.set_title("title"),
        axes.set_xlabel("x"),
        axes.set_ylabel("y"),
        axes.text(0, 0, "t"),
    )
    canvas.show_figure()
    assert {text.get_color() for text in words} == {get_theme(viewer.theme).text.as_hex()}


def test_a_plot_that_cannot_be_saved_keeps_its_colours(qtbot, viewer, tmp_path, monkeypatch):
    def full(*given, **more):
        raise MemoryError

    canvas = PlotCanvas(viewer)
    qtbot.addWidget(canvas)
    canvas.figure.add_subplot()
    canvas.show_figure()
    before = canvas.figure.get_facecolor()
    monkeypatch.setattr(canvas.figure, "savefig", full)
    with pytest.raises(MemoryError):
        canvas.save(tmp_path / "plot.png")
    assert canvas.figure.get_facecolor() == before
