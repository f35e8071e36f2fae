"""Throttling of redraws while a job runs."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from qtpy.QtCore import QEvent, QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import QApplication, QWidget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Maximum share of the time spent on drawing events of a job.
MAX_SHARE = 0.01

#: Maximum delay of a redraw in seconds.
MAX_DELAY = 3.0

#: Milliseconds until layouts have settled after a change.
LAYOUT_DELAY = 20


class RedrawThrottle:
    """Limits the time for redraws during a job to the share `MAX_SHARE`.

    For any change in a window with a canvas, Qt composes the whole window again, which takes 20 to
    60 ms without a graphics card and slows the job down. So a change waits until the previous one
    is drawn, and then long enough to stay below `MAX_SHARE`. Without it the 99th percentile of
    pauses of the window is 53 to 74 ms instead of 10, and jobs take 23 to 59 % longer
    (`decided/live_ablation.json`: Xvfb, two cores, 256 x 256 x 256 voxels).

    `clock`: seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: float | None = None
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether a change may be drawn now."""
        return self._begun is None and self._clock() >= self._next

    def begin(self) -> None:
        """Note that a change starts."""
        self._begun = self._clock()

    def end(self) -> None:
        """Note that the change has been drawn."""
        if self._begun is None:
            return
        now, begun, self._begun = self._clock(), self._begun, None
        self._next = now + min((now - begun) / MAX_SHARE, MAX_DELAY)


def coalesce_redraws(widget: QWidget, then: Callable[[], object] | None = None) -> None:
    """Draw all changes of this turn of the event loop at once.

    Layouts settle in later turns, and bars and lists redraw themselves; each of these redraws would
    compose the window again. Without it the 99th percentile of pauses while segmenting is 26
    to 56 ms instead of 10, and the longest 102 to 155 ms instead of 54 to 70
    (`decided/live_ablation.json`).

    Further calls do not delay a pending redraw; otherwise a moving slider would postpone it for
    ever.

    `then`: called just before the redraw, unless its receiver was destroyed.
    """
    window, only_own = widget.window(), Qt.FindChildOption.FindDirectChildrenOnly
    redraw = window.findChild(_CoalescedRedraw, options=only_own) or _CoalescedRedraw(window)
    if then is not None:
        redraw.due.connect(then)


class EventWatcher(QObject):
    """Tells of events of a kind of a widget, in the next turn of the event loop."""

    happened = Signal()

    def __init__(self, parent: QObject, watched: QWidget, kind: QEvent.Type) -> None:
        super().__init__(parent)
        self._kind = kind
        watched.installEventFilter(self)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802 - Qt's name
        """Emit the signal later."""
        if event.type() == self._kind:
            QTimer.singleShot(0, self.happened.emit)
        return False


@contextmanager
def redraws_suspended(widget: QWidget) -> Iterator[None]:
    """Suspend redraws inside the block, even if events are processed in it.

    Without it the longest pause while segmenting is 109 to 172 ms instead of 54 to 73
    (`decided/live_ablation.json`).
    """
    undrawn = _RedrawBlocker(widget.window())
    try:
        yield
    finally:
        # the window may have been closed by an event
        with suppress(RuntimeError):
            undrawn.end()


def run_in_steps(widget: QWidget, work: Iterator[None]) -> None:
    """Run work in steps, so that the window stays responsive between them.

    napari takes 0.1 s to add a layer. `widget`: the work stops when it is deleted. `work`: a
    generator that yields after each step; the first step runs at once.
    """
    _StepRunner(widget, work)


def keep_label_shader(layer: Any) -> None:
    """Stop napari from recompiling the labels shader at every change of the labels.

    napari recompiles it for any new labels, which takes 60 to 100 ms without a graphics card
    (`benchmarks window_steps`). Recompiling at a change of the dtype, which napari also does, is
    sufficient. Versions of napari without that are left unchanged.
    """
    changed = layer.events.data
    for callback in changed.callbacks:
        if isinstance(callback, tuple) and callback[1] == "_on_colormap_change":
            drawn = callback[0]()
            if hasattr(drawn, "_colormap_dtypes"):
                changed.disconnect((drawn, callback[1]))


class _StepRunner(QObject):
    """Runs one step of work per turn of the event loop; deleted with its parent."""

    def __init__(self, parent: QWidget, work: Iterator[None]) -> None:
        super().__init__(parent)
        self._work, self._has_ended = work, False
        self._timer = QTimer(self, singleShot=True, interval=LAYOUT_DELAY)
        # a bound method keeps neither this object nor the window alive
        self._timer.timeout.connect(self._run_step)
        self._after_drawing = QTimer(self, singleShot=True, interval=0, timeout=self._timer.start)
        self._run_step()

    def _run_step(self) -> None:
        coalesce_redraws(self.parent(), self._go_on)
        self._has_ended = next(self._work, self._work) is self._work

    def _go_on(self) -> None:
        if self._has_ended:
            self.deleteLater()
        else:
            # Qt has drawn the change by the next turn
            self._after_drawing.start()


class _RedrawBlocker(QObject):
    """Blocks the redraws of a window; deleted with it."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        # with PySide a child that holds its parent keeps it alive after it was closed
        self._window = ref(window)
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        """Drop update requests; Qt remembers what to draw."""
        return bool(event.type() == QEvent.Type.UpdateRequest)

    def end(self) -> None:
        """Stop blocking, and draw what is pending."""
        window = self._window()
        if window is not None:
            window.removeEventFilter(self)
            QApplication.postEvent(window, QEvent(QEvent.Type.UpdateRequest))
        self.deleteLater()


class _CoalescedRedraw(_RedrawBlocker):
    """Blocks the redraws of a window until layouts have settled."""

    #: Emitted just before the redraw; destroyed receivers are skipped.
    due = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._timer = QTimer(self, singleShot=True, interval=LAYOUT_DELAY)
        self._next_turn = QTimer(self, singleShot=True, interval=0, timeout=self._draw)
        # starts at the end of this turn; drawing gets a turn of its own
        self._end_of_turn = QTimer(self, singleShot=True, interval=0, timeout=self._timer.start)
        self._end_of_turn.start()
        self._timer.timeout.connect(self._next_turn.start)

    def _draw(self) -> None:
        # later changes need a new object
        self.setParent(None)
        self.due.emit()
        self.end()
