"""Progress in words and numbers, and the buttons and the bar of a running job."""

from __future__ import annotations

import html
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from hushpore.viewer.forms.docking import CANCEL, RUN, with_key
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import RichLabel, link

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Progress


#: Parts that a whole job is shown in.
BAR_STEPS = 1000

#: Looks at a job that are kept for an estimate.
MAX_SAMPLES = 64

#: Seconds over which a rate is taken.
RATE_WINDOW = 10.0


class Eta:
    """Estimates the time left from the share that is done.

    The rate is the median of the rates between looks an eighth of the job so far apart: a pause,
    or a first step that is slow, spoils a few of them only.

    `clock`: seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: list[tuple[float, float]] = []
        self._apart = 0.0

    def left(self, fraction: float) -> float | None:
        """Return the seconds left, or None where it is too early to say."""
        now, seen = self._clock(), self._seen
        if fraction <= 0:
            return None
        if not seen or now - seen[-1][0] >= self._apart:
            seen.append((now, fraction))
        if len(seen) > MAX_SAMPLES:
            # twice as far apart from now on, so that a long job takes no more memory
            del seen[1::2]
            self._apart = 2 * (seen[-1][0] - seen[0][0]) / MAX_SAMPLES
        start, before = seen[0]
        if now - start < 1 or fraction - before < 0.005:
            return None
        looks = [*seen, (now, fraction)]
        pairs = zip(looks, looks[max(len(looks) // 8, 1) :], strict=False)
        rate = median((b - a) / (t - s) for (s, a), (t, b) in pairs if t > s)
        if rate <= 0:
            # it has stood still for most of the time: all that is known is the whole
            rate = (fraction - before) / (now - start)
        return (1 - fraction) / rate


class RateMeter:
    """Tells how much is done a second, over the last `RATE_WINDOW` seconds of a stage.

    `clock`: seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._stage = ""
        self._seen: deque[tuple[float, int]] = deque()

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._start

    def rate(self, progress: Progress) -> float | None:
        """Return how much is done a second, or None where it is too early to say."""
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
    """Write seconds as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def stage_text(progress: Progress) -> str:
    """Write what is being done: 'training, 300 of 1,500 steps'."""
    if not progress.total or not progress.unit:
        return progress.stage
    return f"{progress.stage}, {progress.done:,} of {progress.total:,} {progress.unit}"


def bar_text(progress: Progress, left: float | None) -> str:
    """Write how far it is: '62 % · 0:41 left'."""
    text = f"{100 * progress.fraction:.0f} %"
    return text if left is None else f"{text} · {duration(left)} left"


def canvas_text(title: str, progress: Progress, rate: float | None, left: float | None) -> str:
    """Write the line on the canvas: 'Denoise scan: training, 62 %, 18 steps/s, 0:41 left'."""
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
    """Run, which is Cancel while a job runs, and Finish now; each says why it cannot be pressed.

    `title`: what the job does: "Denoise". `ends_early_in`: stage that can be cut short with a
    result; empty for a job that has none before its end.
    """

    def __init__(self, title: str, ends_early_in: str) -> None:
        super().__init__()
        self._title, self._ends_early_in = title, ends_early_in
        self.run = QPushButton("Run", styleSheet="font-weight: bold; padding: 6px;")
        self.finish = QPushButton("Finish now", styleSheet="padding: 6px;", visible=False)
        line = fill(QHBoxLayout(self), self.run, self.finish)
        line.setStretch(0, 1)
        line.setStretch(1, 1)

    def show_idle(self, why_not: str) -> None:
        """Offer Run, unless there is a reason against it."""
        self.finish.hide()
        tip = why_not or with_key(f"{self._title} on this layer.", RUN)
        offer(self.run, "Run", tip, not why_not)

    def show_running(self) -> None:
        """Offer Cancel, and Finish now for a job that has something before its end."""
        tip = with_key("Stop; only what the preview shows is kept.", CANCEL)
        offer(self.run, "Cancel", tip)
        self.finish.setVisible(bool(self._ends_early_in))
        offer(self.finish, "Finish now", "Nothing has been learnt yet.", False)

    def show_stage(self, stage: str) -> None:
        """Offer Finish now in the stage that can be cut short."""
        is_it = stage == self._ends_early_in
        why_not = f"While {stage} there is nothing to cut short."
        tip = "End now and keep the result so far." if is_it else why_not
        offer(self.finish, "Finish now", tip, is_it)

    def show_cancelling(self) -> None:
        """Say that the job has been asked to stop."""
        offer(self.run, "Cancelling …", "The job stops after the step that it is in.", False)
        offer(self.finish, "Finish now", "The job is being cancelled.", False)

    def show_finishing(self) -> None:
        """Say that the job has been asked to end with what it has."""
        tip = "The result is made of what was learnt so far."
        offer(self.finish, "Finishing …", tip, False)


def offer(button: QPushButton, text: str, tip: str, is_allowed: bool = True) -> None:
    """Say what a button does, or why it cannot be pressed."""
    button.setText(text)
    button.setToolTip(tip)
    button.setEnabled(is_allowed)


class JobProgress(QWidget):
    """A bar with percent and time left, and the stage in words; hidden while no job runs.

    `bar`: its parts are `BAR_STEPS`. `stage`: its link leads to the preview.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        # never a bar that only moves to and fro: it draws the window anew all the time
        self.bar = QProgressBar(maximum=BAR_STEPS)
        self.stage = RichLabel(viewer)
        #: The layer whose job this is, where another is chosen.
        self.of = ""
        fill(QVBoxLayout(self), self.bar, self.stage, spacing=2)
        self.hide()

    def begin(self) -> None:
        """Show that a job has begun, of which nothing is known yet."""
        self.bar.setValue(0)
        self.bar.setFormat("")
        self.stage.say("preparing")
        self.show()

    def show_progress(
        self, progress: Progress, left: float | None, elapsed: float, previewed: int | None
    ) -> None:
        """Show how far the job is; while that is not known, how long it has taken so far.

        `left`: seconds left, where they are known.
        """
        is_known = progress.fraction > 0
        self.bar.setValue(round(BAR_STEPS * progress.fraction))
        self.bar.setFormat(bar_text(progress, left) if is_known else f"{duration(elapsed)} so far")
        name = f"{self.of}: " if self.of else ""
        text = html.escape(f"{name}{stage_text(progress)}")
        if previewed is not None:
            text += " · " + link("preview", f"preview in slice {previewed}")
        self.stage.say(text)
