import pytest
from napari.utils.theme import get_theme

from hushpore.viewer.results.plots import PlotCanvas


def test_words_have_room(qtbot, viewer):
    canvas = PlotCanvas(viewer)
    qtbot.addWidget(canvas)
    axes = canvas.figure.add_subplot()
    axes.set_ylabel("a long\nname in\nmany\nlines")
    canvas.show_figure()

    def is_within():
        return axes.get_tightbbox(canvas.get_renderer()).x0 >= 0

    assert not is_within()
    canvas.show()
    qtbot.waitUntil(is_within, timeout=5000)


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
