"""Many independent tasks on the workers of a cluster, or one long job; and losses in words.

Tasks are given some at a time. A job on one worker is watched from here: its events come, and
answers go there.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.errors import DeviceError, HushporeError, MemoryLimitError
from hushpore.base.events import Attention, Batch, Driver, Note, Preview, Progress, StopEarly
from hushpore.base.formatting import readable_count
from hushpore.cluster.connection import require_distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from distributed import Client
    from distributed import Future as DistributedFuture

    Future: TypeAlias = DistributedFuture[Any]

    from hushpore.base.events import Event, Job

#: Tasks that are with the workers at a time, for each thread of theirs: one at work, one waiting.
_AHEAD = 2
#: Seconds after which one looks up from waiting, to hear of a cancel.
LOOK = 0.2
#: How often one asks for workers, with that time in between, until there is one.
_ASKED = 50


def spread(
    client: Client, task: Callable[..., Any], keys: Iterable[Any], *shared: Any
) -> Generator[Any, None, None]:
    """Run a task for each key and yield results as they arrive; None while waiting.

    A task whose worker dies is run again on another. Closing the generator takes back what has not
    begun.

    `client`: connected, see `hushpore.cluster.connection.connect`. `task`: a function of a module:
    ``task(*shared, key)``. ``*shared``: what all tasks are given; futures come to each worker once.
    Raises HushporeError: what a task raised; DeviceError if the scheduler is lost, or a task has
    cost too many workers their lives.
    """
    distributed = require_distributed()
    waiting: set[Future] = set()
    left = iter(keys)
    try:
        while True:
            with loss_explained():
                room = _AHEAD * _threads(client) - len(waiting)
                for key in itertools.islice(left, max(room, 0)):
                    waiting.add(client.submit(task, *shared, key, pure=False))
            if not waiting:
                return
            # cancelled by the end of the scheduler: `outcome` says so
            with contextlib.suppress(TimeoutError, distributed.CancelledError), client.as_current():
                distributed.wait(waiting, timeout=LOOK, return_when="FIRST_COMPLETED")
            done = [future for future in waiting if future.status != "pending"]
            if not done:
                yield None
            for future in done:
                waiting.discard(future)
                yield outcome(future)
    finally:
        # the first error is the one to tell
        with contextlib.suppress(Exception):
            # of none it would wait for the scheduler all the same
            if waiting:
                client.cancel(list(waiting))  # type: ignore[no-untyped-call]


def outcome(future: Future) -> Any:
    """Return the result of a task, or raise its error in plain words."""
    distributed = require_distributed()
    try:
        with loss_explained():
            return future.result(timeout=60)
    except distributed.KilledWorker as error:
        raise DeviceError(
            f"A task failed on {error.allowed_failures + 1} workers, which were lost, probably out "
            "of memory. Partial results are kept: run the same command again with more memory per "
            "worker."
        ) from error
    except HushporeError:
        raise
    except MemoryError as error:
        raise MemoryLimitError(
            "A worker ran out of memory. Give each worker more memory."
        ) from error


@contextmanager
def loss_explained() -> Iterator[None]:
    """Report a lost scheduler in plain words.

    Raises DeviceError: for any error of that kind.
    """
    distributed = require_distributed()
    gone = (distributed.CancelledError, distributed.comm.CommClosedError, TimeoutError)
    try:
        yield
    except gone as error:
        raise DeviceError(
            "The connection to the scheduler of the cluster was lost. Partial results are kept: "
            "run the same command again to resume."
        ) from error


def memory_of(client: Client) -> float:
    """Return the memory limit of a task on the smallest worker in bytes; 0: no limit."""
    workers = workers_of(client)
    limits = [each["memory_limit"] / each["nthreads"] for each in workers if each["memory_limit"]]
    return min(limits, default=0)


def in_words(client: Client) -> str:
    """Return the number of workers and the address of the scheduler as text."""
    with loss_explained():
        address = client.scheduler_info()["address"]
    return f"{readable_count(len(workers_of(client)), 'worker')} of dask.distributed at {address}"


def workers_of(client: Client) -> list[dict[str, Any]]:
    """Return the facts of each worker; raises an error if there is none.

    To be asked once for what has to fit together: workers come and go.
    Raises DeviceError if there is none, or the scheduler is lost.
    """
    for _ in range(_ASKED):
        with loss_explained():
            known = _workers(client)
        if known:
            return known
        # dask itself asks for none now and then, and may give that answer
        time.sleep(LOOK)
    raise DeviceError("The cluster has no workers. Start workers and run the same command again.")


def _workers(client: Client) -> list[dict[str, Any]]:
    known = client.scheduler_info(n_workers=-1)
    if "workers" not in known:
        # the client knows of the end before anything is asked of the scheduler
        raise require_distributed().comm.CommClosedError("The scheduler was lost.")
    return list(known["workers"].values())


def _threads(client: Client) -> int:
    return max(1, sum(int(worker["nthreads"]) for worker in _workers(client)))


# ---- one long job

#: Seconds between two bundles of events.
_PAUSE = 0.25
#: Of these the newest of a bundle is enough.
_DROPPED = (Progress, Preview, Batch)
_STOP = "stop"


def watch(client: Client, task: Callable[..., Job], *args: Any) -> Job:
    """Run a job on one worker and yield its events as they arrive.

    Where that worker is lost, the job begins anew on another, which a `Note` says. Closing this
    ends the job there too, at its next event.

    `task`: a function of a module that returns a job.
    Returns: what the job returned.
    Raises HushporeError: what the job raised; `DeviceError` where the cluster is lost.
    """
    distributed = require_distributed()
    name = f"hushpore-{uuid.uuid4().hex}"
    with loss_explained():
        events = distributed.Queue(name, client=client)
        answers = distributed.Queue(f"{name}-answers", client=client)
        future = client.submit(_run, name, task, args, pure=False)
    newest, place = Progress("waiting for a worker", 0, 0, "", 0.0), ""
    try:
        while True:
            done = future.done()  # type: ignore[no-untyped-call]
            with loss_explained():
                bundle = _next_of(events)
            if bundle is None and done:
                return outcome(future)
            if bundle is None:
                # the end is heard of at once
                end = contextlib.suppress(TimeoutError, distributed.CancelledError)
                with end, client.as_current():
                    distributed.wait([future], timeout=LOOK)
            where, told = bundle or (place, [newest])
            if place and where != place:
                yield Note("The worker was lost. The job restarts on another worker.", warning=True)
            place = where
            for event in told:
                newest = event if isinstance(event, Progress) else newest
                try:
                    sent = yield event
                except StopEarly:
                    answers.put(_STOP)
                    continue
                if isinstance(sent, Attention):
                    answers.put(list(sent.index))
    finally:
        with contextlib.suppress(Exception):
            client.cancel([future])  # type: ignore[no-untyped-call]
            events.close()
            answers.close()


def _next_of(queue: Any) -> tuple[str, list[Event]] | None:
    """Return the next bundle of events and its sender; None if there is none yet."""
    # to wait in the queue is told by the scheduler as an error each time
    if not queue.qsize():
        return None
    # of workers that run what this program sends them: dask itself speaks in pickles
    bundle: tuple[str, list[Event]] = pickle.loads(queue.get())
    return bundle


def _run(name: str, task: Callable[..., Job], args: tuple[Any, ...]) -> Any:
    """Run a job on a worker."""
    distributed = require_distributed()
    worker = distributed.get_worker()
    # a worker's own client would become the default of its process, which may be the user's, for
    # all that is computed with dask there
    place, security = worker.scheduler.address, worker.security
    with distributed.Client(place, security=security, set_as_default=False) as client:
        events = distributed.Queue(name, client=client)
        answers = distributed.Queue(f"{name}-answers", client=client)
        return _drive(worker, events, answers, task(*args))


def _drive(worker: Any, events: Any, answers: Any, job: Job) -> Any:
    """Run a job, sending events and receiving answers through queues of dask."""
    key = worker.get_current_task()
    told: list[Event] = []
    due = time.monotonic() + _PAUSE
    with Driver(job) as driver:
        for event in driver:
            if isinstance(event, _DROPPED):
                told = [each for each in told if type(each) is not type(event)]
            told.append(event)
            if time.monotonic() < due:
                continue
            events.put(pickle.dumps((worker.address, told)))
            told = []
            known = worker.state.tasks.get(key)
            # the one who asked is gone, or has taken it back
            if known is None or known.state not in ("executing", "long-running"):
                return None
            answer = _newest(answers)
            if answer == _STOP:
                driver.answer = StopEarly()
            elif answer is not None and isinstance(event, Progress):
                driver.answer = Attention(tuple(answer))
            due = time.monotonic() + _PAUSE
    events.put(pickle.dumps((worker.address, told)))
    return driver.result


def _newest(answers: Any) -> Any:
    """Return the newest answer; a stop takes precedence."""
    found = None
    for _ in range(answers.qsize()):
        answer = answers.get()
        found = found if found == _STOP else answer
    return found
