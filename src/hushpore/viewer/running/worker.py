"""The worker: runs a job in a thread and keeps its newest events.

napari's own generator worker loses RuntimeErrors, does not close the generator when it quits, and
queues every yield. Here every exception is reported, the generator is closed before the end is
signalled, and events are kept in a buffer of bounded size until the window takes them.

The threads of a job have a lower priority than the window.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pint
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
from hushpore.device.timing import Trace
from hushpore.viewer.running.problem import explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event, Job


#: Milliseconds until an opened widget is drawn.
UNTIL_DRAWN = 300


#: Niceness added to the threads of a job: 5 gives them a third of the CPU share of the window. Not
#: more, because a thread that holds Python's lock but gets no CPU time blocks the window.
NICE = 5


def give_way() -> None:
    """Lower the priority of the current thread and of the threads that it starts.

    Use it in a thread that ends afterwards, because on Linux the priority of a thread stays
    lowered until its end.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # niceness of the process, which the user may have set
            niceness = os.getpriority(os.PRIO_PROCESS, os.getpid())
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness + NICE)


@dataclass
class Update:
    """The events of a job since the last poll."""

    # the newest; older ones are dropped
    progress: Progress | None = None
    timing: Timing | None = None
    # the newest of each name; older ones are dropped
    previews: dict[str, Preview] = field(default_factory=dict)
    # all of them, in order
    metrics: list[Metric] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Add an event."""
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

    `make_job`: returns the generator; called in the thread, because the libraries of a job take
    seconds to import. `name`: name of the thread and the trace, also shown by waiting jobs.
    `trace`: trace of the job, of bounded size. `finished_early`: whether the job finished early on
    request.
    """

    returned = Signal(object)  # what the generator returned
    failed = Signal(object)  # Problem
    cancelled = Signal()

    #: Running workers, kept alive: Qt objects must not be collected in another thread.
    running: ClassVar[set[JobWorker]] = set()

    #: Workers that run one after another, by queue; the first one is running.
    queues: ClassVar[dict[str, list[JobWorker]]] = {}

    def __init__(self, make_job: Callable[[], Job], name: str = "hushpore job") -> None:
        super().__init__()
        self.name = name
        self._make_job = make_job
        self._queue: list[JobWorker] = []
        self.trace = Trace(name)
        self._lock = threading.Lock()
        self._update = Update()
        self._cancel = threading.Event()
        self._attention: Attention | None = None
        self._finish_in = ""
        self.finished_early = False
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self, queue: str = "") -> None:
        """Start the thread; connect slots to the end signals before.

        `queue`: wait for all workers started before in this queue, for example on the same device.
        """
        JobWorker.running.add(self)
        # load the units of layers here: two threads that do it at once see half of them
        pint.Unit("mm")
        # last, because PySide drops the slots that have not run yet with the worker
        for end in (self.returned, self.failed, self.cancelled):
            end.connect(self._leave_queue)
        if queue:
            self._queue = JobWorker.queues.setdefault(queue, [])
            self._queue.append(self)
        if self.waits_for is None:
            self._thread.start()

    @property
    def waits_for(self) -> JobWorker | None:
        """The running worker of the queue in which this one waits, or None."""
        # a worker that left its queue waits for nobody, whoever is first there now
        return self._queue[0] if self in self._queue[1:] else None

    def cancel(self) -> None:
        """Ask the job to stop at its next event; returns at once."""
        self._cancel.set()
        if self.waits_for is not None:
            # start the thread, which finds the job cancelled and reports it
            self._queue.remove(self)
            self._queue = []
            self._thread.start()

    def attend(self, index: tuple[int, ...]) -> None:
        """Send the position of the slice on the screen to the job; returns at once.

        `index`: position on the leading axes of the volume.
        """
        self._attention = Attention(index)

    def finish(self, stage: str) -> None:
        """Ask the job to finish early with a result; returns at once.

        `stage`: the stage to stop, at its next `Progress`; if it is already over, the job ends
        normally.
        """
        self._finish_in = stage

    @property
    def is_finishing(self) -> bool:
        """Whether the job was asked to finish early."""
        return bool(self._finish_in)

    @property
    def is_cancelling(self) -> bool:
        """Whether the job was asked to stop."""
        return self._cancel.is_set()

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the thread to end; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self.is_running

    def take(self) -> Update:
        """Return the events of the job since the last call."""
        with self._lock:
            update, self._update = self._update, Update()
        return update

    def _run(self) -> None:
        try:
            give_way()
            finished, result = self._drive()
            # freed memory would stay with the heap of this thread
            give_back_freed()
        except BaseException as error:  # every error must reach the user
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
            result = result_of(self._make_job(), self._handle_event)
        except StopEarly:
            # cancelled, or finished early without a result
            return False, None
        # also discard a result if the cancel came in the last step
        return not self._cancel.is_set(), result

    def _handle_event(self, event: Event) -> Attention | StopEarly | None:
        """Keep an event for the window, and return the reply to the job.

        Raises StopEarly if the job is cancelled.
        """
        self.trace.add(event)
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
        # the thread still holds the worker, which must not be deleted there
        self.wait()
        QTimer.singleShot(0, partial(JobWorker.running.discard, self))
        if self in self._queue:
            self._queue.remove(self)
            if self._queue:
                self._queue[0]._thread.start()


def calling(function: Callable[..., Any], *given: object) -> Job:
    """Return a job that calls a function, without events."""
    yield from ()
    return function(*given)


class WorkerEnds(QObject):
    """Forwards the end signals of workers as long as its widget exists."""

    returned = Signal(object)
    failed = Signal(object)
    cancelled = Signal()

    def follow(self, worker: JobWorker) -> None:
        """Forward the end signals of a worker."""
        worker.returned.connect(self.returned)
        worker.failed.connect(self.failed)
        worker.cancelled.connect(self.cancelled)


def stop_on_destroy(owner: QObject, workers: list[JobWorker], seconds: float) -> None:
    """Stop workers when their owner is destroyed or the application quits."""
    # keep only the list, because the owner is already destroyed by then
    end = partial(stop, workers, seconds)
    owner.destroyed.connect(end)
    QApplication.instance().aboutToQuit.connect(end)


def stop(workers: list[JobWorker], seconds: float, *_: object) -> None:
    """Cancel workers, wait for their end, and empty the list."""
    while workers:
        worker = workers.pop()
        worker.cancel()
        worker.wait(seconds)


class LatestOnlyWorker(QObject):
    """Runs one job at a time, and then only the last of the jobs submitted meanwhile.

    The first job waits until its widget is drawn: otherwise both compete for Python's lock, and the
    widget takes 1.1 s instead of 0.2 s to open.

    `name`: name of its threads.
    """

    #: Emitted with the tag of the job and its result.
    returned = Signal(object, object)
    #: Emitted with the tag of the job and the `Problem`.
    failed = Signal(object, object)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._running: list[JobWorker] = []
        self._wanted: tuple[Callable[[], Job], object] | None = None
        self._tag: object = None  # of the running job
        stop_on_destroy(self, self._running, 0.0)
        self._until_drawn = QTimer(self, singleShot=True, timeout=self._begin)
        self._until_drawn.start(UNTIL_DRAWN)

    @property
    def is_busy(self) -> bool:
        """Whether a job is running or waiting."""
        return bool(self._running) or self._wanted is not None

    def submit(self, make_job: Callable[[], Job], tag: object = None) -> None:
        """Submit a job; it replaces one that is still waiting.

        `make_job`: returns the generator; called in the thread. `tag`: passed on with the signals.
        """
        self._wanted = make_job, tag
        self._begin()

    def cancel(self) -> None:
        """Drop the waiting job, and cancel the running one without a signal."""
        self._wanted = None
        for worker in self._running:
            worker.cancel()

    def _begin(self) -> None:
        if self._running or self._wanted is None or self._until_drawn.isActive():
            return
        (make_job, self._tag), self._wanted = self._wanted, None
        worker = JobWorker(make_job, self._name)
        self._running.append(worker)
        # methods alone: Qt calls them only as long as this object exists
        worker.returned.connect(self._returned)
        worker.failed.connect(self._failed)
        worker.cancelled.connect(self._ended)
        worker.start()

    def _returned(self, result: object) -> None:
        self._ended(self.returned, result)

    def _failed(self, problem: object) -> None:
        self._ended(self.failed, problem)

    def _ended(self, signal: Any = None, value: object = None) -> None:
        self._running.clear()
        if signal is not None:
            signal.emit(self._tag, value)
        self._begin()
