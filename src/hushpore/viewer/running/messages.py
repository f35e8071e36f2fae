"""The messages under Run: result or problem, hint, notes and timing, kept with their scan."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QUrl, Signal
from qtpy.QtGui import QDesktopServices
from qtpy.QtWidgets import QApplication, QVBoxLayout, QWidget

from hushpore.base.events import by_importance
from hushpore.base.formatting import readable_count
from hushpore.viewer.forms.layout import (
    CROP,
    FLATTEN,
    Fold,
    RichLabel,
    advice_linked,
    fill,
    link,
    sign,
)
from hushpore.viewer.layers.conversion import identity, scan_of
from hushpore.viewer.results.record_panel import SAVE_RESULT
from hushpore.viewer.running.problem import notify_problem
from hushpore.viewer.running.timing_panel import TimingPanel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hushpore.base.events import Note
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target

#: Page that a link opens.
RECORD = "Record"

#: Pages that show the pores of a result, and the links that open them.
RESULT_WIDGETS = {"Table": "Open results table", "Plots": "Plots"}

#: Link that shows the last preview of a cancelled run.
SHOW = "show"


@dataclass(frozen=True)
class Message:
    """A message under Run and the scan that it is about."""

    text: str  # HTML
    scan: str  # see `scan_of`
    layer: str  # `identity` of its layer
    name: str = ""  # of the layer; shown if another layer of the scan is chosen
    is_of_run: bool = True  # whether remarks of the run and timing belong to it
    remarks: tuple[Note, ...] = ()  # on the result


class RunMessages:
    """The message about the last run and a hint about the chosen scan, shown for their scan only.

    `result`, `remarks`, `timing`: the widgets. `message`: the message about the last run, or None.
    `scan`: the scan of the chosen layer.
    """

    def __init__(self, viewer: Any) -> None:
        self.result, self.remarks = ResultMessage(viewer), RemarkList(viewer)
        self.timing = TimingPanel(viewer)
        self.message: Message | None = None
        self.scan = ""
        self._of_run: tuple[Note, ...] = ()
        self._hint: Message | None = None
        self._layer = ""

    def clear(self) -> None:
        """Clear all messages except the timing."""
        self.message = self._hint = None
        self.result.say("")
        self.remarks.show_remarks(())

    def choose(self, layer: Any) -> None:
        """Set the chosen layer and its scan; None leaves the scan unchanged."""
        self._layer = "" if layer is None else identity(layer)
        self.scan = self.scan if layer is None else scan_of(layer)

    def say(self, text: str, target: Target, remarks: tuple[Note, ...] = ()) -> None:
        """Keep the message about a run, as HTML, and the remarks on its result."""
        name = html.escape(target.volume.name)
        self.message = Message(text, target.scan, target.layer, name, remarks=remarks)
        # keep the notes shown during the run
        self._of_run = self.remarks.remarks

    def say_problem(self, problem: Problem, target: Target | None) -> None:
        """Show a problem; without a target it refers to the chosen layer."""
        self.result.show_problem(problem)
        if target is not None:
            self.say(self.result.html, target)
        elif self._layer:
            self.message = Message(self.result.html, self.scan, self._layer)

    def say_here(self, text: str, scan: str, remarks: tuple[Note, ...]) -> None:
        """Replace the message about a scan, or keep one for the chosen layer."""
        if self.message is not None and self.message.scan == scan == self.scan:
            self.message = replace(self.message, text=text, remarks=remarks)
        else:
            here = self.scan, self._layer
            self.message = Message(text, *here, is_of_run=False, remarks=remarks)

    def hint(self, text: str) -> None:
        """Show a hint about the chosen scan above the message; an empty text removes it."""
        self._hint = Message(text, self.scan, self._layer) if text else None

    def of_result(
        self, outcome: Any, next_steps: Mapping[str, str], more: Sequence[str] = ()
    ) -> str:
        """Return the headline of a result as HTML, with links to the next steps below it.

        `next_steps`: widgets, and the links that open them. `more`: further links.
        """
        opened = [link(name, words) for name, words in next_steps.items()]
        links = [*opened, link("record", RECORD), link("save", SAVE_RESULT), *more]
        return f"{headline_html(outcome)}<br>{' · '.join(links)}"

    def of_cancel(self, name: str, has_preview: bool, more: str) -> str:
        """Return the message about a cancelled job as HTML.

        `name`: of the layer. `has_preview`: whether its last preview is kept, as a hidden layer.
        `more`: further links.
        """
        links = [link(SHOW, "Show last preview")] if has_preview else []
        links += [more] if more else []
        return f"Cancelled; {html.escape(name)} is unchanged. {' · '.join(links)}".rstrip()

    def show(self) -> None:
        """Show the message about the chosen scan, with the layer's name if another is chosen."""
        message = self.message
        has_message = message is not None and message.scan == self.scan and bool(self._layer)
        text, is_of_run = "", False
        if message is not None and has_message:
            text, is_of_run = message.text, bool(message.text) and message.is_of_run
            if text and message.name and message.layer != self._layer:
                text = f"{message.name}: {text}"
        if self._hint is not None and self._hint.scan == self.scan:
            text = "<br>".join(filter(None, (self._hint.text, text)))
        self.result.say(text)
        of_result = message.remarks if message is not None and has_message else ()
        self.remarks.show_remarks([*of_result, *(self._of_run if is_of_run else ())])
        self.timing.setVisible(is_of_run and self.timing.has_content)


def headline_html(outcome: Any) -> str:
    """Return the headline of a result as HTML, in bold."""
    return f"<b>{html.escape(outcome.headline)}</b>"


#: Link that copies the details of a problem.
COPY = "copy"


#: Link that chooses a remedy; followed by the number of its remark.
_REMEDY = "remedy "


#: Addresses in notes, for example of dask's dashboard.
_ADDRESS = re.compile(r"https?://[^\s<]+")


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
