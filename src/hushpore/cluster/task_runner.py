"""Runs independent tasks, or one long job, on the workers of a cluster; reports lost workers.

Tasks are submitted a few at a time. A long job on one worker sends its events to the client and
receives answers from it.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hushpore.base.errors import DeviceError, HushporeError, MemoryLimitError
from hushpore.base.events import Attention, Batch, Driver, Note, Preview, Progress, StopEarly
from hushpore.base.formatting import readable_count
from hushpore.cluster.connection import require_distributed
from hushpore.device.backend import choose_backend
from hushpore.device.memory import is_out_of_memory
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.engines import fitting_slices, room_on

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from distributed import Client
    from distributed import Future as DistributedFuture

    from hushpore.base.events import Event, Job

    Future: TypeAlias = DistributedFuture[Any]


#: Submitted tasks per thread of the workers: one running, one waiting.
_AHEAD = 2
#: Seconds between two checks for a cancel while waiting.
LOOK = 0.2
#: Maximum number of attempts to find a worker, `LOOK` seconds apart.
_ASKED = 50


def spread(
    client: Client, task: Callable[..., Any], keys: Iterable[Any], *shared: Any
) -> Generator[Any, None, None]:
    """Run a task for each key and yield results as they arrive; None while waiting.

    A task is run again on another worker if its worker dies. Closing the generator cancels tasks
    that have not started.

    `client`: connected, see `hushpore.cluster.connection.connect`. `task`: a module-level function,
    called as ``task(*shared, key)``. ``*shared``: arguments of all tasks; futures are sent to each
    worker once.
    Raises HushporeError: the error of a task; DeviceError if the scheduler is lost, or if a task
    has killed too many workers.
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
            # a lost scheduler cancels the futures: `outcome` reports that
            with contextlib.suppress(TimeoutError, distributed.CancelledError), client.as_current():
                distributed.wait(waiting, timeout=LOOK, return_when="FIRST_COMPLETED")
            done = [future for future in waiting if future.status != "pending"]
            if not done:
                yield None
            for future in done:
                waiting.discard(future)
                yield outcome(future)
    finally:
        # errors while cancelling must not hide the first error
        with contextlib.suppress(Exception):
            # even an empty list would wait for the scheduler
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

    Raises DeviceError: in place of the errors of dask.
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

    Call this once for values that must be consistent, since workers come and go.
    Raises DeviceError if there is none, or the scheduler is lost.
    """
    for _ in range(_ASKED):
        with loss_explained():
            known = _workers(client)
        if known:
            return known
        # dask itself sometimes requests information on 0 workers, and may return that answer
        time.sleep(LOOK)
    raise DeviceError("The cluster has no workers. Start workers and run the same command again.")


def _workers(client: Client) -> list[dict[str, Any]]:
    known = client.scheduler_info(n_workers=-1)
    if "workers" not in known:
        # the client already knows that the scheduler is gone
        raise require_distributed().comm.CommClosedError("The scheduler was lost.")
    return list(known["workers"].values())


def _threads(client: Client) -> int:
    return max(1, sum(int(worker["nthreads"]) for worker in _workers(client)))


# ---- one long job

#: Seconds between two bundles of events.
_PAUSE = 0.25
#: Kinds of events of which a bundle keeps only the newest.
_DROPPED = (Progress, Preview, Batch)
_STOP = "stop"


def watch(client: Client, task: Callable[..., Job], *args: Any) -> Job:
    """Run a job on one worker and yield its events as they arrive.

    If the worker is lost, the job restarts on another one, and a `Note` reports it. Closing the
    generator ends the job on the worker at its next event.

    `task`: a module-level function that returns a job.
    Returns: the result of the job.
    Raises HushporeError: the error of the job; DeviceError if the cluster is lost.
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
                # wait for the job itself, so that its end is noticed at once
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
    # not `get` with a timeout: the scheduler would log each timeout as an error
    if not queue.qsize():
        return None
    # safe here: the workers run code of this program, and dask itself uses pickle
    bundle: tuple[str, list[Event]] = pickle.loads(queue.get())
    return bundle


def _run(name: str, task: Callable[..., Job], args: tuple[Any, ...]) -> Any:
    """Run a job on a worker."""
    distributed = require_distributed()
    worker = distributed.get_worker()
    # not the worker's own client: it would become the dask default of the process, which may be
    # the user's
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
            # the client is gone or has cancelled the job
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


class Gpus(NamedTuple):
    """The GPUs of all workers, as used by a segmentation."""

    device: str = ""  # device name, the same on each worker; empty: CPU only
    names: tuple[str, ...] = ()  # names of the GPUs, one per worker
    slices: int | None = None  # slices that fit into the smallest GPU
    problem: str = ""  # why the CPU is used although a GPU was requested


class _Found(NamedTuple):
    name: str
    problem: str
    room: int  # bytes


@contextmanager
def _opened(device: str) -> Iterator[Gpu]:
    """Open the GPU of this worker for the duration of a ``with`` block."""
    backend = choose_backend(device)
    try:
        yield Gpu.of(backend)
    finally:
        backend.release()


def on_gpu_or_cpu(device: str, work: Callable[[Gpu | None], dict[str, Any]]) -> dict[str, Any]:
    """Run a task on the GPU of this worker; on the CPU if GPU memory runs out.

    `device`: name of the GPU; empty: CPU. `work`: the task, called with the GPU or None (CPU).
    Returns its report, with ``ran_out`` if GPU memory ran out.
    """
    if not device:
        return work(None)
    try:
        with _opened(device) as gpu:
            return work(gpu)
    except HushporeError:
        # host memory ran out, so the CPU would fail too
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return {**work(None), "ran_out": 1}


def gpus_of(client: Client, device: str, plane: int) -> Gpus:
    """Return the GPUs of all workers, if they were requested and can be used.

    `device`: device name from the user; GPUs are used only on request. `plane`: voxels per slice.
    Raises DeviceError if a worker has no GPU.
    """
    if not device.startswith("cuda"):
        return Gpus()
    with loss_explained():
        found = [*client.run(_look, device).values()]
    problem = next((each.problem for each in found if each.problem), "")
    slices = min(fitting_slices(each.room, plane) for each in found)
    if not problem and slices < 2:
        problem = "the GPU's memory does not hold the thinnest block"
    if problem:
        return Gpus(problem=f"Pores are segmented on the CPU: {problem}.")
    return Gpus(device, tuple(sorted(each.name for each in found)), slices)


def _look(device: str) -> _Found:
    """Return name and free memory of the GPU of this worker, or why it cannot be used."""
    backend = choose_backend(device)
    try:
        Gpu.of(backend)
        return _Found(backend.name, "", room_on(backend))
    except DeviceError as error:
        return _Found(backend.name, str(error), 0)
    finally:
        backend.release()
