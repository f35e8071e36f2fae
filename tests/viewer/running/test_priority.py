"""Threads of jobs give way to the window."""

import os
import sys
import threading

import pytest

from hushpore.viewer.running.worker import NICE, give_way


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_a_job_and_the_threads_that_it_starts_ask_for_less_of_the_processor():
    seen = []

    def own():
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def job():
        give_way()
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
