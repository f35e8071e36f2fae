"""How often the window may be drawn anew for the sake of a running job, and how seldom it is."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import QApplication, QWidget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Share of its time that the window draws what a job says.
MAX_SHARE = 0.01

#: Seconds after which it is drawn whatever that takes.
MAX_DELAY = 3.0

#: Milliseconds in which layouts have followed a change.
LAYOUT_DELAY = 20


class RedrawThrottle:
    """Lets what a job says be drawn as often as drawing allows.

    Whatever changes in a window with a canvas, Qt puts the whole window together anew: without a
    graphics card that takes 20 to 60 ms, which the job is slower by. So what is said waits until
    the change before it has been drawn, and then as long as keeps to `MAX_SHARE`. Without it the
    99th percentile of gaps in the window's life is 53 to 74 ms, not 10, and jobs take 23 to 59 %
    longer (`benchmarks live_ablation`: Xvfb, two cores, 256 x 256 x 256 voxels).

    `clock`: seconds; for tests.
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
        self._next = now + min((now - begun) / MAX_SHARE, MAX_DELAY)


def coalesce_redraws(widget: QWidget, then: Callable[[], object] | None = None) -> None:
    """Have all that changes in this turn drawn at once.

    Layouts follow changes in turns of their own, bars and lists draw themselves when they change;
    for each the window would be put together anew. Without it the 99th percentile of gaps while
    segmenting is 26 to 56 ms, not 10, and the worst 102 to 155, not 54 to 70
    (`benchmarks live_ablation`).

    What is asked for while the window waits to be drawn puts that off no further: under a slider
    that moves on and on, it would be for ever.

    `then`: called right before it is drawn, unless what it belongs to is gone.
    """
    window, only_own = widget.window(), Qt.FindChildOption.FindDirectChildrenOnly
    redraw = window.findChild(_CoalescedRedraw, options=only_own) or _CoalescedRedraw(window)
    if then is not None:
        redraw.due.connect(then)


@contextmanager
def redraws_suspended(widget: QWidget) -> Iterator[None]:
    """Have nothing drawn within the block, in which events may be handled.

    Without it the worst gap while segmenting is 109 to 172 ms, not 54 to 73
    (`benchmarks live_ablation`).
    """
    undrawn = _RedrawBlocker(widget.window())
    try:
        yield
    finally:
        # one of the events may have been the end of the window
        with suppress(RuntimeError):
            undrawn.end()


def run_in_steps(widget: QWidget, work: Iterator[None]) -> None:
    """Do work in pieces, between which the window lives: napari takes 0.1 s for a layer.

    `widget`: in the window, and the work ends with it. `work`: a generator that yields after each
    piece; the first one is done at once.
    """
    _Turns(widget, work)


def keep_drawing_code(layer: Any) -> None:
    """Have the code that draws a layer of labels compiled no more whenever its labels change.

    napari makes it anew for other labels in any case, and once more where their type is another:
    the second is enough, and the first takes 60 to 100 ms without a graphics card
    (`benchmarks window_steps`). Where a napari does otherwise nothing is changed.
    """
    changed = layer.events.data
    for callback in changed.callbacks:
        if isinstance(callback, tuple) and callback[1] == "_on_colormap_change":
            drawn = callback[0]()
            if hasattr(drawn, "_colormap_dtypes"):
                changed.disconnect((drawn, callback[1]))


class _Turns(QObject):
    """Does a piece of work in each turn; goes with its parent."""

    def __init__(self, parent: QWidget, work: Iterator[None]) -> None:
        super().__init__(parent)
        self._widget, self._work, self._has_ended = parent, work, False
        self._timer = QTimer(self, singleShot=True, interval=LAYOUT_DELAY)
        # a method is not kept by what it is connected to, and nor is the window by its own timer
        self._timer.timeout.connect(self._take_turn)
        self._after_drawing = QTimer(self, singleShot=True, interval=0, timeout=self._timer.start)
        self._take_turn()

    def _take_turn(self) -> None:
        coalesce_redraws(self._widget, self._go_on)
        self._has_ended = next(self._work, self._work) is self._work

    def _go_on(self) -> None:
        if self._has_ended:
            self.deleteLater()
        else:
            # by the turn after this Qt has drawn it
            self._after_drawing.start()


class _RedrawBlocker(QObject):
    """Keeps from a window that it has to be drawn; goes with it."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        """Take out the requests to draw; Qt remembers what is to be drawn."""
        return bool(event.type() == QEvent.Type.UpdateRequest)

    def end(self) -> None:
        """Have drawn what there is to be drawn."""
        self._window.removeEventFilter(self)
        QApplication.postEvent(self._window, QEvent(QEvent.Type.UpdateRequest))
        self.deleteLater()


class _CoalescedRedraw(_RedrawBlocker):
    """Keeps it from a window until layouts have followed."""

    #: It is drawn now. What is gone by then is not told.
    due = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._timer = QTimer(self, singleShot=True, interval=LAYOUT_DELAY)
        self._next_turn = QTimer(self, singleShot=True, interval=0, timeout=self._draw)
        # from the end of this turn, and in another than what is due with it: whatever they take,
        # drawing has a turn of its own
        self._end_of_turn = QTimer(self, singleShot=True, interval=0, timeout=self._timer.start)
        self._end_of_turn.start()
        self._timer.timeout.connect(self._next_turn.start)

    def _draw(self) -> None:
        # what changes from now on is drawn by another
        self.setParent(None)
        self.due.emit()
        self.end()
