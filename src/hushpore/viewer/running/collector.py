"""Garbage collection in the window, without the libraries.

napari collects garbage whenever a layer is removed. With PyTorch and Numba loaded this stops all
threads for 300 ms (100 ms in napari alone), nearly all of it spent on objects of libraries, which
are never garbage. Frozen objects take no time.
"""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject

from hushpore.viewer.layers.conversion import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtpy.QtWidgets import QWidget

#: New objects from which an import counts as one of libraries: a widget makes 10,000, PyTorch and
#: Numba 250,000.
MANY = 50_000

_lock = threading.Lock()
_owners = _paused = 0
_collected_before = True


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection for an import of many libraries, until the last such block ends.

    Four full collections would stop all threads for 80 to 160 ms each, 0.5 s of the 2.6 s of the
    import. The imported objects are frozen while a widget has `FrozenLibraries`.
    """
    global _paused, _collected_before  # noqa: PLW0603 - the interpreter has one collector
    with _lock:
        if not _paused:
            _collected_before = gc.isenabled()
        _paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused:
                if gc.get_count()[0] > MANY or not gc.get_freeze_count():
                    # without owners this still moves all objects to the oldest generation
                    gc.freeze()
                    if not _owners:
                        gc.unfreeze()
                if _collected_before:
                    gc.enable()


class FrozenLibraries(QObject):
    """Leaves the loaded libraries out of garbage collection as long as its widget exists.

    Layers older than the last import are left out, too. Once such a layer is removed, nothing is
    until the next import, or the layer would stay in memory.
    """

    def __init__(self, owner: QWidget, viewer: Any) -> None:
        super().__init__(owner)
        self._viewer = viewer
        _count_owners(1)
        owner.destroyed.connect(partial(_count_owners, -1))
        viewer.layers.events.removing.connect(self._layer_removing)

    def _layer_removing(self, event: Any) -> None:
        layer = unwrapped(self._viewer.layers[event.index])
        if gc.get_freeze_count() and not any(each is layer for each in gc.get_objects()):
            gc.unfreeze()


def _count_owners(change: int, *_: object) -> None:
    global _owners  # noqa: PLW0603 - the interpreter has one collector
    with _lock:
        _owners += change
        if not _owners:
            gc.unfreeze()
