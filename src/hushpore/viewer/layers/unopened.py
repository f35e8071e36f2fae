"""Dropped files that no reader of napari takes: open them by their content, or say why not."""

from __future__ import annotations

import os
import pkgutil
import threading
from functools import partial
from typing import Any

from napari.errors import NoAvailableReaderError, ReaderPluginError
from napari.utils.notifications import notification_manager
from napari.viewer import current_viewer
from qtpy.QtCore import QTimer

from hushpore.viewer.running.problem import notices_of

#: Name of the readers that come with napari.
_BUILTIN = "napari"
#: By name, since it imports the file formats, and widgets open before them.
_READ = "hushpore.viewer.layers.reader:read_in_thread"


def explain_unopened() -> None:
    """Have hushpore read files that napari has no reader for, instead of napari's error.

    The manifest cannot do that: a pattern such as ``*.csv`` would make napari ask for the reader
    of every table of points. Errors of other plugins are shown as they are.
    """
    notification_manager.notification_ready.connect(_try_to_read)


def _try_to_read(notification: Any) -> None:
    """Read the file that an error of napari is about."""
    error = getattr(notification, "exception", None)
    if not isinstance(error, NoAvailableReaderError | ReaderPluginError):
        return
    if isinstance(error, ReaderPluginError) and error.reader_plugin != _BUILTIN:
        return
    paths, viewer = [os.fspath(path) for path in error.paths], current_viewer()
    in_main = threading.current_thread() is threading.main_thread()
    if viewer is None or len(paths) != 1 or not os.path.exists(paths[0]) or not in_main:
        return
    # later, because napari cannot show a notification within another
    QTimer.singleShot(0, partial(_read, viewer, paths[0], notification.message))


def _read(viewer: Any, path: str, message: str) -> None:
    """Close napari's notification, and read the file."""
    for box in notices_of(viewer, message):
        box.close()
    pkgutil.resolve_name(_READ)(viewer, path)
