"""What is said of a job in its widget: its result or what went wrong, and its notes."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_error, show_warning
from qtpy.QtWidgets import QApplication

from hushpore.viewer.forms.rich_label import RichLabel, link, sign

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hushpore.base.events import Note
    from hushpore.viewer.running.problem import Problem

#: Link that copies the details of a problem.
COPY = "copy"


class ResultMessage(RichLabel):
    """The sentence on a result, or on what went wrong, whose details can be copied."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer)
        self._details = ""
        self.linkActivated.connect(self._copy_details)

    def show_problem(self, problem: Problem) -> None:
        """Say what went wrong, here and once as a notification."""
        self._details = problem.details
        text = f"{sign(not problem.expected)} {html.escape(problem.message)}"
        if not problem.expected:
            text += " " + link(COPY, "copy details")
        self.say(text)
        (show_warning if problem.expected else show_error)(problem.message)

    def _copy_details(self, target: str) -> None:
        if target == COPY:
            QApplication.clipboard().setText(self._details)


#: Addresses in notes: dask's page of what its workers do.
_ADDRESS = re.compile(r"https?://[^\s<]+")


class NoteMessages(RichLabel):
    """The notes of a job, one a line; addresses in them are opened by the browser."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer)
        self.setOpenExternalLinks(True)

    def show_notes(self, notes: Iterable[Note]) -> None:
        """Show notes; warnings have a sign."""
        lines = [
            f"{sign(False)} {html.escape(note.message)}"
            if note.warning
            else html.escape(note.message)
            for note in notes
        ]
        text = "<br>".join(lines)
        self.say(_ADDRESS.sub(lambda found: link(found[0], found[0]), text))
