"""Threads of jobs give way to the window."""

import gc
import os
import sys
import threading
import weakref

import pytest

from hushpore.viewer.running.priority import (
    NICE,
    SWITCH,
    leave_old_objects_alone_again,
    look_at_old_objects_too,
    old_objects_left_alone,
    window_first,
)

pytestmark = pytest.mark.usefixtures("nothing_left_alone")


def test_threads_take_turns_often_while_a_job_runs_and_as_before_after_it():
    before = sys.getswitchinterval()
    seen = []

    def job():
        with window_first():
            with window_first():
                pass
            seen.append(sys.getswitchinterval())

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert seen == [pytest.approx(min(before, SWITCH))]
    assert sys.getswitchinterval() == pytest.approx(before)


class Ring:
    """Garbage that only a search finds."""

    def __init__(self):
        self.itself = self


def ring():
    return weakref.ref(Ring())


def test_old_garbage_is_not_looked_for_while_a_job_runs_and_found_after_it():
    before, seen = ring(), []

    def job():
        with window_first():
            with window_first():
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


def test_old_objects_are_left_alone_until_the_last_who_asks_for_it_is_done():
    before = ring()
    with old_objects_left_alone():
        job = threading.Thread(target=_one_job)
        job.start()
        job.join()
        gc.collect()
        assert before() is not None
    gc.collect()
    assert before() is None


def test_when_a_layer_goes_what_it_held_is_looked_for_and_the_rest_left_alone_again():
    before = ring()
    with old_objects_left_alone():
        look_at_old_objects_too()
        gc.collect()
        assert before() is None
        leave_old_objects_alone_again()
        assert gc.get_freeze_count() > 1000
    leave_old_objects_alone_again()
    assert gc.get_freeze_count() == 0


def _one_job():
    with window_first():
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_a_job_and_the_threads_that_it_starts_ask_for_less_of_the_processor():
    seen = []

    def own():
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def job():
        with window_first():
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
