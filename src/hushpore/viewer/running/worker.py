"""The worker: runs a job in a thread and keeps its newest events; libraries are loaded before.

napari's own generator worker loses RuntimeErrors, does not close the generator when it quits, and
queues every yield. Here every exception is reported, the generator is closed before the end is
signalled, and events are kept in a buffer of bounded size until the window takes them.

The threads of a job have a lower priority than the window.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
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
    from collections.abc import Callable, Iterator

    from hushpore.base.events import Event, Job


#: Milliseconds until an opened widget is drawn.
UNTIL_DRAWN = 300

_loading_units, _loading_torch = threading.Lock(), threading.Lock()

#: Shared libraries of PyTorch, and whether to load them with global symbols.
_LIBRARIES = {"libtorch_global_deps.so": True, "libtorch_python.so": False}


def start_once_drawn(owner: QObject, worker: Any) -> None:
    """Start a `JobWorker` that imports libraries once a new widget is on the screen.

    Otherwise both compete for Python's lock, and the widget takes 1.1 s instead of 0.2 s to open.
    Nothing is started if the widget or the worker has been deleted by then.
    """
    timer = QTimer(owner, singleShot=True)
    timer.timeout.connect(worker.start)
    timer.timeout.connect(timer.deleteLater)
    timer.start(UNTIL_DRAWN)


def load_units() -> None:
    """Load pint's units, which layers need; call it in any thread except that of the window.

    pint loads the units at first use, which would block the window for 0.25 s. If two threads use
    them at the same time, both see half-loaded units, and opening a scan fails. So the units are
    loaded into a separate registry, which replaces pint's when it is complete.
    """
    untyped: Any = pint
    units = untyped.application_registry
    with _loading_units:
        if type(units.get()) is untyped.LazyRegistry:
            found = untyped.UnitRegistry(on_redefinition="raise")
            # unless the window has loaded them meanwhile
            if type(units.get()) is untyped.LazyRegistry:
                units.set(found)
        while not units.get()._initialized:
            # the window is loading them
            time.sleep(0.01)


def load_torch_libraries() -> None:
    """Load the shared libraries of PyTorch before it is imported.

    Python keeps its lock while it loads a library, which would block the window for 0.44 s. Calling
    dlopen by ctypes releases the lock. If that is not possible, nothing is done, and the import
    reports the reason.

    Only one thread loads at a time, because dlopen has its own lock: a thread that waited for it
    while holding Python's lock blocked the window for 0.2 s.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return
    with _loading_torch, suppress(AttributeError, ImportError, OSError, ValueError):
        found = find_spec("torch")
        load = ctypes.CDLL(None).dlopen
        load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        if found is None or not found.origin:
            return
        for name, is_global in _LIBRARIES.items():
            place = Path(found.origin).parent / "lib" / name
            load(os.fsencode(place), os.RTLD_NOW | (os.RTLD_GLOBAL if is_global else 0))


#: Niceness added to the threads of a job: 5 gives them a third of the CPU share of the window. Not
#: more, because a thread that holds Python's lock but gets no CPU time blocks the window. Without
#: it the longest pause of the window while denoising grows from about 45 to 68 ms, and the total
#: time of pauses 2 to 7 times.
NICE = 5

#: Switch interval of Python threads in seconds. The 99th percentile of pauses of the window while
#: denoising is 86 ms instead of 135 ms with Python's default of 5 ms (medians of four alternating
#: runs on a busy machine).
SWITCH_INTERVAL = 0.0005

_lock = threading.Lock()
_jobs = _frozen = _paused = 0
_switch_before, _collected_before = 0.0, True


@contextmanager
def background_job() -> Iterator[None]:
    """Lower the priority of the current thread and of the threads that it starts.

    Use it in a thread that ends afterwards, because on Linux the priority of a thread stays
    lowered until its end. The switch interval is restored after the last job. See also `gc_frozen`.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # niceness of the process, which the user may have set
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
    """Exclude existing objects from garbage collection until the last such block ends.

    A full collection stops all threads for 190 ms with napari, PyTorch and Numba loaded; frozen
    objects take no time. napari runs one whenever a layer is removed.
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
    """Include frozen objects in garbage collection until the next turn of the event loop.

    Without it, a layer removed while a job runs would stay in memory until the job ends (314 MB in
    a test).
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

    Four full collections would stop all threads for 80 to 160 ms each, 0.5 s of the 2.6 s of the
    import. The imported objects are excluded from the next collection, too.
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
                # freeze and unfreeze move all objects to the oldest generation
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
            sys.setswitchinterval(min(_switch_before, SWITCH_INTERVAL))
        elif not _jobs:
            sys.setswitchinterval(_switch_before)


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
    `trace`: trace of the job, of bounded size. `prepare`: called in the thread with each event
    before the window can take it; set it before the start. `finished_early`: whether the job
    finished early on request.
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
        self.prepare: Callable[[Event], None] | None = None
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
            with background_job():
                # the job may create layers
                load_units()
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

    The first job waits until its widget is drawn, see `start_once_drawn`.

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
        (make_job, tag), self._wanted = self._wanted, None
        worker = JobWorker(make_job, self._name)
        self._running.append(worker)
        worker.returned.connect(partial(self._ended, self.returned, tag))
        worker.failed.connect(partial(self._ended, self.failed, tag))
        worker.cancelled.connect(self._ended)
        worker.start()

    def _ended(self, signal: Any = None, *values: object) -> None:
        self._running.clear()
        if signal is not None:
            signal.emit(*values)
        self._begin()
