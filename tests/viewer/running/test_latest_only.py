import threading
from functools import partial

import pytest
from qtpy.QtCore import QCoreApplication, QEvent

from hushpore.base.events import Progress
from hushpore.viewer.running.worker import LatestOnlyWorker

#: Milliseconds within which anything here happens.
SOON = 10_000


@pytest.fixture
def newest(qtbot):
    newest = LatestOnlyWorker("counting")
    newest.came = []
    newest.returned.connect(lambda about, result: newest.came.append((about, result)))
    newest.failed.connect(lambda about, problem: newest.came.append((about, problem.message)))
    return newest


def give(value, gate=None):
    while gate is not None and not gate.wait(0.005):
        yield Progress("waiting", 0, 0, "", 0.0)
    return value


def wait(qtbot, newest):
    qtbot.waitUntil(lambda: not newest.is_busy, timeout=SOON)


def test_what_was_asked_for_comes_back_with_what_it_was_about(qtbot, newest):
    newest.submit(partial(give, 7), "seven")
    assert newest.is_busy
    wait(qtbot, newest)
    assert newest.came == [("seven", 7)]


def test_of_many_the_one_that_runs_and_the_last_are_done(qtbot, newest):
    gate = threading.Event()
    newest.submit(partial(give, 0, gate), 0)
    for number in range(1, 20):
        newest.submit(partial(give, number), number)
    gate.set()
    wait(qtbot, newest)
    assert newest.came == [(0, 0), (19, 19)]


def test_what_is_dropped_never_comes_and_the_next_does(qtbot, newest):
    newest.submit(partial(give, 1, threading.Event()), "dropped")
    newest.cancel()
    newest.submit(partial(give, 2), "kept")
    wait(qtbot, newest)
    assert newest.came == [("kept", 2)]


def test_what_goes_wrong_is_told_and_the_next_is_done(qtbot, newest):
    def fail():
        yield Progress("failing", 0, 0, "", 0.0)
        raise ValueError("It fell over.")

    newest.submit(fail, "first")
    newest.submit(partial(give, 2), "second")
    wait(qtbot, newest)
    assert "It fell over." in newest.came[0][1]
    assert newest.came[1] == ("second", 2)


def test_an_end_that_arrives_after_the_owner_is_destroyed_is_dropped(qtbot, newest):
    gate = threading.Event()
    newest.submit(partial(give, 1, gate))
    qtbot.waitUntil(lambda: bool(newest._running), timeout=SOON)
    (worker,) = newest._running
    gate.set()
    # its end waits in the event loop now
    assert worker.wait(60)
    newest.deleteLater()
    QCoreApplication.sendPostedEvents(newest, QEvent.Type.DeferredDelete)
    qtbot.wait(50)
    assert newest.came == []
