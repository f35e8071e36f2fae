"""Threads of jobs give way to the window."""

import gc
import os
import sys
import threading
import weakref
from contextlib import contextmanager

import pytest

from hushpore.viewer.running.worker import (
    NICE,
    SWITCH_INTERVAL,
    background_job,
    gc_frozen,
    gc_paused,
    unfreeze_for_this_turn,
)

pytestmark = pytest.mark.usefixtures("no_job_running")


class Ring:
    """Garbage that only a search finds."""

    def __init__(self):
        self.itself = self


def ring():
    return weakref.ref(Ring())


@contextmanager
def running_job():
    begun, end = threading.Event(), threading.Event()

    def run():
        with background_job():
            begun.set()
            end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_threads_take_turns_often_while_a_job_runs_and_as_before_after_it():
    before = sys.getswitchinterval()
    assert before > SWITCH_INTERVAL
    with running_job():
        with running_job():
            pass
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_old_garbage_is_not_looked_for_while_a_job_runs_and_found_after_it():
    before, seen = ring(), []

    def job():
        with background_job():
            with background_job():
                pass
            meanwhile = ring()
            gc.collect()
            seen.extend([before() is not None, meanwhile() is None])

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert seen == [True, True]
    gc.collect()
    assert before() is None


def test_when_a_layer_goes_what_it_held_is_looked_for_and_the_rest_left_alone_again(qtbot):
    before = ring()
    with running_job():
        unfreeze_for_this_turn()
        gc.collect()
        assert before() is None
        qtbot.waitUntil(lambda: gc.get_freeze_count() > 1000)
    unfreeze_for_this_turn()
    qtbot.wait(1)
    assert gc.get_freeze_count() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_a_job_and_the_threads_that_it_starts_ask_for_less_of_the_processor():
    seen = []

    def own():
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def job():
        with background_job():
            own()
            helper = threading.Thread(target=own)
            helper.start()
            helper.join()

    before = os.getpriority(os.PRIO_PROCESS, os.getpid())
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert seen == [min(before + NICE, 19)] * 2
    assert os.getpriority(os.PRIO_PROCESS, os.getpid()) == before


def test_what_is_small_is_removed_without_a_search_through_what_is_old():
    old = Ring()
    gone = weakref.ref(old)
    gc.collect()
    del old
    with gc_frozen():
        gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None
    assert not gc.get_freeze_count()


@pytest.mark.parametrize("was_on", [True, False])
def test_no_garbage_is_collected_within_and_the_collector_is_as_before_after_it(was_on):
    if not was_on:
        gc.disable()
    try:
        with gc_paused():
            # as another thread may do meanwhile
            with gc_paused():
                pass
            assert not gc.isenabled()
            made = [[] for _ in range(10)]
        assert gc.isenabled() == was_on
    finally:
        gc.enable()
    assert gc.get_freeze_count() == 0
    # what was made is among the old objects, unseen
    assert any(each is made for each in gc.get_objects(generation=2))
