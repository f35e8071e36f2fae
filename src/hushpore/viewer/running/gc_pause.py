"""No pause of the window while a job runs, or a person drags, filters or brushes in it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from qtpy.QtCore import QTimer

from hushpore.viewer.running.priority import old_objects_left_alone

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
    rest : int, optional
        Milliseconds without a change after which it is over.
    """

    def __init__(self, parent: QObject, rest: int = REST) -> None:
        super().__init__(parent)
        self._held, self._holds = ExitStack(), False
        self.setSingleShot(True)
        self.setInterval(rest)
        self.timeout.connect(self.end)
        # with what it was for
        self.destroyed.connect(self._held.close)

    def change(self) -> None:
        """Something changes."""
        self.hold()
        self.start()

    def hold(self) -> None:
        """Something goes on, until a while after the next change."""
        self.stop()
        if not self._holds:
            self._holds = True
            self._held.enter_context(old_objects_left_alone())

    def end(self) -> None:
        """Nothing changes any more."""
        self.stop()
        self._holds = False
        self._held.close()
