"""The line about a running job on the canvas, where the eyes are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds between two changes: each draws the whole canvas anew, which takes a computer without a
#: graphics card tens of milliseconds.
EVERY = 2.0


class StatusLine:
    """Borrows napari's text overlay while a job runs, and gives it back as it was.

    A text that is shown already, the user's or that of another job, stays; so does what the user
    changes meanwhile.

    Parameters
    ----------
    viewer : napari.components.ViewerModel
        On whose canvas to write.
    clock : callable, optional
        Seconds; for tests.
    """

    def __init__(self, viewer: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._overlay = viewer.canvas.overlays.text
        self._clock = clock
        self._before = ""
        self._written: str | None = None
        self._next = 0.0

    def show(self, text: str) -> None:
        """Write the line, unless it was written a moment ago."""
        now = self._clock()
        if now < self._next or text == self._written or not self._is_free():
            return
        if self._written is None:
            self._before = self._overlay.text
        self._next = now + EVERY
        self._written = self._overlay.text = text
        self._overlay.visible = True

    def remove(self) -> None:
        """Give the overlay back."""
        if self._written is not None and self._is_free():
            self._overlay.visible = False
            self._overlay.text = self._before

    def _is_free(self) -> bool:
        """Whether nobody else shows a text, nor has changed ours."""
        if self._written is None:
            return not self._overlay.visible
        return bool(self._overlay.visible) and self._overlay.text == self._written
