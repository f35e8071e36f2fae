"""What went wrong, in the user's words, with the details to copy into a report."""

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


@dataclass(frozen=True)
class Problem:
    """An error as a window shows it."""

    message: str  # one sentence or two: what happened and what to do
    details: str  # traceback and versions, for a report; not shown
    # True where the cause is the input or a setting, so that nothing needs to be reported
    expected: bool
    # whether it is a file that is read if the user trusts it
    needs_consent: bool = False


def explain(error: BaseException) -> Problem:
    """Put an exception into the user's words."""
    details = "".join(traceback.format_exception(error)).strip()
    details += f"\n\nhushpore {__version__}, Python {platform.python_version()}, "
    details += platform.platform()
    expected = isinstance(error, HushporeError)
    message = str(error) if expected else _unexpected(error)
    return Problem(message, details, expected, isinstance(error, NotTrustedError))


def notify_problem(problem: Problem) -> None:
    """Say in a notification what went wrong."""
    (show_warning if problem.expected else show_error)(problem.message)


class _Offer(Notification):
    """A notification with a button, beside which napari shows where it is from."""

    @property
    def source(self) -> str:
        """What napari shows; by default the name of an object."""
        return "hushpore"


def offer_action(
    viewer: Any,
    message: str,
    text: str,
    act: Callable[..., object],
    severity: NotificationSeverity = NotificationSeverity.INFO,
) -> None:
    """Notify of something that the user can do, with a button for it.

    `text`: of the button. `severity`: of a warning all is shown, until it is answered or closed;
    of anything else what napari shows, a line for four seconds.
    """
    stays = severity >= NotificationSeverity.WARNING
    # napari counts the height of its own margins to that of the message
    said = f"{message}\n\n" if stays else message
    notification_manager.dispatch(_Offer(said, severity, actions=((text, act),)))
    window = getattr(viewer, "window", None)
    if not stays or window is None:
        return
    for dialog in window._qt_window.findChildren(QDialog):
        if hasattr(dialog, "toggle_expansion") and dialog.message.text() == said:
            dialog.DISMISS_AFTER = 0
            _show_all(dialog.message)
            # where it slides to is where it grows from
            dialog.geom_anim.setCurrentTime(dialog.geom_anim.duration())
            dialog.toggle_expansion()


def _show_all(label: QLabel) -> None:
    """Give a label the height of its text: what is more than three lines napari leaves out."""
    room, wrapped = QRect(0, 0, label.width(), 2**20), Qt.TextFlag.TextWordWrap
    text = label.text().rstrip()
    label.setMinimumHeight(label.fontMetrics().boundingRect(room, wrapped, text).height())


def _unexpected(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0].strip()
    if "out of memory" in text.lower():
        return (
            "The GPU's memory ran out. Choose CPU as the device, or crop the volume "
            "(a smaller layer needs less)."
        )
    if isinstance(error, MemoryError):
        return (
            "There is not enough memory for this volume. Close other programs, or crop or bin it."
        )
    if isinstance(error, FileNotFoundError):
        return f"The file is no longer there: {error.filename}."
    if isinstance(error, PermissionError):
        return f"Access was refused: {error.filename}."
    kind = type(error).__name__
    return f"This should not have happened: {text or kind} ({kind}). Please report it."
