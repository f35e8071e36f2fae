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
    SWITCH,
    background_job,
    freeze_again,
    old_objects_kept,
    thaw,
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
    assert before > SWITCH
    with running_job():
        with running_job():
            pass
        assert sys.getswitchinterval() == pytest.approx(SWITCH)
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


def test_when_a_layer_goes_what_it_held_is_looked_for_and_the_rest_left_alone_again():
    before = ring()
    with running_job():
        thaw()
        gc.collect()
        assert before() is None
        freeze_again()
        assert gc.get_freeze_count() > 1000
    freeze_again()
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
    with old_objects_kept():
        gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None
    assert not gc.get_freeze_count()
