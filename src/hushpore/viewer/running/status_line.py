"""The line about a running job on the canvas, and its font, made ready before a job needs it."""

from __future__ import annotations

import string
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer

from hushpore.viewer.running.drawing import in_turns
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtpy.QtWidgets import QWidget

#: What is written on the canvas: first what a scale bar is labelled with, then names of layers,
#: stages and units; and the letters by which the height of a line is measured.
LETTERS = string.digits + " .mµ" + string.ascii_letters + ":,%/_-[]()ÉÑÅŐ"

#: Milliseconds between two letters, each of which takes some ten.
PAUSE = 15


class StatusLine:
    """Borrows napari's text overlay while a job runs, and gives it back as it was.

    A text that is shown already, the user's or that of another job, stays; so does what the user
    changes meanwhile.
    """

    def __init__(self, viewer: Any) -> None:
        self._overlay = viewer.canvas.overlays.text
        self._before = ""
        self._written: str | None = None

    def show(self, text: str) -> None:
        """Write the line; the canvas is drawn anew where it is another."""
        if text == self._written or not self._is_free():
            return
        if self._written is None:
            self._before = self._overlay.text
        self._written = self._overlay.text = text
        self._overlay.visible = True

    def remove(self) -> None:
        """Give the overlay back."""
        if self._written is not None and self._is_free():
            self._overlay.visible = False
            self._overlay.text = self._before

    @contextmanager
    def without_box(self) -> Iterator[None]:
        """Show no box behind the line within the block, unless the user wants one meanwhile."""
        had_box, self._overlay.box = self._overlay.box, False
        try:
            yield
        finally:
            self._overlay.box = self._overlay.box or had_box

    def _is_free(self) -> bool:
        """Whether nobody else shows a text, nor has changed ours."""
        if self._written is None:
            return not self._overlay.visible
        return bool(self._overlay.visible) and self._overlay.text == self._written


class FontWarmup(QObject):
    """Has napari make the shapes of letters, and the line that they stand in.

    napari makes the shape of a letter when it is first drawn, and the graphics driver compiles what
    draws a line when there is a first one: the window would stand still for 390 to 470 ms then, and
    does for 76 to 93 (without the letters alone 198 to 365, without the blank line alone 149 to
    187; `benchmarks live_ablation`). Where a napari keeps its fonts elsewhere nothing is done for
    them. The line is a blank one, shown for a moment.

    While libraries are imported nothing is made: Python's lock goes to and fro a dozen times for a
    letter, which then takes 30 to 60 ms, not 8. Once a job begins all is made in any case.

    `viewer`: on whose canvas the line will be; None: letters alone, while there is no job to come.
    `is_ready`: whether all is done.
    """

    def __init__(self, parent: QWidget, viewer: Any = None) -> None:
        super().__init__(parent)
        self._parent = parent
        self.is_ready = False
        self._left = iter(LETTERS)
        self._is_urgent = False
        self._line = None if viewer is None else StatusLine(viewer)
        self._timer = QTimer(self)
        self._timer.setInterval(PAUSE)
        self._timer.timeout.connect(self._make_letter)
        self._timer.start()

    def give_way(self) -> None:
        """Show no line from here on: a job has one of its own. Letters are still made."""
        line, self._line = self._line, None
        self._is_urgent = True
        if line is not None:
            line.remove()

    def _make_letter(self) -> None:
        if JobWorker.running and not self._is_urgent:
            return
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
            in_turns(self._parent, self._make_line())

    def _make_line(self) -> Iterator[None]:
        """Have the blank line drawn without the box behind it, then with that.

        Each takes a twentieth of a second to compile.
        """
        if (line := self._line) is not None:
            try:
                with line.without_box():
                    line.show(" ")
                    yield
                yield
            finally:
                # the widget may be gone before
                line.remove()
        self.is_ready = True


def _fonts() -> list[Any]:
    """Return the fonts of all canvases; there is no public way to them."""
    try:
        from napari._vispy.canvas import VispyCanvas
    except ImportError:
        return []
    found = [canvas.font_info() for canvas in VispyCanvas._instances]
    return [info.font_manager.get_font(info.face) for info in found]
