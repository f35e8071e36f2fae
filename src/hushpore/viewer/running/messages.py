"""What is said under Run: the result or the problem, hints, notes and times, beside their scan."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.viewer.forms.rich_label import NoteMessages, ResultMessage, link
from hushpore.viewer.layers.lineage import identity, scan_of
from hushpore.viewer.results.saving import SAVE_RESULT
from hushpore.viewer.running.timing_panel import TimingPanel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.events import Note
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target

#: Names of widgets that links open: with the record of a layer, and with the tables of pores.
PROVENANCE, RESULTS = "How it was made", "Results"

#: Link: to show what a cancelled run has left.
SHOW = "show"

#: Link: to run again with settings that a result offers; its number stands behind.
OFFER = "offer "


@dataclass(frozen=True)
class Message:
    """What is said under Run, and of which scan."""

    text: str  # HTML
    scan: str  # see `scan_of`
    layer: str  # the layer that it is about; see `identity`
    name: str = ""  # of that layer, to be said where another layer of the scan is chosen
    is_of_run: bool = True  # whether notes and times are of it, too


class RunMessages:
    """The message on the last run, and a hint on the chosen scan, each shown with its scan alone.

    `result`, `notes`, `timing`: widgets that show them. `said`: the message on the last run; None
    where there is none. `scan`: the scan of the chosen layer. `offers`: what a result offers.
    """

    def __init__(self, viewer: Any) -> None:
        self.result, self.notes = ResultMessage(viewer), NoteMessages(viewer)
        self.timing = TimingPanel(viewer)
        self.said: Message | None = None
        self.scan = ""
        self.offers: Sequence[Note] = ()
        self._hint: Message | None = None
        self._layer = ""

    def clear(self) -> None:
        """Take back all that is said but times."""
        self.said = self._hint = None
        self.result.say("")
        self.notes.show_notes(())

    def choose(self, layer: Any) -> None:
        """Take in which layer is chosen; without one the scan stays."""
        self._layer = "" if layer is None else identity(layer)
        self.scan = self.scan if layer is None else scan_of(layer)

    def say(self, text: str, target: Target) -> None:
        """Say what a run came to, as HTML."""
        self.said = Message(text, target.scan, target.layer, html.escape(target.volume.name))

    def say_problem(self, problem: Problem, target: Target | None) -> None:
        """Say what went wrong; without a target it is about the chosen layer."""
        self.result.show_problem(problem)
        if target is not None:
            self.say(self.result.said, target)
        elif self._layer:
            self.said = Message(self.result.said, self.scan, self._layer)

    def say_here(self, text: str, scan: str) -> None:
        """Say something else of the result of a scan, beside the chosen layer."""
        if self.said is not None and self.said.scan == scan == self.scan:
            self.said = Message(text, scan, self.said.layer, self.said.name, self.said.is_of_run)
        else:
            self.said = Message(text, self.scan, self._layer, is_of_run=False)

    def hint(self, text: str) -> None:
        """Say something of the chosen scan above the rest; an empty text takes that back."""
        self._hint = Message(text, self.scan, self._layer) if text else None

    def with_offers(self, outcome: Any) -> str:
        """Return the summary of a result as HTML, with links to what it offers."""
        self.offers = [note for note in outcome.remarks if note.remedy is not None]
        text = f"<b>{html.escape(outcome.headline)}</b>"
        for number, note in enumerate(self.offers):
            label = "" if note.remedy is None else note.remedy.label
            text += f"<br>{html.escape(note.message)} {link(f'{OFFER}{number}', label)}"
        return text

    def of_result(self, outcome: Any, early: bool, next_step: tuple[str, str] | None) -> str:
        """Return what is said of a finished job as HTML, with links to what can be done next.

        `early`: whether it was finished early. `next_step`: a widget, and the link that opens it.
        """
        text = ("Finished early. " if early else "") + self.with_offers(outcome)
        if next_step is not None:
            text += ". " + link("next", next_step[1])
        return f"{text} · {link('record', PROVENANCE)} · {link('save', SAVE_RESULT)}"

    def of_cancel(self, name: str, kept: Sequence[str]) -> str:
        """Return what is said of a cancelled job as HTML.

        `name`: of the layer. `kept`: names of the layers that it has left.
        """
        if not kept:
            return f"Cancelled. There was nothing to keep yet; {html.escape(name)} is unchanged."
        return (
            f"Cancelled. {html.escape(name)} is unchanged; what was done is kept, hidden under "
            f"it, as {html.escape(', '.join(kept))} ({link(SHOW, 'show')})."
        )

    def show(self) -> None:
        """Show what is said of the chosen scan, with the layer's name if another one is chosen."""
        said = self.said
        if said is None or said.scan != self.scan or not self._layer:
            text, is_of_run = "", False
        else:
            text, is_of_run = said.text, bool(said.text) and said.is_of_run
            if text and said.name and said.layer != self._layer:
                text = f"{said.name}: {text}"
        if self._hint is not None and self._hint.scan == self.scan:
            text = "<br>".join(filter(None, (self._hint.text, text)))
        self.result.say(text)
        for shown in (self.notes, self.timing):
            shown.setVisible(is_of_run and shown.has_content)
