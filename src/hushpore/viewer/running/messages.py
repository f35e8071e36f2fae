"""The messages under Run: result or problem, hint, notes and timing, kept with their scan."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hushpore.viewer.forms.rich_label import RemarkList, ResultMessage, link
from hushpore.viewer.layers.conversion import identity, scan_of
from hushpore.viewer.results.record_panel import SAVE_RESULT
from hushpore.viewer.running.timing_panel import TimingPanel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.events import Note
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target

#: Name of the widget that a link opens.
RECORD = "Record"

#: Widgets that show the pores of a result, and the links that open them.
RESULT_WIDGETS = {"Results": "Open results table", "Plots": "Plots"}

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
