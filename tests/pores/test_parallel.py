from __future__ import annotations

import itertools
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushpore.pores.parallel import KernelThreads, kernel, ranges


@given(st.integers(0, 200), st.integers(1, 30))
def test_ranges_cover_everything_once_and_in_order(count: int, parts: int) -> None:
    covered = [i for first, last in ranges(count, parts) for i in range(first, last)]
    assert covered == list(range(count))


@given(st.integers(1, 200), st.integers(1, 30))
def test_ranges_differ_by_one_at_most(count: int, parts: int) -> None:
    lengths = [last - first for first, last in ranges(count, parts)]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_the_order_of_the_ranges(count: int) -> None:
    with KernelThreads(count) as threads:
        pieces = threads.over(100, lambda first, last: (first, last), smallest=7)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == 100
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    def fail(first: int, last: int) -> None:
        if first == 0:
            raise ValueError(f"{first} to {last}")

    with KernelThreads(2) as threads, pytest.raises(ValueError, match="0 to"):
        threads.over(10, fail)


def test_threads_end_with_the_block_that_they_are_for() -> None:
    with KernelThreads(3) as threads:
        at_work = threads.over(3, lambda *_: threading.current_thread())
    assert not any(each.is_alive() for each in at_work)


def test_a_kernel_that_cannot_be_kept_on_disk_is_compiled_all_the_same() -> None:
    scope: dict = {}
    exec("def double(x): return 2 * x", scope)
    assert kernel(scope["double"])(21) == 42


@pytest.mark.parametrize("count", [1, 2])
def test_threads_do_not_hold_on_to_what_they_were_given(count: int) -> None:
    values = np.zeros(8)
    kept = weakref.ref(values)
    with KernelThreads(count) as threads:
        threads.over(8, lambda each, first, last: None, values)
        del values
        # a thread lets go of it soon after the caller has what it waited for
        for _ in range(200):
            if kept() is None:
                break
            time.sleep(0.01)
        assert kept() is None
