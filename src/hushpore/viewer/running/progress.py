"""Progress of a running job: estimates, texts, buttons and the bar.

Shows the events of a running job in its widget.
"""

from __future__ import annotations

import html
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer
from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from hushpore.base.events import Note, Progress
from hushpore.viewer.forms.layout import CANCEL, RUN, RichLabel, fill, link, with_key
from hushpore.viewer.running.previews import Previews
from hushpore.viewer.running.status import BAR_STEPS, POLL_INTERVAL, Activity
from hushpore.viewer.running.task import slice_on_screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Preview
    from hushpore.viewer.running.messages import RemarkList, TimingPanel
    from hushpore.viewer.running.task import Target
    from hushpore.viewer.running.worker import JobWorker, Update

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
    progress: Progress = _STARTED  # the newest
    eta: Eta = field(default_factory=Eta)
    meter: RateMeter = field(default_factory=RateMeter)

    def __post_init__(self) -> None:
        self.previews = Previews(self.viewer, self.target)
        self._activity: Activity | None = None
        self._is_over = False

    def send_attention(self) -> None:
        """Send the position of the slice on the screen to the job."""
        index = slice_on_screen(self.viewer, self.target)
        if index is not None:
            self.worker.attend(index)

    def show_preview(self, preview: Preview) -> None:
        """Show a preview; an error becomes a note and does not affect the job."""
        try:
            self.previews.show(preview)
        except Exception as error:
            self.notes.append(Note(f"The preview could not be shown: {error}", warning=True))

    def show_activity(self) -> None:
        """Show the progress of a longer job in the activity dock; napari processes events then."""
        if self._activity is None and self.meter.elapsed >= OUTSIDE_DELAY:
            self._activity = Activity(self.worker.name, self.cancel)
            if self._is_over:
                # the job ended while napari processed events
                self._activity.close()
        if self._activity is not None:
            self._activity.show(self.progress)

    def remove(self) -> None:
        """Remove all displays."""
        self._is_over = True
        self.previews.remove()
        if self._activity is not None:
            self._activity.close()


class ProgressPresenter(QObject):
    """Polls the running job, and shows its new events.

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
        # started again after each look, in which napari processes events and may draw for long
        self._timer = QTimer(self, singleShot=True, interval=POLL_INTERVAL, timeout=self.poll)

    def begin(self, state: RunState, resumes: bool = False) -> None:
        """Show a started job, and follow it.

        `resumes`: whether it goes on with the last one.
        """
        self._state = state
        self._timing.begin(state.worker.trace, resumes)
        self._buttons.show_running()
        self._progress.begin()
        self.poll()

    def end(self) -> None:
        """Show the last events except previews, and remove the displays of the job."""
        assert self._state is not None
        state, self._state = self._state, None
        self._timer.stop()
        self._show_events(state, state.worker.take())
        state.remove()
        self._progress.hide()

    def poll(self) -> None:
        """Show the new events of the job."""
        state = self._state
        if state is None:
            return
        before = state.worker.waits_for
        if before is not None and not state.worker.is_cancelling:
            self._progress.stage.say(html.escape(f"Waiting for {before.name} to finish …"))
            self._timer.start()
            return
        state.send_attention()
        update = state.worker.take()
        progress = state.progress = update.progress or state.progress
        elapsed = state.meter.elapsed
        for preview in update.previews.values():
            # the remaining time at the current speed
            is_worth = elapsed * (1 - progress.fraction) >= MIN_REMAINING * progress.fraction
            if is_worth or state.previews.has(preview):
                state.show_preview(preview)
        self._show_events(state, update)
        left, rate = state.eta.left(progress.fraction), state.meter.rate(progress)
        self._progress.show_progress(progress, left, elapsed, state.previews.slice_index())
        if not state.worker.is_cancelling and not state.worker.is_finishing:
            self._buttons.show_stage(progress.stage)
        if rate is not None and update.progress is not None:
            self._timing.rate.add_point(f"{progress.unit}/s", elapsed, rate)
        # last, because the job may end meanwhile
        state.show_activity()
        if self._state is state:
            self._timer.start()

    def _show_events(self, state: RunState, update: Update) -> None:
        state.notes += update.notes
        # a preview that could not be shown leaves a note, too
        self._remarks.show_remarks(state.notes)
        if update.timing is not None:
            self._timing.show_timing(update.timing)
        if update.metrics:
            self._timing.curve.add(update.metrics)
