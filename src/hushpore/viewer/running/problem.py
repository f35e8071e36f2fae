"""What went wrong, in the user's words, with the details to copy into a report."""

from __future__ import annotations

import platform
import traceback
from dataclasses import dataclass

from napari.utils.notifications import show_error, show_warning

from hushpore._version import __version__
from hushpore.base.errors import HushporeError, NotTrustedError


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
