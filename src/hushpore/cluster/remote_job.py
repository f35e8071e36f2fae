"""One long job on one worker, watched from here: its events come, and answers go there."""

from __future__ import annotations

import contextlib
import pickle
import time
import uuid
from typing import TYPE_CHECKING, Any

from hushpore.base.events import Attention, Batch, Driver, Note, Preview, Progress, StopEarly
from hushpore.cluster.connection import require_distributed
from hushpore.cluster.task_runner import LOOK, loss_in_words, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

    from hushpore.base.events import Event, Job

#: Seconds between two bundles of events.
_PAUSE = 0.25
#: Of these the newest of a bundle is enough.
_DROPPED = (Progress, Preview, Batch)
_STOP = "stop"


def watch(client: Client, task: Callable[..., Job], *args: Any) -> Job:
    """Run a job on one worker, and yield its events as they come.

    Where that worker is lost, the job begins anew on another, which a `Note` says. Closing this
    ends the job there too, at its next event.

    `task`: a function of a module that returns a job.
    Returns: what the job returned.
    Raises HushporeError: what the job raised; `DeviceError` where the cluster is lost.
    """
    distributed = require_distributed()
    name = f"hushpore-{uuid.uuid4().hex}"
    with loss_in_words():
        events = distributed.Queue(name, client=client)
        answers = distributed.Queue(f"{name}-answers", client=client)
        future = client.submit(_run, name, task, args, pure=False)
    newest, place = Progress("waiting for a worker", 0, 0, "", 0.0), ""
    try:
        while True:
            done = future.done()  # type: ignore[no-untyped-call]
            with loss_in_words():
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
                yield Note("The worker was lost; another begins anew.", warning=True)
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
    """Return the next bundle of events, and of whom; None where there is none."""
    # to wait in the queue is told by the scheduler as an error each time
    if not queue.qsize():
        return None
    # of workers that run what this program sends them: dask itself speaks in pickles
    bundle: tuple[str, list[Event]] = pickle.loads(queue.get())
    return bundle


def _run(name: str, task: Callable[..., Job], args: tuple[Any, ...]) -> Any:
    """Drive a job on a worker."""
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
    """Drive a job, telling its events and taking answers, as queues of dask."""
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
    """Return the newest answer; a stop is not to be missed for another."""
    found = None
    for _ in range(answers.qsize()):
        answer = answers.get()
        found = found if found == _STOP else answer
    return found
