"""Threads of jobs give way to the window."""

import os
import sys
import threading
from contextlib import contextmanager

import pytest

from hushpore.viewer.running.worker import (
    NICE,
    SWITCH_INTERVAL,
    background_job,
)

pytestmark = pytest.mark.usefixtures("no_job_running")


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
