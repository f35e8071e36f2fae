"""Threads of jobs give way to the window."""

import gc
import os
import sys
import threading

import pytest

from hushpore.viewer.priority import NEVER, NICE, SWITCH, old_objects_left_alone, window_first


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


def test_old_objects_are_not_looked_through_for_garbage_while_a_job_runs():
    before = gc.get_threshold()
    seen = []

    def job():
        with window_first():
            with window_first():
                seen.append(gc.get_threshold())
            seen.append(gc.get_threshold())

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert seen == [(*before[:2], NEVER)] * 2
    assert gc.get_threshold() == before


def test_old_objects_are_left_alone_until_the_last_who_asks_for_it_is_done():
    before = gc.get_threshold()
    with old_objects_left_alone():
        job = threading.Thread(target=_one_job)
        job.start()
        job.join()
        assert gc.get_threshold() == (*before[:2], NEVER)
    assert gc.get_threshold() == before


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
