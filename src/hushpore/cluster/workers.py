"""The workers of a cluster: how many, and what a task may take there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.cluster.task_runner import loss_in_words

if TYPE_CHECKING:
    from distributed import Client


def memory_of(client: Client) -> float:
    """Return the bytes that a task may take on the smallest worker; 0: there is no limit."""
    with loss_in_words():
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [each["memory_limit"] / each["nthreads"] for each in workers if each["memory_limit"]]
    return min(limits, default=0)


def in_words(client: Client) -> str:
    """Return how many workers there are, and where."""
    with loss_in_words():
        known = client.scheduler_info(n_workers=-1)
    count = len(known["workers"])
    return f"{count} worker{'s' * (count != 1)} of dask.distributed at {known['address']}"
