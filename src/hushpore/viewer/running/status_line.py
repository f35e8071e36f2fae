"""The line about a running job on the canvas, where the eyes are."""

from __future__ import annotations

from typing import Any

#: Where the line lies. Elsewhere napari moves it when it gets longer or the canvas a little higher,
#: while the canvas is drawn, and has it drawn a second time for it.
POSITION = "top_left"


class StatusLine:
    """Borrows napari's text overlay while a job runs, and gives it back as it was.

    A text that is shown already, the user's or that of another job, stays; so does what the user
    changes meanwhile.

    Parameters
    ----------
    viewer : napari.components.ViewerModel
        On whose canvas to write.
    """

    def __init__(self, viewer: Any) -> None:
        self._overlay = viewer.canvas.overlays.text
        self._before: tuple[str, str] = "", POSITION
        self._written: str | None = None

    def show(self, text: str) -> None:
        """Write the line; the canvas is drawn anew where it is another."""
        if text == self._written or not self._is_free():
            return
        if self._written is None:
            self._before = self._overlay.text, self._overlay.position
            self._overlay.position = POSITION
        self._written = self._overlay.text = text
        self._overlay.visible = True

    def remove(self) -> None:
        """Give the overlay back."""
        if self._written is not None and self._is_free():
            self._overlay.visible = False
            text, position = self._before
            self._overlay.text = text
            if self._overlay.position == POSITION:
                self._overlay.position = position

    def _is_free(self) -> bool:
        """Whether nobody else shows a text, nor has changed ours."""
        if self._written is None:
            return not self._overlay.visible
        return bool(self._overlay.visible) and self._overlay.text == self._written
