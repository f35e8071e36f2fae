from qtpy.QtCore import QSize
from qtpy.QtGui import QResizeEvent

from hushpore.viewer.results.plot_canvas import PlotCanvas


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
