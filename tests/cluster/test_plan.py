"""Blocks are as thick as a worker's memory allows, and some for each worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore import InputError, Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.cluster.plan import PROCESS, cut_volume
from hushpore.pores.settings import PoreSettings


class Workers:
    """Stands in for a client: so many workers of so much memory."""

    def __init__(self, count: int, gigabytes: float, threads: int = 1) -> None:
        worker = {"memory_limit": int(gigabytes * 1e9), "nthreads": threads}
        self.workers = {f"tcp://{number}": worker for number in range(count)}

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1, "by default dask tells of five workers only"
        return {"workers": self.workers}


def volume(*shape: int) -> Volume:
    return Volume(np.broadcast_to(np.zeros(1, np.uint8), shape))


def thickness(shape: tuple[int, ...], workers: Workers, **values: Any) -> int:
    settings = PoreSettings(**values)
    return cut_volume(volume(*shape), settings, workers, 1, None).thickness  # type: ignore[arg-type]


def test_what_fits_is_dealt_out_to_all_workers() -> None:
    assert thickness((256, 64, 64), Workers(1, 4)) == 256
    assert thickness((256, 64, 64), Workers(4, 4)) == 64
    # but not thinner than is worth it
    assert thickness((256, 64, 64), Workers(100, 4)) == 16


def test_less_memory_makes_thinner_blocks() -> None:
    shape = (2000, 2000, 2000)
    thick, thin = (thickness(shape, Workers(2, size)) for size in (16, 6))
    assert 2 < thin < thick < 2000
    # a worker of several threads has as many tasks at once
    assert thickness(shape, Workers(2, 16, threads=2)) < thick
    assert thickness(shape, Workers(2, 16), memory_budget=6) == thin
    assert thickness(shape, Workers(2, 16), threshold="sauvola", window=255) < thick


def test_what_does_not_fit_in_the_thinnest_blocks_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match=r"workers of at least [\d.]+ GB"):
        thickness((2000, 2000, 2000), Workers(2, 1.5))
    with pytest.raises(MemoryLimitError, match="fewer threads"):
        thickness((64, 64, 64), Workers(2, PROCESS / 1e9))


def test_a_thickness_that_is_asked_for_is_taken() -> None:
    workers: Any = Workers(2, 4)
    cut = cut_volume(volume(64, 64, 64), PoreSettings(), workers, 1, 5)
    assert cut.thickness == 5
    assert cut.most_basins > 10_000
    with pytest.raises(InputError, match="2 slices thick at least; got 1"):
        cut_volume(volume(64, 64, 64), PoreSettings(), workers, 1, 1)
