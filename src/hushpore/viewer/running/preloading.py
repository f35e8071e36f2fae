"""Libraries on their way into the process while the window goes on."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pint
from qtpy.QtCore import QObject, QTimer

#: Milliseconds in which a widget that was opened is there and drawn.
UNTIL_DRAWN = 300

_loading_units, _loading_torch = threading.Lock(), threading.Lock()

#: Libraries of PyTorch, each with what it needs; symbols of the first are those of all.
_LIBRARIES = {"libtorch_global_deps.so": True, "libtorch_python.so": False}


def start_once_drawn(owner: QObject, worker: Any) -> None:
    """Start a `JobWorker` that imports, once a widget that is being made is on the screen.

    Both take Python's lock in turns: with the imports beside it a widget took 1.1 s of the clock to
    open, and 0.2 s of work. Nothing is started where the widget, or the worker, is gone by then.
    """
    timer = QTimer(owner, singleShot=True)
    timer.timeout.connect(worker.start)
    timer.timeout.connect(timer.deleteLater)
    timer.start(UNTIL_DRAWN)


def load_units() -> None:
    """Load the units that layers have, unless they are there; in any thread but the window's.

    pint loads them when they are first needed, which would stop the window for 0.25 s. Where two
    threads need them first, either finds them half there, and a scan that is dropped then cannot be
    opened. So they are loaded apart, and put in their place when all of them are known.
    """
    untyped: Any = pint
    units = untyped.application_registry
    with _loading_units:
        if type(units.get()) is untyped.LazyRegistry:
            found = untyped.UnitRegistry(on_redefinition="raise")
            # unless the window has needed some meanwhile
            if type(units.get()) is untyped.LazyRegistry:
                units.set(found)
        while not units.get()._initialized:
            # the window loads them now
            time.sleep(0.01)


def load_torch_libraries() -> None:
    """Have the system load the libraries of PyTorch, before it is imported.

    While Python itself loads a library it keeps its lock, and the window stands still: 0.44 s for
    PyTorch. For a C function it gives the lock away, and the one that loads is such. Where they are
    elsewhere, or cannot be loaded, nothing is done: the import says why.

    Two threads load them one after the other: the system has a lock of its own, and whoever asks
    for a library meanwhile holds Python's and waits for that, which stopped the window for 0.2 s.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return
    with _loading_torch, suppress(AttributeError, ImportError, OSError, ValueError):
        found = find_spec("torch")
        load = ctypes.CDLL(None).dlopen
        load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        if found is None or not found.origin:
            return
        for name, is_global in _LIBRARIES.items():
            place = Path(found.origin).parent / "lib" / name
            load(os.fsencode(place), os.RTLD_NOW | (os.RTLD_GLOBAL if is_global else 0))
