import threading

import pytest

from hushpore.base.events import Progress
from hushpore.pores import job
from hushpore.viewer.segment import grey_panel, widget
from hushpore.viewer.segment.widget import KernelWarmup


@pytest.fixture
def compiling(monkeypatch):
    """A preparation that goes on until the event is set."""
    done, closed = threading.Event(), threading.Event()

    def prepare():
        try:
            while not done.wait(0.01):
                yield Progress("preparing, first time only", 0, 0, "", 0.0)
        finally:
            closed.set()

    monkeypatch.setattr(widget, "prepare_kernels", prepare)
    yield done, closed
    done.set()


def test_it_says_so_while_kernels_are_compiled(qtbot, compiling):
    label = KernelWarmup()
    qtbot.addWidget(label)
    assert label.isHidden()
    qtbot.waitUntil(lambda: not label.isHidden(), timeout=10_000)
    assert "first time only" in label.text()
    compiling[0].set()
    qtbot.waitUntil(label.isHidden, timeout=10_000)


def test_loading_from_the_disk_says_nothing(qtbot, monkeypatch):
    gate = threading.Event()

    def prepare():
        while not gate.wait(0.01):
            yield Progress("preparing", 0, 0, "", 0.0)

    monkeypatch.setattr(widget, "prepare_kernels", prepare)
    label = KernelWarmup()
    qtbot.addWidget(label)
    qtbot.wait(2 * widget.POLL_INTERVAL)
    assert label.isHidden()
    gate.set()


def test_it_stops_with_the_widget_and_nobody_waits(qtbot, compiling):
    _, closed = compiling
    label = KernelWarmup()
    worker = label._worker
    qtbot.waitUntil(lambda: not label.isHidden(), timeout=10_000)
    label.deleteLater()
    qtbot.waitUntil(lambda: worker.is_cancelling, timeout=10_000)
    assert closed.wait(60)


def test_the_real_one_comes_to_its_end(qtbot):
    label = KernelWarmup()
    qtbot.addWidget(label)
    ends = []
    label._worker.returned.connect(lambda *_: ends.append("returned"))
    label._worker.failed.connect(ends.append)
    qtbot.waitUntil(lambda: bool(ends) or not label._worker.is_running, timeout=120_000)
    qtbot.waitUntil(lambda: not label._timer.isActive(), timeout=10_000)
    assert ends in ([], ["returned"])


def test_kernels_wait_for_the_libraries_that_other_threads_load(monkeypatch):
    loaded = []

    def prepare(kind):
        loaded.append("kernels")
        return iter(())

    monkeypatch.setattr(grey_panel, "load_torch_libraries", lambda: loaded.append("libraries"))
    monkeypatch.setattr(job, "prepare", prepare)
    assert list(grey_panel.prepare_kernels()) == []
    assert loaded == ["libraries", "kernels"]
