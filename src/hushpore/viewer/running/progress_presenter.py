"""Shows the events of a running job in its widget."""

from __future__ import annotations

import html
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer

from hushpore.base.events import Note, Preview, Progress
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.running.previews import Previews
from hushpore.viewer.running.progress import Eta, JobProgress, RateMeter, canvas_text
from hushpore.viewer.running.redraw import RedrawThrottle, coalesce_redraws, redraws_suspended
from hushpore.viewer.running.status import Activity, StatusLine
from hushpore.viewer.running.task import slice_on_screen
from hushpore.viewer.running.worker import Update, unfreeze_for_this_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget

    from hushpore.base.events import Event
    from hushpore.viewer.running.messages import RemarkList
    from hushpore.viewer.running.progress import RunButtons
    from hushpore.viewer.running.task import Target
    from hushpore.viewer.running.timing_panel import TimingPanel
    from hushpore.viewer.running.worker import JobWorker

#: Milliseconds between two polls of the running job.
POLL_INTERVAL = 125

#: Remaining seconds below which no preview is started, because its layer takes up to a third of a
#: second.
MIN_REMAINING = 2.0

#: Seconds after which a job is also shown on the canvas and in the activity dock. Shorter jobs are
#: not, because it takes napari some hundredths of a second.
OUTSIDE_DELAY = 1

#: Shown before the first event of a job.
_STARTED = Progress("preparing", 0, 0, "", 0.0)


@dataclass
class RunState:
    """A running job with its displays in the viewer: previews, canvas line, activity dock.

    `cancel`: called by Cancel in the activity dock.
    """

    viewer: Any
    worker: JobWorker
    target: Target
    cancel: Callable[[], None]
    notes: list[Note] = field(default_factory=list)  # of the job so far
    notes_shown: int = 0  # number of notes shown so far
    eta: Eta = field(default_factory=Eta)
    meter: RateMeter = field(default_factory=RateMeter)

    def __post_init__(self) -> None:
        self.previews = Previews(self.viewer, self.target)
        self.worker.prepare = self._prepare
        self.line = StatusLine(self.viewer)
        self._activity: Activity | None = None
        self._is_over = False
        # napari collects garbage when a layer is removed, which may free gigabytes
        self.viewer.layers.events.removing.connect(self._layer_removing)

    @property
    def is_shown_outside(self) -> bool:
        """Whether the job has run long enough for the canvas and the activity dock."""
        return self.meter.elapsed >= OUTSIDE_DELAY

    def send_attention(self) -> None:
        """Send the position of the slice on the screen to the job."""
        index = slice_on_screen(self.viewer, self.target)
        if index is not None:
            self.worker.attend(index)

    def _prepare(self, event: Event) -> None:
        """Create the layer of a preview; runs in the thread of the job."""
        if isinstance(event, Preview):
            # an error occurs again in `show_preview` and is reported there
            with suppress(Exception):
                self.previews.make(event)

    def show_preview(self, preview: Preview) -> None:
        """Show a preview; an error becomes a note and does not affect the job."""
        try:
            self.previews.show(preview)
        except Exception as error:
            self.notes.append(Note(f"The preview could not be shown: {error}", warning=True))

    def show_activity(self, progress: Progress) -> None:
        """Show the progress in the activity dock; napari processes events meanwhile."""
        if self._activity is None and self.is_shown_outside:
            self._activity = Activity(self.worker.name, self.cancel)
            if self._is_over:
                # the job ended while napari processed events
                self._activity.close()
        if self._activity is not None:
            self._activity.show(progress)

    def remove(self) -> None:
        """Remove all displays."""
        self._is_over = True
        self.viewer.layers.events.removing.disconnect(self._layer_removing)
        self.previews.remove()
        self.line.remove()
        if self._activity is not None:
            self._activity.close()

    def _layer_removing(self, event: Any) -> None:
        if is_preview(self.viewer.layers[event.index]):
            # a preview is one slice, too little memory for a collection
            return
        unfreeze_for_this_turn()


class ProgressPresenter(QObject):
    """Polls the running job eight times a second and shows its new events.

    Notes and the first preview of a slice are shown at once. Updates of a preview, progress, timing
    and curves are shown together, at the rate that `RedrawThrottle` allows, because Qt redraws the
    whole window for any change, once per turn of the event loop.

    `parent`: the widget. `buttons`, `progress`, `remarks`, `timing`: the parts of the widget that
    show the job.
    """

    def __init__(
        self,
        parent: QWidget,
        buttons: RunButtons,
        progress: JobProgress,
        remarks: RemarkList,
        timing: TimingPanel,
    ) -> None:
        super().__init__(parent)
        self._buttons, self._progress = buttons, progress
        self._remarks, self._timing = remarks, timing
        self._state: RunState | None = None
        self._latest = Update(_STARTED)
        self._is_new = False
        self._seconds = 0
        self._throttle = RedrawThrottle()
        self._timer = QTimer(self, interval=POLL_INTERVAL, timeout=self.poll)
        # in the next turn, after a new preview is drawn
        self._refresh_timer = QTimer(self, singleShot=True, timeout=self._refresh)
        # Qt has drawn a change by the following turn
        self._drawn_timer = QTimer(self, singleShot=True, timeout=self._throttle.end)

    def begin(self, state: RunState, resumes: bool = False) -> None:
        """Show a started job, and follow it.

        `resumes`: whether it goes on with the last one.
        """
        coalesce_redraws(self._progress)
        self._state, self._latest = state, Update(_STARTED)
        self._timing.begin(state.worker.trace, resumes)
        self._buttons.show_running()
        self._progress.begin()
        self.poll()
        self._timer.start()

    def end(self) -> None:
        """Show the last events except previews, and remove the displays of the job."""
        assert self._state is not None
        state, self._state = self._state, None
        self._timer.stop()
        update = state.worker.take()
        self._show_notes(state, update)
        self._collect(update)
        self._show_times()
        # previews may be as large as the scan
        self._latest = Update(_STARTED)
        state.remove()
        self._progress.hide()

    def poll(self) -> None:
        """Take the new events of the job."""
        state = self._state
        if state is None:
            return
        before = state.worker.waits_for
        if before is not None and not state.worker.is_cancelling:
            self._progress.stage.say(html.escape(f"Waiting for {before.name} to finish …"))
            return
        state.send_attention()
        update = state.worker.take()
        self._collect(update)
        for name, preview in update.previews.items():
            if not state.previews.only_refines(preview):
                del self._latest.previews[name]
                if state.previews.has(preview) or self._is_worth_a_preview(state):
                    coalesce_redraws(self._progress)
                    state.show_preview(preview)
        self._show_notes(state, update)
        if self._throttle.is_due() and self._has_news(state):
            self._refresh_timer.start()

    def _show_notes(self, state: RunState, update: Update) -> None:
        state.notes += update.notes
        # a preview that could not be shown leaves a note, too
        if len(state.notes) > state.notes_shown:
            state.notes_shown = len(state.notes)
            self._remarks.show_remarks(state.notes)

    def _collect(self, update: Update) -> None:
        """Keep events until the next refresh."""
        latest = self._latest
        latest.progress = update.progress or latest.progress
        latest.timing = update.timing or latest.timing
        latest.metrics += update.metrics
        latest.previews |= update.previews
        news = update.progress, update.timing, update.metrics, update.previews
        self._is_new |= any(news)

    def _is_worth_a_preview(self, state: RunState) -> bool:
        """Whether the remaining time, at the current speed, is worth a preview."""
        assert self._latest.progress is not None
        fraction = self._latest.progress.fraction
        return state.meter.elapsed * (1 - fraction) >= MIN_REMAINING * fraction

    def _has_news(self, state: RunState) -> bool:
        """Whether there are new events, or the displayed seconds of a job without progress change.

        Also True once when the job is first shown outside its widget.
        """
        assert self._latest.progress is not None
        seconds = int(state.meter.elapsed)
        counts = self._latest.progress.fraction <= 0 and seconds != self._seconds
        return self._is_new or counts or self._seconds < OUTSIDE_DELAY <= seconds

    def _refresh(self) -> None:
        state, progress = self._state, self._latest.progress
        if state is None or progress is None:
            return
        self._throttle.begin()
        # first, because napari processes events in it, and the job may end
        with redraws_suspended(self._progress):
            state.show_activity(progress)
        if self._state is not state:
            self._throttle.end()
            return
        coalesce_redraws(self._progress, self._time_drawing)
        self._is_new, self._seconds = False, int(state.meter.elapsed)
        self._show_times()
        previews, self._latest.previews = self._latest.previews, {}
        for preview in previews.values():
            state.show_preview(preview)
        left, rate = state.eta.left(progress.fraction), state.meter.rate(progress)
        previewed = state.previews.slice_index()
        self._progress.show_progress(progress, left, state.meter.elapsed, previewed)
        if not state.worker.is_cancelling and not state.worker.is_finishing:
            self._buttons.show_stage(progress.stage)
        if rate is not None:
            self._timing.rate.add_point(f"{progress.unit}/s", state.meter.elapsed, rate)
        if state.is_shown_outside:
            state.line.show(canvas_text(state.worker.name, progress, rate, left))

    def _time_drawing(self) -> None:
        self._throttle.begin()
        self._drawn_timer.start()

    def _show_times(self) -> None:
        latest = self._latest
        if latest.timing is not None:
            self._timing.show_timing(latest.timing)
        if latest.metrics:
            self._timing.curve.add(latest.metrics)
        latest.timing, latest.metrics = None, []
