"""Blocks are as thick as a worker's memory allows, and some for each worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore import InputError, Volume
from hushpore.base.errors import DeviceError, MemoryLimitError
from hushpore.cluster import task_runner
from hushpore.cluster.setup import PROCESS, check_settings, cut_volume, memory_for_one
from hushpore.pores.settings import PoreSettings


def workers(count: int, gigabytes: float, threads: int = 1) -> list[dict[str, Any]]:
    return [{"memory_limit": int(gigabytes * 1e9), "nthreads": threads}] * count


def volume(*shape: int) -> Volume:
    return Volume(np.broadcast_to(np.zeros(1, np.uint8), shape))


def thickness(shape: tuple[int, ...], on: list[dict[str, Any]], **values: Any) -> int:
    settings = PoreSettings(**values)
    return cut_volume(volume(*shape), settings, on, 1, None).thickness


def test_labels_are_refused_before_they_are_read() -> None:
    empty = volume(8, 8, 8)
    check_settings(empty, PoreSettings(), None)
    with pytest.raises(InputError, match="pores contains labels"):
        check_settings(empty.as_labels(empty.data, "pores"), PoreSettings(), None)


def test_what_fits_is_dealt_out_to_all_workers() -> None:
    assert thickness((256, 64, 64), workers(1, 4)) == 256
    assert thickness((256, 64, 64), workers(4, 4)) == 64
    # but not thinner than is worth it
    assert thickness((256, 64, 64), workers(100, 4)) == 16


def test_less_memory_makes_thinner_blocks() -> None:
    shape = (2000, 2000, 2000)
    thick, thin = (thickness(shape, workers(2, size)) for size in (16, 6))
    assert 2 < thin < thick < 2000
    # a worker of several threads has as many tasks at once
    assert thickness(shape, workers(2, 16, threads=2)) < thick
    assert thickness(shape, workers(2, 16), memory_budget=6) == thin
    assert thickness(shape, workers(2, 16), threshold="sauvola", local_window=255) < thick


def test_what_does_not_fit_in_the_thinnest_blocks_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match=r"at least [\d.]+ GB per worker"):
        thickness((2000, 2000, 2000), workers(2, 1.5))
    with pytest.raises(MemoryLimitError, match="fewer threads"):
        thickness((64, 64, 64), workers(2, PROCESS / 1e9))


def test_a_thickness_that_is_asked_for_is_taken() -> None:
    cut = cut_volume(volume(64, 64, 64), PoreSettings(), workers(2, 4), 1, 5)
    assert cut.thickness == 5
    assert cut.most_basins > 10_000
    with pytest.raises(InputError, match="at least 2 slices; got 1"):
        cut_volume(volume(64, 64, 64), PoreSettings(), workers(2, 4), 1, 1)


def memory_of_one(shape: tuple[int, ...], on: list[dict[str, Any]], **values: Any) -> float | None:
    return memory_for_one(volume(*shape), PoreSettings(**values), on, 1)


def test_one_task_does_what_one_worker_holds() -> None:
    available = memory_of_one((256, 64, 64), workers(1, 4))
    assert available is not None
    assert available < 4e9 - PROCESS
    # where there are more they are given blocks, but of what is of the whole
    assert memory_of_one((256, 64, 64), workers(4, 4)) is None
    assert memory_of_one((256, 64, 64), workers(4, 4), tortuosity=True) == available
    # what does not fit is cut
    assert memory_of_one((1000, 1000, 1000), workers(1, 4)) is None
    needed = r"On a cluster tortuosity \(tortuosity\), intervals"
    with pytest.raises(MemoryLimitError, match=needed):
        memory_of_one((1000, 1000, 1000), workers(1, 4), tortuosity=True, intervals=True)
    assert memory_of_one((1000, 1000, 1000), workers(1, 60), tortuosity=True) is not None
    # nor what has more voxels than can be indexed
    assert memory_of_one((1300, 1300, 1300), workers(1, 600)) is None


class Client:
    """Stands in for one that is told of its workers only when it asks again."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1, "by default dask tells of five workers only"
        return {"workers": self.answers.pop(0) if self.answers else {}}


def test_workers_that_are_not_named_for_a_moment_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_runner, "LOOK", 0)
    (worker,) = workers(1, 4)
    client: Any = Client({}, {}, {"tcp://0": worker})
    assert task_runner.workers_of(client) == [worker]
    with pytest.raises(DeviceError, match="no workers"):
        task_runner.workers_of(client)
