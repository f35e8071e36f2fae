"""Dropped files that no reader of napari takes: open them by their content, or say why not."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.errors import NoAvailableReaderError, ReaderPluginError
from napari.utils.notifications import notification_manager
from napari.viewer import current_viewer
from qtpy.QtCore import QTimer

from hushpore.viewer.running.problem import notices_of

if TYPE_CHECKING:
    from collections.abc import Callable

#: Name of the readers that come with napari.
_BUILTIN = "napari"


class Unopened:
    """Reads files that napari has no reader for, instead of napari's error.

    The manifest cannot do that: a pattern such as ``*.csv`` would make napari ask for the reader
    of every table of points. Errors of other plugins are shown as they are.

    `read`: reads a file into a viewer, or says there why it cannot be read.
    """

    def __init__(self, read: Callable[[Any, str], None]) -> None:
        self._read = read

    def watch(self) -> None:
        """Follow napari's notifications from now on."""
        notification_manager.notification_ready.connect(self._try_to_read)

    def _try_to_read(self, notification: Any) -> None:
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
        QTimer.singleShot(0, partial(self._replace, viewer, paths[0], notification.message))

    def _replace(self, viewer: Any, path: str, message: str) -> None:
        """Close napari's notification, and read the file."""
        for box in notices_of(viewer, message):
            box.close()
        self._read(viewer, path)
