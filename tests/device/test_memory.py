"""The most memory that was in use; and how much of a device PyTorch and CuPy may take together."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from hushpore.device.clocks import HostClock
from hushpore.device.memory import PeakMemory, free_pools, lift_limits, limit_pools
from hushpore.device.timing import StageTimer


def test_the_most_memory_is_kept_after_it_was_given_back() -> None:
    peak = PeakMemory()
    before = psutil.Process().memory_info().rss
    taken = np.ones(1 << 25)
    peak.look()
    del taken
    peak.look()
    assert peak.host >= before + (1 << 27)
    assert peak.device == 0


GB = 10**9


class OnDevice:
    def __init__(self, number: int) -> None:
        assert number == 1

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


class Pool:
    def __init__(self) -> None:
        self.held, self.limit, self.freed = 2 * GB, 0, 0

    def total_bytes(self) -> int:
        return self.held

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        self.freed += 1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Of CuPy, on a GPU of 24 GB of which others hold 10, and PyTorch 3."""
    pool = Pool()
    cupy = SimpleNamespace(
        get_default_memory_pool=lambda: pool, get_default_pinned_memory_pool=lambda: pool
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9 * GB, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    return pool


def test_both_are_bounded_by_what_others_leave(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share)
    )
    limit_pools("cuda:0")
    # nine tenths of 9 + 3 + 2
    assert shares == [pytest.approx(12.6 / 24)]
    assert pool.limit == pytest.approx(9.6 * GB)
    lift_limits("cuda:0")
    assert shares[1:] == [1.0]
    assert pool.limit == 0


def test_what_both_hold_unused_is_given_back(pool: Pool) -> None:
    free_pools()
    assert pool.freed == 2


def test_without_cupy_pytorch_is_bounded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9 * GB, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    shares: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share)
    )
    limit_pools("cuda:0")
    lift_limits("cuda:0")
    assert shares == [pytest.approx(10.8 / 24), 1.0]


def test_work_that_moves_to_a_device_has_its_memory_followed(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 5 * GB)
    sys.modules["cupy"].cuda = SimpleNamespace(Device=OnDevice)
    clock = HostClock()
    clock.device = "cuda:1"
    timer = StageTimer()
    timer.run_on(clock)
    pool.held = 6 * GB
    timer.run_on(HostClock())
    pool.held = 0
    assert timer.timing().device_memory == 11 * GB
