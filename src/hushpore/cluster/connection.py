"""Connection to a cluster: a scheduler of dask.distributed and its workers."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hushpore.base.errors import DeviceError, InputError, first_line, import_optional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from distributed import Client

#: Protocol prefixes of scheduler addresses.
_ADDRESSES = ("tcp://", "tls://", "ucx://", "ws://", "wss://", "inproc://")
#: Seconds to wait for the scheduler, and then for its first worker.
_PATIENCE = 10
#: Default share of the free memory for all workers on this machine together.
_SHARE = 0.8
#: Packages that must have the same version on client and workers: for communication, and so that
#: all blocks are bit-identical to those of one machine.
_SAME = ("hushpore", "distributed", "dask")


@contextmanager
def connect(where: str | Client, memory: float | None = None) -> Iterator[Client]:
    """Connect to workers, or start them, for the duration of a ``with`` block.

    Parameters
    ----------
    where : str or Client
        ``"local:4"``: four single-threaded processes on this machine, reachable only from it.
        ``"tcp://host:8786"`` or ``"tls://host:8786"``: the scheduler at this address; TLS
        certificates are taken from dask's configuration (``distributed.comm.tls``). Otherwise the
        path of a scheduler file. A client is used as given and stays open.
    memory : float, optional
        Memory limit of each process of ``local`` in GB; by default an equal share of 80 % of the
        free memory.

    Yields
    ------
    distributed.Client
        Connected, with at least one worker that can run the job. Processes that were started here
        are stopped at the end within a second, even if they are busy.

    Raises
    ------
    InputError
        If `where` has none of these forms.
    DeviceError
        If the scheduler does not answer or has no workers, or if package versions differ.
    MissingPackageError
        If dask.distributed is not installed.
    """
    if not isinstance(where, str):
        _check_versions(where)
        yield where
    elif where == "local" or where.startswith("local:"):
        with _local(*_processes(where, memory)) as client:
            yield client
    else:
        with _remote(where) as client:
            yield client


def require_distributed() -> ModuleType:
    """Import dask.distributed, an optional package for jobs on clusters.

    Raises MissingPackageError if it is not installed.
    """
    return import_optional("distributed", "Running on a cluster", "cluster")


def _processes(where: str, memory: float | None) -> tuple[int, int]:
    """Return the number of processes to start, and the memory limit of each in bytes."""
    number = where.partition(":")[2]
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"{where!r} gives no number of processes. Use for example local:2.")
    return int(number), _bytes_of_each(int(number), memory)


def _bytes_of_each(count: int, memory: float | None) -> int:
    """Return the memory limit of each process in bytes."""
    if memory is not None and memory <= 0:
        raise InputError(f"The memory of a worker must be above 0 GB; got {memory:g}.")
    if memory is None:
        return int(_SHARE * psutil.virtual_memory().available / count)
    return int(memory * 1e9)


@contextmanager
def _local(count: int, memory: int) -> Iterator[Client]:
    distributed = require_distributed()
    cluster = partial(distributed.LocalCluster, n_workers=count, processes=True)
    with _started(cluster, memory) as client:
        yield client


@contextmanager
def _started(start: Callable[..., Any], memory: int) -> Iterator[Client]:
    """Start single-threaded worker processes that only this machine can reach."""
    distributed = require_distributed()
    environment = os.environ.copy()
    # free ports, on the loopback interface only
    cluster = start(
        threads_per_worker=1,
        memory_limit=memory,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    )
    idle = False
    try:
        with distributed.Client(cluster, set_as_default=False) as client:
            try:
                yield client
            finally:
                with contextlib.suppress(Exception):
                    idle = not any(client.processing().values())
    finally:
        # dask would log the closed connections once `silence_logs` has ended
        logging.getLogger("distributed.batched").setLevel(logging.CRITICAL)
        if not idle:
            # a regular close would wait for seconds until busy workers finish
            for nanny in cluster.workers.values():
                with contextlib.suppress(psutil.Error, TypeError):
                    psutil.Process(nanny.pid).kill()
        cluster.close()
        # dask leaves its environment variables (number of threads, for example) behind, and later
        # child processes would take them for settings of the user
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


@contextmanager
def _remote(where: str) -> Iterator[Client]:
    distributed = require_distributed()
    if where.startswith(_ADDRESSES):
        place: dict[str, Any] = {"address": where}
    else:
        file = Path(where).expanduser()
        if not file.is_file():
            raise InputError(
                f"{where!r} is not a cluster: there is no scheduler file of this name. Use "
                "local:2, the address of a scheduler such as tcp://host:8786, or the "
                "path of a scheduler file."
            )
        place = {"scheduler_file": str(file)}
    if where.startswith("tls://"):
        stated = distributed.Security().get_connection_args("client")
        if stated.get("ssl_context") is None:
            raise DeviceError(
                f"{where} requires certificates, but dask's configuration names none. Set "
                "distributed.comm.tls.ca-file and distributed.comm.tls.client.cert and .key."
            )
    try:
        with warnings.catch_warnings():
            # versions are checked below
            warnings.simplefilter("ignore", distributed.versions.VersionMismatchWarning)
            client = distributed.Client(**place, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        problem = first_line(error)
        raise DeviceError(
            f"The scheduler {where} does not answer ({problem}). Check that it is running and "
            "reachable from this machine."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise DeviceError(
                f"The scheduler {where} has no workers. Start workers with: dask worker {where}"
            ) from error
        _check_versions(client)
        yield client


def _check_versions(client: Client) -> None:
    """Raise an error if workers have other versions of the required packages.

    Raises DeviceError: with the package, the versions and the worker.
    """
    found: Any = client.get_versions(packages=["hushpore"])
    own = _versions(found["client"])
    workers = {name: _versions(each) for name, each in found["workers"].items()}
    wrong = [
        f"{package} {theirs.get(package) or 'is not installed'} on {name}, {version} here"
        for name, theirs in workers.items()
        for package, version in own.items()
        if theirs.get(package) != version
    ]
    if wrong:
        raise DeviceError(
            f"The workers have other versions than this program: {'; '.join(wrong[:3])}. Install "
            "the same versions on all machines."
        )


def _versions(stated: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the versions that must agree; for Python only major and minor."""
    python = str(stated["host"]["python"]).split(".")[:2]
    packages = stated["packages"]
    return {"Python": ".".join(python), **{name: packages.get(name) for name in _SAME}}
