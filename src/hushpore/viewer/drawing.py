"""How often the window may be drawn anew for the sake of a running job, and how seldom it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from qtpy.QtCore import QEvent, QObject, QTimer
from qtpy.QtWidgets import QApplication

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget

#: Share of its time that the window draws what a job says.
SHARE = 0.01

#: Seconds after which it is drawn whatever that takes.
LONGEST = 3.0

#: Milliseconds in which layouts have followed a change.
LAYOUTS = 20


class DrawingPace:
    """Lets what a job says be drawn as often as drawing allows.

    Whatever changes in a window with a canvas, Qt puts the whole window together anew: without a
    graphics card that takes 20 to 60 ms, which the job is slower by. So what is said waits until
    the change before it has been drawn, and then as long as keeps to `SHARE`.

    Parameters
    ----------
    clock : callable, optional
        Seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: float | None = None
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether something may be changed now."""
        return self._begun is None and self._clock() >= self._next

    def begin(self) -> None:
        """Tell that something is changed now."""
        self._begun = self._clock()

    def end(self) -> None:
        """Tell that the change has been drawn."""
        if self._begun is None:
            return
        now, begun, self._begun = self._clock(), self._begun, None
        self._next = now + min((now - begun) / SHARE, LONGEST)


def draw_together(widget: QWidget, then: Callable[[], object] = lambda: None) -> None:
    """Have all that changes in this turn drawn at once.

    Layouts follow changes in turns of their own, bars and lists draw themselves when they change;
    for each the window would be put together anew.

    Parameters
    ----------
    widget : QWidget
        In the window.
    then : callable, optional
        Called right before it is drawn.
    """
    _Together(widget.window(), then)


class _Together(QObject):
    """Keeps from a window for a moment that it has to be drawn; goes with it."""

    def __init__(self, window: QWidget, then: Callable[[], object]) -> None:
        super().__init__(window)
        self._window, self._then = window, then
        window.installEventFilter(self)
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.timeout.connect(self._draw)
        timer.start(LAYOUTS)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        """Take out the requests to draw; Qt remembers what is to be drawn."""
        return bool(event.type() == QEvent.Type.UpdateRequest)

    def _draw(self) -> None:
        self._window.removeEventFilter(self)
        self._then()
        QApplication.postEvent(self._window, QEvent(QEvent.Type.UpdateRequest))
        self.deleteLater()
