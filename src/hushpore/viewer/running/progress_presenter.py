"""What a running job says, shown in the widget that runs it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer
from qtpy.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from hushpore.base.events import Progress
from hushpore.viewer.forms.rich_label import Sentence, link
from hushpore.viewer.running.drawing import RedrawThrottle, draw_together, redraws_suspended
from hushpore.viewer.running.progress import BAR_STEPS, bar_text, duration, stage_text
from hushpore.viewer.running.worker import Update

if TYPE_CHECKING:
    from hushpore.viewer.running.messages import NoteLines
    from hushpore.viewer.running.run_buttons import RunButtons
    from hushpore.viewer.running.run_state import Running
    from hushpore.viewer.running.timing_panel import TimingPanel

#: Milliseconds between two looks at the running job.
POLL_INTERVAL = 125

#: Seconds that a job must still take for a preview to begin: its layer takes napari, and the job
#: beside it, up to a third of a second, and the result itself is there soon.
WORTH = 2.0

#: What is shown before the job has said anything.
_BEGUN = Progress("preparing", 0, 0, "", 0.0)


class JobProgress(QWidget):
    """A bar with percent and time left, and the stage in words; hidden while no job runs.

    Parameters
    ----------
    viewer : napari.components.ViewerModel
        Whose theme to follow.

    Attributes
    ----------
    bar : QProgressBar
        Its parts are `BAR_STEPS`.
    stage : Sentence
        Its link leads to the preview.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self.bar = QProgressBar()
        # never a bar that only moves to and fro: it draws the window anew all the time
        self.bar.setRange(0, BAR_STEPS)
        self.stage = Sentence(viewer)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.bar)
        column.addWidget(self.stage)
        self.hide()

    def begin(self) -> None:
        """Show that a job has begun, of which nothing is known yet."""
        self.bar.setValue(0)
        self.bar.setFormat("")
        self.stage.say("preparing")
        self.show()

    def wait_for(self, name: str) -> None:
        """Say which job must end before this one begins."""
        self.stage.say(html.escape(f"waits for {name} to end"))

    def show_progress(
        self, progress: Progress, left: float | None, elapsed: float, previewed: int | None
    ) -> None:
        """Show how far the job is; while that is not known, how long it has taken so far.

        Parameters
        ----------
        progress : Progress
            The newest.
        left : float or None
            Seconds left, where they are known.
        elapsed : float
            Seconds since the job began.
        previewed : int or None
            The slice that is previewed.
        """
        is_known = progress.fraction > 0
        self.bar.setValue(round(BAR_STEPS * progress.fraction))
        self.bar.setFormat(bar_text(progress, left) if is_known else f"{duration(elapsed)} so far")
        text = html.escape(stage_text(progress))
        if previewed is not None:
            text += " · " + link("preview", f"preview in slice {previewed}")
        self.stage.say(text)


class Showing(QObject):
    """Looks at the running job eight times a second and shows what is new.

    Notes are shown at once, and so are previews of a slice that none is shown of. What refines a
    preview, progress, times and curves are shown together, on the canvas too, as often as drawing
    them allows (`RedrawThrottle`): Qt puts the whole window together anew for whatever changes in
    it, once for all that changes in one turn.

    Parameters
    ----------
    parent : QWidget
        The widget, with which it goes.
    buttons, progress, notes, timing
        Its parts that follow the job.
    """

    def __init__(
        self,
        parent: QWidget,
        buttons: RunButtons,
        progress: JobProgress,
        notes: NoteLines,
        timing: TimingPanel,
    ) -> None:
        super().__init__(parent)
        self._buttons, self._progress = buttons, progress
        self._notes, self._timing = notes, timing
        self._now: Running | None = None
        self._latest = Update(_BEGUN)
        self._is_new = False
        self._seconds = 0
        self._pace = RedrawThrottle()
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_INTERVAL)
        self._timer.timeout.connect(self.look)
        # a turn of its own: a new preview is laid out and drawn before
        self._next_turn = self._once(self._show)
        # by the turn after a change Qt has drawn it
        self._drawn = self._once(self._pace.end)

    @property
    def stage(self) -> str:
        """The stage that the job is in, or was in at its end."""
        return "" if self._latest.progress is None else self._latest.progress.stage

    def begin(self, now: Running) -> None:
        """Show that a job has begun, and follow it."""
        draw_together(self._progress)
        self._now, self._latest = now, Update(_BEGUN)
        self._timing.begin(now.worker.trace)
        self._buttons.show_running()
        self._progress.begin()
        self.look()
        self._timer.start()

    def end(self) -> None:
        """Show what the job has said last but for previews, and take away what was for it alone."""
        assert self._now is not None
        now, self._now = self._now, None
        self._timer.stop()
        update = now.worker.take()
        self._say(now, update)
        self._keep(update)
        self._show_times()
        now.remove()
        self._progress.hide()

    def look(self) -> None:
        """Take what the job has said since the last look."""
        now = self._now
        if now is None:
            return
        before = now.worker.waits_for
        if before is not None and not now.worker.is_cancelling:
            self._progress.wait_for(before.name)
            return
        now.attend()
        update = now.worker.take()
        self._keep(update)
        for name, preview in update.previews.items():
            if not now.previews.can_wait(preview):
                del self._latest.previews[name]
                if now.previews.has(preview) or self._takes_a_while(now):
                    draw_together(self._progress)
                    now.show_preview(preview)
        self._say(now, update)
        if self._pace.is_due() and self._is_due(now):
            self._next_turn.start()

    def _say(self, now: Running, update: Update) -> None:
        now.notes += update.notes
        # a preview that could not be shown leaves a note, too
        if len(now.notes) > now.said:
            now.said = len(now.notes)
            self._notes.show_notes(now.notes)

    def _keep(self, update: Update) -> None:
        """Keep what is shown later."""
        latest = self._latest
        latest.progress = update.progress or latest.progress
        latest.timing = update.timing or latest.timing
        latest.metrics += update.metrics
        latest.previews |= update.previews
        said = update.progress, update.timing, update.metrics, update.previews
        self._is_new |= any(said)

    def _takes_a_while(self, now: Running) -> bool:
        """Whether the rest of the job is worth a preview, if it goes on as it did."""
        assert self._latest.progress is not None
        fraction = self._latest.progress.fraction
        return now.pace.elapsed * (1 - fraction) >= WORTH * fraction

    def _is_due(self, now: Running) -> bool:
        """Whether there is something new: of a job whose end cannot be seen, another second."""
        assert self._latest.progress is not None
        seconds = int(now.pace.elapsed)
        counts = self._latest.progress.fraction <= 0 and seconds != self._seconds
        return self._is_new or counts

    def _show(self) -> None:
        now, progress = self._now, self._latest.progress
        if now is None or progress is None:
            return
        self._pace.begin()
        # first, for napari handles other events in it, the end of this very job among them
        with redraws_suspended(self._progress):
            now.show_activity(progress)
        if self._now is not now:
            self._pace.end()
            return
        draw_together(self._progress, self._draw)
        self._is_new, self._seconds = False, int(now.pace.elapsed)
        self._show_times()
        previews, self._latest.previews = self._latest.previews, {}
        for preview in previews.values():
            now.show_preview(preview)
        left, rate = now.eta.left(progress.fraction), now.pace.rate(progress)
        self._progress.show_progress(progress, left, now.pace.elapsed, now.previews.place())
        if not now.worker.is_cancelling and not now.worker.is_finishing:
            self._buttons.show_stage(progress.stage)
        if rate is not None:
            self._timing.pace.add_point(f"{progress.unit}/s", now.pace.elapsed, rate)
        now.show_line(progress, rate, left)

    def _draw(self) -> None:
        self._pace.begin()
        self._drawn.start()

    def _show_times(self) -> None:
        latest = self._latest
        if latest.timing is not None:
            self._timing.show_timing(latest.timing)
        if latest.metrics:
            self._timing.curve.add(latest.metrics)
        latest.timing, latest.metrics = None, []

    def _once(self, then: object) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.timeout.connect(then)
        return timer
