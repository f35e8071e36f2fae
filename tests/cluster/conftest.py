"""A small cluster in this process, for all tests of work in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Two workers that are threads of this process."""
    distributed = pytest.importorskip("distributed")
    import dask

    place = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        # a computer that sleeps for minutes within a test still has its workers when it wakes
        dask.config.set({"distributed.scheduler.worker-ttl": None}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **place) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
