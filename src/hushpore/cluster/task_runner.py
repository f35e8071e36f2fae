"""Many independent tasks on the workers of a cluster: some at a time, and losses in words."""

from __future__ import annotations

import contextlib
import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.errors import DeviceError, HushporeError, MemoryLimitError
from hushpore.base.readable import readable_count
from hushpore.cluster.connection import require_distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from distributed import Client
    from distributed import Future as DistributedFuture

    Future: TypeAlias = DistributedFuture[Any]

#: Tasks that are with the workers at a time, for each thread of theirs: one at work, one waiting.
_AHEAD = 2
#: Seconds after which one looks up from waiting, to hear of a cancel.
LOOK = 0.2
#: How often one asks for workers, with that time in between, until there is one.
_ASKED = 50


def spread(
    client: Client, task: Callable[..., Any], keys: Iterable[Any], *shared: Any
) -> Generator[Any, None, None]:
    """Run a task for each of many keys, and yield what it returns as it comes; None while it waits.

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
            with loss_in_words():
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
    """Return what a task returned, or raise what is wrong in the user's words."""
    distributed = require_distributed()
    try:
        with loss_in_words():
            return future.result(timeout=60)
    except distributed.KilledWorker as error:
        raise DeviceError(
            f"A task has cost {error.allowed_failures + 1} workers their lives, most likely "
            "because their memory ran out. What is written is kept: run the same again with more "
            "memory for each worker."
        ) from error
    except HushporeError:
        raise
    except MemoryError as error:
        raise MemoryLimitError("A worker ran out of memory; give each worker more.") from error


@contextmanager
def loss_in_words() -> Iterator[None]:
    """Say in the user's words that the scheduler is gone.

    Raises DeviceError: for any error of that kind.
    """
    distributed = require_distributed()
    gone = (distributed.CancelledError, distributed.comm.CommClosedError, TimeoutError)
    try:
        yield
    except gone as error:
        raise DeviceError(
            "The scheduler of the cluster does not answer any more. What the workers have written "
            "is kept: run the same again to go on from there."
        ) from error


def memory_of(client: Client) -> float:
    """Return the bytes that a task may take on the smallest worker; 0: there is no limit."""
    workers = workers_of(client)
    limits = [each["memory_limit"] / each["nthreads"] for each in workers if each["memory_limit"]]
    return min(limits, default=0)


def in_words(client: Client) -> str:
    """Return how many workers there are, and where."""
    with loss_in_words():
        address = client.scheduler_info()["address"]
    return f"{readable_count(len(workers_of(client)), 'worker')} of dask.distributed at {address}"


def workers_of(client: Client) -> list[dict[str, Any]]:
    """Return what is known of each worker, of which there is one at least.

    To be asked once for what has to fit together: workers come and go.
    Raises DeviceError if there is none, or the scheduler is lost.
    """
    for _ in range(_ASKED):
        with loss_in_words():
            known = _workers(client)
        if known:
            return known
        # dask itself asks for none now and then, and may give that answer
        time.sleep(LOOK)
    raise DeviceError("The cluster has no workers. Start some, and run the same again.")


def _workers(client: Client) -> list[dict[str, Any]]:
    known = client.scheduler_info(n_workers=-1)
    if "workers" not in known:
        # the client knows of the end before anything is asked of the scheduler
        raise require_distributed().comm.CommClosedError("The scheduler is gone.")
    return list(known["workers"].values())


def _threads(client: Client) -> int:
    return max(1, sum(int(worker["nthreads"]) for worker in _workers(client)))
