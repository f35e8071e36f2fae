"""The worker: drives one job in a thread of its own and keeps its newest events to be fetched.

napari's own generator worker loses a RuntimeError, does not close the generator when it quits, and
queues every yield. Here every exception is reported, the generator is closed before the end is
announced, and events wait in a box of bounded size until the window's timer takes them.

The window goes first: the threads of a job ask for less of a processor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtWidgets import QApplication

from hushpore.base.events import (
    Attention,
    Metric,
    Note,
    Preview,
    Progress,
    StopEarly,
    Timing,
    result_of,
)
from hushpore.device.memory import give_back_freed
from hushpore.device.trace import Trace
from hushpore.viewer.running.preloading import UNTIL_DRAWN, load_units
from hushpore.viewer.running.problem import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hushpore.base.events import Event, Job


#: How much less of a processor the threads of a job ask for than the window: at 5 a third. Not
#: more: a thread that holds the interpreter and is not let run makes the window wait for it.
#: Without it the worst gap of the window while denoising grows from some 45 to 68 ms, and it stands
#: still 2 to 7 times as long in all.
NICE = 5

#: Seconds after which a thread that runs Python code gives way to one that waits. The 99th
#: percentile of gaps in the window's life is 86 ms beside a denoising, and 135 ms with Python's own
#: 5 ms (medians of four runs each by turns, on a busy machine).
SWITCH = 0.0005

_lock = threading.Lock()
_jobs = _frozen = _paused = 0
_switch_before, _collected_before = 0.0, True


@contextmanager
def background_job() -> Iterator[None]:
    """Let other threads go before this one, and before those that it starts.

    For a thread that ends after it: where the system allows less priority for a single thread
    (Linux), it has less until its end. How often threads take turns is as before once the last job
    has ended. See `gc_frozen`, too.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # that of the whole process, which the user may have chosen
            niceness = os.getpriority(os.PRIO_PROCESS, os.getpid())
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness + NICE)
    _count_jobs(1)
    try:
        with gc_frozen():
            yield
    finally:
        _count_jobs(-1)


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Leave out of garbage collections what objects there are, until the last such block ends.

    A full collection stops all threads for 190 ms with napari, PyTorch and Numba loaded, and for
    0 ms of frozen objects. napari asks for one whenever a layer is removed.
    """
    global _frozen  # noqa: PLW0603 - the interpreter has one collector
    with _lock:
        _frozen += 1
        gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _frozen -= 1
            if not _frozen:
                gc.unfreeze()


def unfreeze_for_this_turn() -> None:
    """Let collections go through old objects until the next turn of the event loop.

    Without it a layer that is removed while a job runs is kept until the job ends: 314 MB in the
    trial.
    """
    gc.unfreeze()
    QTimer.singleShot(0, _freeze_again)


def _freeze_again() -> None:
    with _lock:
        if _frozen:
            gc.freeze()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection for an import of many libraries, until the last such block ends.

    Four full collections would stop all threads for 80 to 160 ms each, 0.5 s of the 2.6 s that the
    import takes. What was imported is not looked through by the next one either.
    """
    global _paused, _collected_before  # noqa: PLW0603 - the interpreter has one collector
    with _lock:
        if not _paused:
            _collected_before = gc.isenabled()
        _paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused:
                # what is unfrozen is among the old objects
                gc.freeze()
                if not _frozen:
                    gc.unfreeze()
                if _collected_before:
                    gc.enable()


def _count_jobs(change: int) -> None:
    global _jobs, _switch_before  # noqa: PLW0603 - the interpreter has one interval
    with _lock:
        before, _jobs = _jobs, _jobs + change
        if not before:
            _switch_before = sys.getswitchinterval()
            sys.setswitchinterval(min(_switch_before, SWITCH))
        elif not _jobs:
            sys.setswitchinterval(_switch_before)


@dataclass
class Update:
    """What a job has said since the last look."""

    # the newest; older ones are dropped
    progress: Progress | None = None
    timing: Timing | None = None
    # the newest of each name; older ones are dropped
    previews: dict[str, Preview] = field(default_factory=dict)
    # all of them, in order
    metrics: list[Metric] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case Progress():
                self.progress = event
            case Timing():
                self.timing = event
            case Preview():
                self.previews[event.name] = event
            case Metric():
                self.metrics.append(event)
            case Note():
                self.notes.append(event)


class JobWorker(QObject):
    """Runs one job in a thread.

    Exactly one of `returned`, `failed` and `cancelled` is emitted, once the generator is closed.
    The thread touches no widget and no layer; connect the signals in the GUI thread.

    `make_job`: returns the generator; called in the thread, because the libraries behind a job take
    seconds to import. `name`: what it does, for its thread, its trace, and whoever waits for it.
    `trace`: the job's time line, of bounded size. `prepare`: called in the thread with each event
    before it can be fetched; set before the start. `finished_early`: whether it was cut short.
    """

    returned = Signal(object)  # what the generator returned
    failed = Signal(object)  # Problem
    cancelled = Signal()

    #: Workers whose thread runs: Qt objects must not be collected in another thread than theirs.
    running: ClassVar[set[JobWorker]] = set()

    #: Workers that run one after another, by the name of their queue; the first one runs.
    queues: ClassVar[dict[str, list[JobWorker]]] = {}

    def __init__(self, make_job: Callable[[], Job], name: str = "hushpore job") -> None:
        super().__init__()
        self.name = name
        self._make_job = make_job
        self._queue: list[JobWorker] = []
        self.trace = Trace(name)
        self.prepare: Callable[[Event], None] | None = None
        self._lock = threading.Lock()
        self._update = Update()
        self._cancel = threading.Event()
        self._attention: Attention | None = None
        self._finish_in = ""
        self.finished_early = False
        self._thread = threading.Thread(target=self._run, name=name)
        for end in (self.returned, self.failed, self.cancelled):
            end.connect(self._leave_queue)

    def start(self, queue: str = "") -> None:
        """Start the thread.

        `queue`: wait until all that were started before in the queue of this name have ended, for
        example because they use the same device.
        """
        JobWorker.running.add(self)
        if queue:
            self._queue = JobWorker.queues.setdefault(queue, [])
            self._queue.append(self)
        if self.waits_for is None:
            self._thread.start()

    @property
    def waits_for(self) -> JobWorker | None:
        """The worker that runs now in the queue in which this one waits."""
        first = next(iter(self._queue), self)
        return None if first is self else first

    def cancel(self) -> None:
        """Ask the job to stop at its next event; returns at once."""
        self._cancel.set()
        if self.waits_for is not None:
            # its turn is over: the thread finds the job cancelled and says so
            self._queue.remove(self)
            self._queue = []
            self._thread.start()

    def attend(self, index: tuple[int, ...]) -> None:
        """Tell the job which slice is being looked at; returns at once.

        `index`: position on the leading axes of the volume.
        """
        self._attention = Attention(index)

    def finish(self, stage: str) -> None:
        """Ask the job to end early with what it has; returns at once.

        `stage`: the stage that can be cut short: the job is told at its next `Progress` in it, and
        where that stage is already over it ends as it would have.
        """
        self._finish_in = stage

    @property
    def is_finishing(self) -> bool:
        """Whether it has been asked to end early."""
        return bool(self._finish_in)

    @property
    def is_cancelling(self) -> bool:
        """Whether it has been asked to stop."""
        return self._cancel.is_set()

    @property
    def is_running(self) -> bool:
        """Whether its thread is alive."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the thread to end; returns whether it has."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self.is_running

    def take(self) -> Update:
        """Return what the job has said since the last call."""
        with self._lock:
            update, self._update = self._update, Update()
        return update

    def _run(self) -> None:
        try:
            with background_job():
                # what it makes may be layers
                load_units()
                finished, result = self._drive()
                # the thread ends now, and what it has freed would stay with its heap
                give_back_freed()
        except BaseException as error:  # whatever it is, the user must hear of it
            self.failed.emit(explain(error))
        else:
            if finished:
                self.returned.emit(result)
            else:
                self.cancelled.emit()

    def _drive(self) -> tuple[bool, Any]:
        if self._cancel.is_set():
            return False, None
        try:
            result = result_of(self._make_job(), self._heard)
        except StopEarly:
            # cancelled, or cut short with nothing to keep
            return False, None
        # a cancel that came in the last step counts too: its result is not wanted
        return not self._cancel.is_set(), result

    def _heard(self, event: Event) -> Attention | StopEarly | None:
        """Keep an event to be fetched, and return what the job is told in answer.

        Raises StopEarly: where it is cancelled.
        """
        self.trace.add(event)
        if self.prepare is not None:
            self.prepare(event)
        with self._lock:
            self._update.add(event)
        if self._cancel.is_set():
            raise StopEarly
        if not isinstance(event, Progress):
            return None
        if event.stage == self._finish_in and not self.finished_early:
            self.finished_early = True
            return StopEarly()
        return self._attention

    def _leave_queue(self, *_: Any) -> None:
        # kept until the other slots of this signal have run: PySide drops them with their sender
        QTimer.singleShot(0, partial(JobWorker.running.discard, self))
        if self in self._queue:
            self._queue.remove(self)
            if self._queue:
                self._queue[0]._thread.start()


def calling(function: Callable[..., Any], *given: object) -> Job:
    """Return a job that calls a function, and says nothing meanwhile."""
    yield from ()
    return function(*given)


class WorkerEnds(QObject):
    """Passes on how workers end for as long as the widget that it belongs to is there."""

    returned = Signal(object)
    failed = Signal(object)
    cancelled = Signal()

    def follow(self, worker: JobWorker) -> None:
        """Pass on how this worker ends, too."""
        worker.returned.connect(self.returned)
        worker.failed.connect(self.failed)
        worker.cancelled.connect(self.cancelled)


def stop_on_destroy(owner: QObject, workers: list[JobWorker], seconds: float) -> None:
    """Have workers end when their owner does: whichever way it goes, no job must outlive it."""
    # nothing of the owner can be asked by then, so this holds the list alone
    end = partial(stop, workers, seconds)
    owner.destroyed.connect(end)
    QApplication.instance().aboutToQuit.connect(end)


def stop(workers: list[JobWorker], seconds: float, *_: object) -> None:
    """Cancel workers and wait, once however many signs of the end there are; empties the list."""
    while workers:
        worker = workers.pop()
        worker.cancel()
        worker.wait(seconds)


class LatestOnlyWorker(QObject):
    """Does one thing at a time, and of what is asked for meanwhile only the last.

    The first waits until the widget that it is made with is drawn, see `start_once_drawn`.

    `name`: what it does, for its threads.
    """

    #: What it was about, and what came of it.
    returned = Signal(object, object)
    #: What it was about, and the `Problem`.
    failed = Signal(object, object)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._running: list[JobWorker] = []
        self._wanted: tuple[Callable[[], Job], object] | None = None
        stop_on_destroy(self, self._running, 0.0)
        self._until_drawn = QTimer(self, singleShot=True, timeout=self._begin)
        self._until_drawn.start(UNTIL_DRAWN)

    @property
    def is_busy(self) -> bool:
        """Whether something that was asked for has not been done yet."""
        return bool(self._running) or self._wanted is not None

    def submit(self, make_job: Callable[[], Job], tag: object = None) -> None:
        """Have something done, in place of what was asked for before and has not begun.

        `make_job`: returns the generator; called in the thread.
        """
        self._wanted = make_job, tag
        self._begin()

    def cancel(self) -> None:
        """Do nothing of what was asked for; what runs stops at its next event, and is not told."""
        self._wanted = None
        for worker in self._running:
            worker.cancel()

    def _begin(self) -> None:
        if self._running or self._wanted is None or self._until_drawn.isActive():
            return
        (make_job, tag), self._wanted = self._wanted, None
        worker = JobWorker(make_job, self._name)
        self._running.append(worker)
        worker.returned.connect(partial(self._ended, self.returned, tag))
        worker.failed.connect(partial(self._ended, self.failed, tag))
        worker.cancelled.connect(self._ended)
        worker.start()

    def _ended(self, told: Any = None, *what: object) -> None:
        self._running.clear()
        if told is not None:
            told.emit(*what)
        self._begin()
