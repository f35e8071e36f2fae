"""Loaded libraries are left out of garbage collection; removed layers are not."""

import gc
import weakref

import numpy as np
import pytest
from qtpy.QtWidgets import QWidget

from hushpore.viewer.running import collector
from hushpore.viewer.running.collector import FrozenLibraries, gc_paused


class Ring:
    """Garbage that only a collection finds."""

    def __init__(self):
        self.itself = self


@pytest.fixture
def viewer(make_napari_viewer):
    gc.unfreeze()
    return make_napari_viewer()


def load_libraries(monkeypatch):
    """Import so many objects that they are frozen."""
    monkeypatch.setattr(collector, "MANY", 1000)
    with gc_paused():
        return [[] for _ in range(2000)]


@pytest.mark.parametrize("was_on", [True, False])
def test_nothing_is_collected_during_an_import_and_all_of_it_afterwards(was_on):
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
    assert any(each is made for each in gc.get_objects(generation=2))


def test_libraries_are_left_out_until_the_last_widget_is_destroyed(qtbot, viewer, monkeypatch):
    widgets = QWidget(), QWidget()
    for widget in widgets:
        FrozenLibraries(widget, viewer)
    load_libraries(monkeypatch)
    assert gc.get_freeze_count() > 100_000
    for widget, is_last in zip(widgets, [False, True], strict=True):
        with qtbot.waitSignal(widget.destroyed):
            widget.deleteLater()
        assert (gc.get_freeze_count() == 0) == is_last


def test_garbage_made_after_the_import_is_collected(qtbot, viewer, monkeypatch):
    widget = QWidget()
    qtbot.addWidget(widget)
    FrozenLibraries(widget, viewer)
    old = Ring()
    before = weakref.ref(old)
    load_libraries(monkeypatch)
    del old
    after = weakref.ref(Ring())
    gc.collect()
    assert before() is not None
    assert after() is None


def test_the_few_objects_of_a_widget_stay_in_the_collection(qtbot, viewer, monkeypatch):
    widget = QWidget()
    qtbot.addWidget(widget)
    FrozenLibraries(widget, viewer)
    load_libraries(monkeypatch)
    with gc_paused():
        made = Ring()
    assert any(each is made for each in gc.get_objects())


@pytest.mark.parametrize("is_old", [False, True])
def test_a_removed_layer_is_freed_even_if_it_is_older_than_the_import(
    qtbot, viewer, monkeypatch, is_old
):
    widget = QWidget()
    qtbot.addWidget(widget)
    FrozenLibraries(widget, viewer)
    if not is_old:
        load_libraries(monkeypatch)
    layer = viewer.add_image(np.zeros((4, 4)))
    if is_old:
        load_libraries(monkeypatch)
    # as a job that still uses it
    layer.metadata["job"] = [layer]
    viewer.layers.remove(layer)
    assert (gc.get_freeze_count() == 0) == is_old
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
