"""Libraries on their way into the process while the window goes on."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pint
from qtpy.QtCore import QObject, QTimer

if TYPE_CHECKING:
    from hushpore.viewer.running.worker import JobWorker

#: Milliseconds in which a widget that was opened is there and drawn.
UNTIL_DRAWN = 300

#: Libraries of PyTorch, each with what it needs; symbols of the first are those of all.
_LIBRARIES = {"libtorch_global_deps.so": True, "libtorch_python.so": False}


def start_once_drawn(owner: QObject, worker: JobWorker) -> None:
    """Start a worker that imports, once a widget that is being made is on the screen.

    Both take Python's lock in turns: with the imports beside it a widget took 1.1 s of the clock to
    open, and 0.2 s of work. Nothing is started where the widget is gone by then.
    """
    timer = QTimer(owner, singleShot=True)
    timer.timeout.connect(load_units)
    timer.timeout.connect(worker.start)
    timer.timeout.connect(timer.deleteLater)
    timer.start(UNTIL_DRAWN)


def load_units() -> None:
    """Load the units that layers have, in the thread of the window.

    pint loads them when they are first needed. Where a worker makes a layer meanwhile, either of
    the two finds them half there: a scan that is dropped then cannot be opened.
    """
    pint.Unit("pixel")


def load_torch_libraries() -> None:
    """Have the system load the libraries of PyTorch, before it is imported.

    While Python itself loads a library it keeps its lock, and the window stands still: 0.44 s for
    PyTorch. For a C function it gives the lock away, and the one that loads is such. Where they are
    elsewhere, or cannot be loaded, nothing is done: the import says why.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return
    with suppress(AttributeError, ImportError, OSError, ValueError):
        found = find_spec("torch")
        load = ctypes.CDLL(None).dlopen
        load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        if found is None or not found.origin:
            return
        for name, is_global in _LIBRARIES.items():
            place = Path(found.origin).parent / "lib" / name
            load(os.fsencode(place), os.RTLD_NOW | (os.RTLD_GLOBAL if is_global else 0))
