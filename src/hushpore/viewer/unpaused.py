"""No pause of the window while a person drags, filters or brushes in it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from qtpy.QtCore import QTimer

from hushpore.viewer.priority import old_objects_left_alone

if TYPE_CHECKING:
    from qtpy.QtCore import QObject

#: Milliseconds without a change after which it is over.
REST = 1000


class Unpaused(QTimer):
    """Leaves old objects alone from a change on until there was none for a while.

    Parameters
    ----------
    parent : QObject
        What changes.
    """

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._held = ExitStack()
        self.setSingleShot(True)
        self.setInterval(REST)
        self.timeout.connect(self.end)
        # with what it was for
        self.destroyed.connect(self._held.close)

    def change(self) -> None:
        """Something changes."""
        if not self.isActive():
            self._held.enter_context(old_objects_left_alone())
        self.start()

    def end(self) -> None:
        """Nothing changes any more."""
        self.stop()
        self._held.close()
