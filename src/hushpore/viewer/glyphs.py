"""The letters of the line on the canvas, made ready one at a time."""

from __future__ import annotations

import string
from typing import Any

from qtpy.QtCore import QObject, QTimer

#: What is written on the canvas: names of layers, stages, numbers, units.
LETTERS = string.ascii_letters + string.digits + " :,.%/_-[]()µ"

#: Milliseconds between two letters, each of which takes some ten.
PAUSE = 15


class Glyphs(QObject):
    """Has napari make the shapes of letters before a job needs them.

    napari makes the shape of a letter when it is first drawn; in a new line these are two dozen,
    and the window stands still for a third of a second. Where a napari keeps its fonts elsewhere
    nothing is done.

    Parameters
    ----------
    parent : QObject
        With whom it goes.
    """

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._left = iter(LETTERS)
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
            self._timer.stop()


def _fonts() -> list[Any]:
    """Return the fonts of all canvases; there is no public way to them."""
    try:
        from napari._vispy.canvas import VispyCanvas
    except ImportError:
        return []
    found = [canvas.font_info() for canvas in VispyCanvas._instances]
    return [info.font_manager.get_font(info.face) for info in found]
