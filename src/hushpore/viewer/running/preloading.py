"""Loading of libraries in threads, without blocking the window."""

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

#: Milliseconds until an opened widget is drawn.
UNTIL_DRAWN = 300

_loading_units, _loading_torch = threading.Lock(), threading.Lock()

#: Shared libraries of PyTorch, and whether to load them with global symbols.
_LIBRARIES = {"libtorch_global_deps.so": True, "libtorch_python.so": False}


def start_once_drawn(owner: QObject, worker: Any) -> None:
    """Start a `JobWorker` that imports libraries once a new widget is on the screen.

    Otherwise both compete for Python's lock, and the widget takes 1.1 s instead of 0.2 s to open.
    Nothing is started if the widget or the worker has been deleted by then.
    """
    timer = QTimer(owner, singleShot=True)
    timer.timeout.connect(worker.start)
    timer.timeout.connect(timer.deleteLater)
    timer.start(UNTIL_DRAWN)


def load_units() -> None:
    """Load pint's units, which layers need; call it in any thread except that of the window.

    pint loads the units at first use, which would block the window for 0.25 s. If two threads use
    them at the same time, both see half-loaded units, and opening a scan fails. So the units are
    loaded into a separate registry, which replaces pint's when it is complete.
    """
    untyped: Any = pint
    units = untyped.application_registry
    with _loading_units:
        if type(units.get()) is untyped.LazyRegistry:
            found = untyped.UnitRegistry(on_redefinition="raise")
            # unless the window has loaded them meanwhile
            if type(units.get()) is untyped.LazyRegistry:
                units.set(found)
        while not units.get()._initialized:
            # the window is loading them
            time.sleep(0.01)


def load_torch_libraries() -> None:
    """Load the shared libraries of PyTorch before it is imported.

    Python keeps its lock while it loads a library, which would block the window for 0.44 s. Calling
    dlopen by ctypes releases the lock. If that is not possible, nothing is done, and the import
    reports the reason.

    Only one thread loads at a time, because dlopen has its own lock: a thread that waited for it
    while holding Python's lock blocked the window for 0.2 s.
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
