"""Progress of a running job: estimates, texts, buttons and the bar.

Shows the events of a running job in its widget.
"""

from __future__ import annotations

import html
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer
from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from hushpore.base.events import Note, Preview, Progress
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.forms.layout import CANCEL, RUN, RichLabel, fill, link, with_key
from hushpore.viewer.running.previews import Previews
from hushpore.viewer.running.redraw import RedrawThrottle, coalesce_redraws, redraws_suspended
from hushpore.viewer.running.status import BAR_STEPS, Activity
from hushpore.viewer.running.task import slice_on_screen
from hushpore.viewer.running.worker import Update, unfreeze_for_this_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event
    from hushpore.viewer.running.messages import RemarkList
    from hushpore.viewer.running.task import Target
    from hushpore.viewer.running.timing_panel import TimingPanel
    from hushpore.viewer.running.worker import JobWorker

#: Samples kept for an estimate.
MAX_SAMPLES = 64

#: Seconds over which the rate is averaged.
RATE_WINDOW = 10.0


class Eta:
    """Estimates the remaining time from the completed fraction of a job.

    The rate is the median over pairs of samples an eighth of the job so far apart, so that a pause
    or a slow first step affects only a few pairs.

    `clock`: seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: list[tuple[float, float]] = []
        self._apart = 0.0

    def left(self, fraction: float) -> float | None:
        """Return the remaining seconds, or None if it is too early to estimate them."""
        now, seen = self._clock(), self._seen
        if fraction <= 0:
            return None
        if not seen or now - seen[-1][0] >= self._apart:
            seen.append((now, fraction))
        if len(seen) > MAX_SAMPLES:
            # sample half as often from now on, to bound the memory of a long job
            del seen[1::2]
            self._apart = 2 * (seen[-1][0] - seen[0][0]) / MAX_SAMPLES
        start, before = seen[0]
        if now - start < 1 or fraction - before < 0.005:
            return None
        looks = [*seen, (now, fraction)]
        pairs = zip(looks, looks[max(len(looks) // 8, 1) :], strict=False)
        rate = median((b - a) / (t - s) for (s, a), (t, b) in pairs if t > s)
        if rate <= 0:
            # mostly idle: use the average over the whole job
            rate = (fraction - before) / (now - start)
        return (1 - fraction) / rate


class RateMeter:
    """Measures the rate of a stage over the last `RATE_WINDOW` seconds.

    `clock`: seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._stage = ""
        self._seen: deque[tuple[float, int]] = deque()

    @property
    def elapsed(self) -> float:
        """Seconds since the meter was created."""
        return self._clock() - self._start

    def rate(self, progress: Progress) -> float | None:
        """Return the rate per second, or None if it is too early to measure it."""
        now, seen = self._clock(), self._seen
        if progress.stage != self._stage:
            self._stage = progress.stage
            seen.clear()
        seen.append((now, progress.done))
        while now - seen[0][0] > RATE_WINDOW and len(seen) > 2:
            seen.popleft()
        start, before = seen[0]
        if now - start < 1 or progress.done <= before:
            return None
        return (progress.done - before) / (now - start)


def duration(seconds: float) -> str:
    """Return seconds as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def stage_text(progress: Progress) -> str:
    """Return the stage and its progress: 'Training: 300 of 1,500 steps'."""
    stage = f"{progress.stage[:1].upper()}{progress.stage[1:]}"
    if not progress.total or not progress.unit:
        return f"{stage} …"
    return f"{stage}: {progress.done:,} of {progress.total:,} {progress.unit}"


def bar_text(progress: Progress, left: float | None) -> str:
    """Return the text of the bar: '62 % · 0:41 left'."""
    text = f"{100 * progress.fraction:.0f} %"
    return text if left is None else f"{text} · {duration(left)} left"


class RunButtons(QWidget):
    """The buttons Run, Cancel and Finish now; tooltips explain disabled ones.

    No button takes the place of another, so that a late click on Cancel starts nothing.

    `title`: title of the job, "Denoise". `ends_early_in`: stage that can be stopped early with a
    result; empty if there is none. `kept`: what a cancelled job keeps, as a sentence.
    """

    def __init__(self, title: str, ends_early_in: str, kept: str = "") -> None:
        super().__init__()
        self._title, self._ends_early_in = title, ends_early_in
        preview = "slice and the training so far are" if ends_early_in else "slice is"
        self._kept = kept or f"The preview {preview} kept."
        self.run = QPushButton("Run", styleSheet="font-weight: bold; padding: 6px;")
        self.cancel = QPushButton("Cancel", styleSheet="padding: 6px;")
        self.finish = QPushButton("Finish now", styleSheet="padding: 6px;")
        if not ends_early_in:
            self.finish.hide()
        line = fill(QHBoxLayout(self), self.run, self.cancel, self.finish, margin=6)
        for place, button in enumerate((self.run, self.cancel, self.finish)):
            # of equal width, whatever the text
            button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            line.setStretch(place, 1)

    def show_idle(self, why_not: str, tip: str = "") -> None:
        """Enable Run with a tooltip, or disable it if `why_not` gives a reason."""
        tip = why_not or with_key(tip or f"{self._title}: run on the input layer", RUN)
        offer(self.run, "Run", tip, not why_not)
        offer(self.cancel, "Cancel", "Nothing is running.", False)
        offer(self.finish, "Finish now", "Nothing is running.", False)

    def show_running(self) -> None:
        """Enable Cancel."""
        offer(self.run, "Run", "Running. Cancel it before you start again.", False)
        offer(self.cancel, "Cancel", with_key(f"Cancel. {self._kept}", CANCEL))
        offer(self.finish, "Finish now", "Training has not started yet.", False)

    def show_stage(self, stage: str) -> None:
        """Enable Finish now in the stage that can be stopped early."""
        is_possible = stage == self._ends_early_in
        why_not = f"Only available during {self._ends_early_in}; now: {stage}."
        tip = "Stop training now and denoise the whole scan." if is_possible else why_not
        offer(self.finish, "Finish now", tip, is_possible)

    def show_cancelling(self) -> None:
        """Show that the job was asked to stop."""
        offer(self.cancel, "Cancelling …", "The job stops after the current step.", False)
        offer(self.finish, "Finish now", "The job is being cancelled.", False)

    def show_finishing(self) -> None:
        """Show that the job was asked to finish early."""
        tip = "Training stops after the current step; then the whole scan is denoised."
        offer(self.finish, "Finishing …", tip, False)


def offer(button: QPushButton, text: str, tip: str, is_allowed: bool = True) -> None:
    """Set the text and the tooltip of a button, and enable or disable it."""
    button.setText(text)
    button.setToolTip(tip)
    button.setEnabled(is_allowed)


class JobProgress(QWidget):
    """A progress bar with the time left, and the stage in words; hidden while no job runs.

    `bar`: has `BAR_STEPS` steps. `stage`: has a link to the preview.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        # no indeterminate bar: it would redraw the window all the time
        self.bar = QProgressBar(maximum=BAR_STEPS)
        self.stage = RichLabel(viewer)
        #: Name of the layer of the job, if another one is chosen.
        self.of = ""
        fill(QVBoxLayout(self), self.bar, self.stage, spacing=2)
        self.hide()

    def begin(self) -> None:
        """Show that a job has started, without progress yet."""
        self.bar.setValue(0)
        self.bar.setFormat("")
        self.stage.say("Preparing …")
        self.show()

    def show_progress(
        self, progress: Progress, left: float | None, elapsed: float, previewed: int | None
    ) -> None:
        """Show the progress of the job, or its elapsed time before the first progress.

        `left`: remaining seconds, or None.
        """
        is_known = progress.fraction > 0
        self.bar.setValue(round(BAR_STEPS * progress.fraction))
        self.bar.setFormat(bar_text(progress, left) if is_known else duration(elapsed))
        name = f"{self.of}: " if self.of else ""
        text = html.escape(f"{name}{stage_text(progress)}")
        if previewed is not None:
            text += " · " + link("preview", f"preview: slice {previewed}")
        self.stage.say(text)


#: Milliseconds between two polls of the running job.
POLL_INTERVAL = 125

#: Remaining seconds below which no preview is started, because its layer takes up to a third of a
#: second.
MIN_REMAINING = 2.0

#: Seconds after which a job is also shown in the activity dock. Shorter jobs are not, because it
#: takes napari some hundredths of a second.
OUTSIDE_DELAY = 1

#: Shown before the first event of a job.
_STARTED = Progress("preparing", 0, 0, "", 0.0)


@dataclass
class RunState:
    """A running job with its displays in the viewer: previews and activity dock.

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
        self._activity: Activity | None = None
        self._is_over = False
        # napari collects garbage when a layer is removed, which may free gigabytes
        self.viewer.layers.events.removing.connect(self._layer_removing)

    @property
    def is_shown_outside(self) -> bool:
        """Whether the job has run long enough for the activity dock."""
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
