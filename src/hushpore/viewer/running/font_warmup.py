"""The line on the canvas, made ready before a job needs it: its letters, one at a time, and it."""

from __future__ import annotations

import string
from typing import Any

from qtpy.QtCore import QObject, QTimer

from hushpore.viewer.running.status_line import StatusLine

#: What is written on the canvas: names of layers, stages, numbers, units; and the letters by which
#: the height of a line is measured.
LETTERS = string.ascii_letters + string.digits + " :,.%/_-[]()µÉÑÅŐ"

#: Milliseconds between two letters, each of which takes some ten.
PAUSE = 15


class Glyphs(QObject):
    """Has napari make the shapes of letters, and the line that they stand in.

    napari makes the shape of a letter when it is first drawn; in a new line these are two dozen,
    and the window stands still for a third of a second. Where a napari keeps its fonts elsewhere
    nothing is done for them. Then a blank line is shown for a moment: the graphics driver compiles
    what draws it, which takes a tenth of a second.

    Parameters
    ----------
    parent : QObject
        With whom it goes.
    viewer : napari.components.ViewerModel
        On whose canvas the line will be.
    """

    def __init__(self, parent: QObject, viewer: Any) -> None:
        super().__init__(parent)
        self._left = iter(LETTERS)
        self._line = StatusLine(viewer)
        self._is_shown = False
        self._timer = QTimer(self)
        self._timer.setInterval(PAUSE)
        self._timer.timeout.connect(self._make_one)
        self._timer.start()

    def _make_one(self) -> None:
        letter = next(self._left, None)
        try:
            fonts = _fonts() if letter is not None else []
            for font in fonts:
                # a font makes what it is asked for
                font[letter]
        except (AttributeError, KeyError, RuntimeError, TypeError):
            fonts = []
        if not fonts:
            self._timer.timeout.disconnect()
            self._timer.timeout.connect(self._show_blank_line)

    def _show_blank_line(self) -> None:
        if self._is_shown:
            self._line.remove()
            self._timer.stop()
        else:
            self._line.show(" ")
            self._is_shown = True


def _fonts() -> list[Any]:
    """Return the fonts of all canvases; there is no public way to them."""
    try:
        from napari._vispy.canvas import VispyCanvas
    except ImportError:
        return []
    found = [canvas.font_info() for canvas in VispyCanvas._instances]
    return [info.font_manager.get_font(info.face) for info in found]
