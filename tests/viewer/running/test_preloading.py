import contextlib
import ctypes
import sys
import threading

import pint
import pytest
from qtpy.QtWidgets import QWidget

from hushpore.viewer.running import worker as preloading
from hushpore.viewer.running.worker import JobWorker, calling, start_once_drawn


def test_a_worker_starts_once_its_widget_is_there_and_not_without_it(qtbot, monkeypatch):
    monkeypatch.setattr(preloading, "UNTIL_DRAWN", 20)
    called = []
    workers = [JobWorker(lambda n=n: calling(called.append, n), "test") for n in range(2)]
    owners = [QWidget(), QWidget()]
    for owner, worker in zip(owners, workers, strict=True):
        start_once_drawn(owner, worker)
    assert not called
    owners[1].deleteLater()
    qtbot.addWidget(owners[0])
    with qtbot.waitSignal(workers[0].returned):
        pass
    qtbot.wait(30)
    assert called == [0]


def test_units_are_there_before_a_worker_does_anything_and_the_window_loads_none(
    qtbot, monkeypatch
):
    lazy = pint.LazyRegistry()
    monkeypatch.setattr(pint.application_registry, "_registry", lazy)
    worker = JobWorker(lambda: calling(pint.application_registry.get))
    with qtbot.waitSignal(worker.returned) as got:
        worker.start()
    assert type(got.args[0]) is pint.UnitRegistry
    assert type(lazy) is pint.LazyRegistry
    assert pint.Unit("mm") == pint.Unit("millimetre")


def test_a_worker_waits_for_units_that_the_window_has_begun_to_load(qtbot, monkeypatch):
    units = pint.UnitRegistry()
    monkeypatch.setattr(pint.application_registry, "_registry", units)
    monkeypatch.setattr(units, "_initialized", False)
    worker = JobWorker(lambda: calling(lambda: units._initialized))
    with qtbot.waitSignal(worker.returned) as got:
        worker.start()
        qtbot.wait(40)
        units._initialized = True
    assert got.args == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="of the loader of Linux")
def test_pytorch_finds_what_the_system_has_loaded(monkeypatch):
    loaded = []

    class Loader:
        def __call__(self, path, mode):
            loaded.append(path.decode().rpartition("/")[2])

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: type("C", (), {"dlopen": Loader()})())
    preloading.load_torch_libraries()
    assert loaded == ["libtorch_global_deps.so", "libtorch_python.so"]


@pytest.mark.skipif(sys.platform != "linux", reason="of the loader of Linux")
def test_a_second_thread_asks_the_system_for_nothing_while_a_first_loads_pytorch(monkeypatch):
    both, together = threading.Barrier(2), []

    class Loader:
        def __init__(self, name):
            with contextlib.suppress(threading.BrokenBarrierError):
                together.append(both.wait(0.05))
            self.dlopen = lambda path, mode: None

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", Loader)
    threads = [threading.Thread(target=preloading.load_torch_libraries) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == []
