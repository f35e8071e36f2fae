"""Progress of a running job: estimates, texts, buttons and the bar."""

from __future__ import annotations

import html
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from hushpore.viewer.forms.layout import CANCEL, RUN, RichLabel, fill, link, with_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Progress


#: Steps of the progress bar.
BAR_STEPS = 1000

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


def canvas_text(title: str, progress: Progress, rate: float | None, left: float | None) -> str:
    """Return the line on the canvas: 'Denoise scan: training, 62 %, 18 steps/s, 0:41 left'."""
    parts = [f"{title}: {progress.stage}"]
    if progress.fraction > 0:
        parts.append(f"{100 * progress.fraction:.0f} %")
    if rate is not None:
        number = f"{rate:,.0f}" if rate >= 9.95 else f"{rate:#.2g}"
        parts.append(f"{number} {progress.unit}/s")
    if left is not None:
        parts.append(f"{duration(left)} left")
    return ", ".join(parts)


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
