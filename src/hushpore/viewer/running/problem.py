"""Problems: an error as a message for the user, with details to copy into a report."""

from __future__ import annotations

import platform
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import (
    Notification,
    NotificationSeverity,
    notification_manager,
    show_error,
    show_warning,
)
from qtpy.QtCore import QRect, Qt
from qtpy.QtWidgets import QDialog, QLabel

from hushpore._version import __version__
from hushpore.base.errors import HushporeError, NotTrustedError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Milliseconds for which a note is shown: at least, and for each character to be read.
_SHORTEST, _PER_CHARACTER = 4000, 50


@dataclass(frozen=True)
class Problem:
    """An error with its message for the user."""

    message: str  # what happened and what to do, in one or two sentences
    details: str  # traceback and versions, for a report; not shown
    expected: bool  # whether input or settings are the cause, so that there is nothing to report
    # whether the file can be read after all if the user trusts it
    needs_consent: bool = False


def explain(error: BaseException) -> Problem:
    """Return the message for the user about an exception."""
    details = "".join(traceback.format_exception(error)).strip()
    details += f"\n\nhushpore {__version__}, Python {platform.python_version()}, "
    details += platform.platform()
    expected = isinstance(error, HushporeError)
    message = str(error) if expected else _unexpected(error)
    return Problem(message, details, expected, isinstance(error, NotTrustedError))


def notify_problem(problem: Problem) -> None:
    """Show a problem as a notification of napari."""
    (show_warning if problem.expected else show_error)(problem.message)


class _Offer(Notification):
    """A notification with a button; napari shows its source beside it."""

    @property
    def source(self) -> str:
        """The source that napari shows; by default the name of a Python object."""
        return "hushpore"


def notify_in_full(viewer: Any, problem: Problem) -> None:
    """Show a problem as a notification that is shown in full until it is closed."""
    severity = NotificationSeverity.WARNING if problem.expected else NotificationSeverity.ERROR
    _notify(viewer, problem.message, severity)


def offer_action(
    viewer: Any,
    message: str,
    text: str,
    act: Callable[..., object],
    severity: NotificationSeverity = NotificationSeverity.INFO,
) -> None:
    """Show a notification in full, with a button for an action.

    `text`: text of the button. `severity`: a warning is shown until it is answered or closed, a
    note as long as reading it takes.
    """
    _notify(viewer, message, severity, ((text, act),))


def notify_note(viewer: Any, message: str) -> None:
    """Show a note in full, as long as reading it takes; napari would show one line of it."""
    _notify(viewer, message, NotificationSeverity.INFO)


def _notify(
    viewer: Any,
    message: str,
    severity: NotificationSeverity,
    actions: tuple[tuple[str, Callable[..., object]], ...] = (),
) -> None:
    stays = severity >= NotificationSeverity.WARNING
    notification_manager.dispatch(_Offer(message, severity, actions=actions))
    for dialog in notices_of(viewer, message):
        # the empty lines make up for margins that napari leaves out of the height of the message
        dialog.message.setText(f"{message}\n\n")
        dialog.DISMISS_AFTER = 0 if stays else _SHORTEST + _PER_CHARACTER * len(message)
        _show_all(dialog.message)
        # finish the animation before the dialog grows
        dialog.geom_anim.setCurrentTime(dialog.geom_anim.duration())
        # napari's animation ends where the corner was before the sliders of a new layer appeared
        dialog.geom_anim.finished.connect(dialog.move_to_bottom_right)
        dialog.toggle_expansion()
        # expanding stops the timer
        dialog.timer.setInterval(dialog.DISMISS_AFTER)
        dialog.timer_start()


def notices_of(viewer: Any, message: str) -> list[Any]:
    """Return the boxes in the window of a viewer in which napari shows a notification."""
    window = getattr(viewer, "window", None)
    if window is None:
        return []
    boxes = window.main_menu.window().findChildren(QDialog)
    boxes = [box for box in boxes if hasattr(box, "toggle_expansion")]
    return [box for box in boxes if box.message.text() == message]


def _show_all(label: QLabel) -> None:
    """Give a label the height of its text: napari cuts it off after three lines."""
    room, wrapped = QRect(0, 0, label.width(), 2**20), Qt.TextFlag.TextWordWrap
    text = label.text().rstrip()
    label.setMinimumHeight(label.fontMetrics().boundingRect(room, wrapped, text).height())


def _unexpected(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0].strip()
    if "out of memory" in text.lower():
        return "The GPU ran out of memory. Choose CPU as the device, or crop or bin the volume."
    if isinstance(error, MemoryError):
        return (
            "There is not enough memory for this volume. Close other programs, or crop or bin the "
            "volume."
        )
    if isinstance(error, FileNotFoundError):
        return f"The file no longer exists: {error.filename}."
    if isinstance(error, PermissionError):
        return f"No permission to access {error.filename}."
    kind = type(error).__name__
    return f"Unexpected error: {text or kind} ({kind}). Please report it (Copy details)."
