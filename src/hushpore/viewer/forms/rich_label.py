"""Labels with links and warning signs in the colours of napari's theme."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from napari.utils.theme import get_theme
from qtpy.QtCore import Qt, QUrl, Signal
from qtpy.QtGui import QColor, QDesktopServices
from qtpy.QtWidgets import QApplication, QLabel, QVBoxLayout, QWidget

from hushpore.base.events import by_importance
from hushpore.base.formatting import readable_count
from hushpore.viewer.forms.docking import open_beside
from hushpore.viewer.forms.layout import Fold, fill
from hushpore.viewer.running.problem import notify_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hushpore.base.events import Note
    from hushpore.viewer.running.problem import Problem

#: Placeholders for colours of the theme.
_TEXT, _WARNING, _ERROR = "@text@", "@warning@", "@error@"

#: Link that copies the details of a problem.
COPY = "copy"

#: Link that chooses a remedy; followed by the number of its remark.
_REMEDY = "remedy "

#: Names of the widgets that crop and bin, or flatten, and the links that open them.
CROP, FLATTEN = "Crop and bin", "Flatten"

#: Advice to crop or bin, which becomes a link to that widget.
_ADVICE = re.compile(
    r"\b[Cc]rop(?:(?: it| the (?:scan|volume)),?)?(?: or bin(?: it| the (?:scan|volume))?)?"
    r"(?: to the sample)?(?=[,.: ])"
)

_FLATTEN_ADVICE = "Flatten the scan"

#: Addresses in notes, for example of dask's dashboard.
_ADDRESS = re.compile(r"https?://[^\s<]+")


#: Spaces at which a line must not break: before units, signs, separating dots and the ellipsis of a
#: link that opens a dialog.
_UNBROKEN = re.compile(r" (?=(?:[kMGT]?B|mm|µm|nm|HU|a\.u\.|[%·✓⚠…])(?!\w))")


class RichLabel(QLabel):
    """A wrapped text with links that can be copied; hidden while it is empty."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(
            wordWrap=True,
            textFormat=Qt.TextFormat.RichText,
            textInteractionFlags=Qt.TextInteractionFlag.TextBrowserInteraction,
            visible=False,
        )
        self._viewer = viewer
        self._html = ""
        self.linkActivated.connect(self._open_widget)
        viewer.events.theme.connect(self._paint)

    def say(self, text: str) -> None:
        """Show a text in HTML, which may contain results of `link` and `sign`."""
        self._html = text
        self._paint()
        self.setVisible(bool(text))

    @property
    def html(self) -> str:
        """The text as HTML, before the colours are inserted."""
        return self._html

    def _open_widget(self, target: str) -> None:
        if target in (CROP, FLATTEN):
            open_beside(self, self._viewer, target)

    def _paint(self, event: Any = None) -> None:
        theme = get_theme(self._viewer.theme)
        error = QColor(theme.error.as_hex())
        # napari's red is too dark for a sign on a dark background
        colours = {
            _TEXT: theme.text.as_hex(),
            _WARNING: theme.warning.as_hex(),
            _ERROR: (error.lighter(170) if theme.type == "dark" else error).name(),
        }
        text = self._html
        for name, colour in colours.items():
            text = text.replace(name, colour)
        self.setText(text)


def unbroken(text: str) -> str:
    """Return a text whose lines do not break between a number and its unit."""
    return _UNBROKEN.sub("\u00a0", text)


def link(target: str, text: str) -> str:
    """Return a link in the text colour, because Qt's blue is unreadable on a dark background."""
    return f'<a href="{target}" style="color: {_TEXT}">{unbroken(text)}</a>'


def advice_linked(text: str) -> str:
    """Return a text, as HTML, in which advice to crop, bin or flatten is a link.

    >>> CROP in advice_linked("Close other programs, or crop or bin the volume.")
    True
    """
    text = text.replace(_FLATTEN_ADVICE, link(FLATTEN, _FLATTEN_ADVICE))
    return _ADVICE.sub(lambda found: link(CROP, found[0]), text)


def sign(is_error: bool) -> str:
    """Return the warning sign for the start of a message."""
    return f'<b style="color: {_ERROR if is_error else _WARNING}">⚠</b>'


def plain_label(text: str = "") -> QLabel:
    """Return a wrapped line of plain text that can be copied."""
    return QLabel(
        text,
        wordWrap=True,
        textFormat=Qt.TextFormat.PlainText,
        textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse,
    )


class ResultMessage(RichLabel):
    """The message about a result or a problem; the details of a problem can be copied."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer)
        self._details = ""
        self.linkActivated.connect(self._copy_details)

    def say(self, text: str) -> None:
        """Show a text in HTML; an empty one also ends `hold_height`."""
        if not text:
            self.setMinimumHeight(0)
        super().say(text)

    def hold_height(self) -> None:
        """Do not become lower with the next texts, so that widgets below keep their place."""
        self.setMinimumHeight(self.height())

    def show_problem(self, problem: Problem) -> None:
        """Show a problem here and as a notification."""
        self._details = problem.details
        message = advice_linked(html.escape(problem.message))
        text = f"{sign(not problem.expected)} {message}"
        if not problem.expected:
            text += " " + link(COPY, "Copy details")
        self.say(text)
        notify_problem(problem)

    def _copy_details(self, target: str) -> None:
        if target == COPY:
            QApplication.clipboard().setText(self._details)


class RemarkList(QWidget):
    """The remarks of a job as a list: the most important one visible, the others folded.

    Links choose a remedy or open a web address. Hidden while there are no remarks. `reword`: turns
    names of settings in a text into those of the form.
    """

    #: Emitted with the `Remedy` whose link was clicked.
    remedy_chosen = Signal(object)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self.remarks: tuple[Note, ...] = ()
        self.reword: Callable[[str], str] = str
        self._first, self._others = RichLabel(viewer), RichLabel(viewer)
        self._fold = Fold("")
        self._fold.add(self._others)
        for label in (self._first, self._others):
            label.linkActivated.connect(self._follow)
        fill(QVBoxLayout(self), self._first, self._fold, spacing=2)
        self.show_remarks(())

    def text(self) -> str:
        """Return all remarks as HTML, the most important one first."""
        return "<br>".join(filter(None, (self._first.text(), self._others.text())))

    def show_remarks(self, remarks: Iterable[Note]) -> None:
        """Show remarks, the most important first; warnings have a sign."""
        self.remarks = by_importance(remarks)
        lines = [self._line(number, remark) for number, remark in enumerate(self.remarks)]
        count = max(len(lines) - 1, 0)
        self._first.say("".join(lines[:1]))
        self._others.say("<br>".join(lines[1:]))
        self._fold.set_title(readable_count(count, "more remark"))
        self._fold.setVisible(bool(count))
        self.setVisible(bool(lines))

    def _line(self, number: int, remark: Note) -> str:
        text = advice_linked(html.escape(self.reword(remark.message)))
        text = _ADDRESS.sub(lambda found: link(found[0], found[0]), text)
        if remark.remedy is not None:
            text += f" {link(f'{_REMEDY}{number}', remark.remedy.label)}"
        return f"{sign(False) if remark.warning else '•'} {text}"

    def _follow(self, target: str) -> None:
        if target.startswith(_REMEDY):
            self.remedy_chosen.emit(self.remarks[int(target.removeprefix(_REMEDY))].remedy)
        elif target not in (CROP, FLATTEN):
            QDesktopServices.openUrl(QUrl(target))
