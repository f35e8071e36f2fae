"""The form of a field as a tab beside the tables of a result."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QMimeData, Signal
from qtpy.QtWidgets import (
    QApplication,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from hushpore.base.safe_text import as_csv
from hushpore.pores.settings import PoreSettings
from hushpore.runs.report_page import form_section
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.layers.conversion import known_of
from hushpore.viewer.results.pore_layer import result_of
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.pores.result import Pores
    from hushpore.viewer.results.pore_view import PoreView
    from hushpore.viewer.running.problem import Problem

NO_FORM = "Choose the form of your field above."
NO_BASINS = (
    "A form needs the pores as they were segmented. Segment the scan, or drop a result folder that "
    "was saved with its basins."
)

_STYLE = (
    "<style>td, th { padding: 1px 10px 1px 0px; } th { text-align: left; } "
    ".whole { white-space: nowrap; }</style>"
)


class FormTab(QWidget):
    """Shows the results of a pore layer in the symbols, units and order of a field."""

    #: Emitted when another table is shown, or none.
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.table: pd.DataFrame | None = None
        self._result: Pores | None = None
        self._known: dict[str, pd.DataFrame] = {}  # forms of the result
        self._worker = LatestOnlyWorker("computing a form")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        option = next(each for each in PoreSettings.options() if each.name == "report_form")
        self.choice = QComboBox(
            accessibleName="Report form",
            toolTip="Show the results in the symbols, units and order of a field. Values that the "
            "scan cannot give are listed with the reason.",
        )
        for value, label in zip(option.choices, option.choice_labels, strict=True):
            self.choice.addItem(label, value)
        self.choice.currentIndexChanged.connect(self._show)
        self.page = QTextBrowser(accessibleName="Form", openExternalLinks=True)
        label = QLabel("&Form")
        label.setBuddy(self.choice)
        line = fill(QHBoxLayout(), label, self.choice)
        line.addStretch(1)
        fill(QVBoxLayout(self), line, self.page, margin=2, spacing=2, wide=self.page)

    @property
    def name(self) -> str:
        """The chosen form, as the setting ``report_form`` names it."""
        return str(self.choice.currentData())

    def show_view(self, view: PoreView | None) -> None:
        """Show the form of another result: the chosen one, or else that of its settings."""
        result = None if view is None else result_of(view.layer)
        record = {} if view is None else known_of(view.layer).get("provenance") or {}
        if result is self._result and result is not None:
            return
        self._worker.cancel()
        self._result, self._known = result, {}
        if self.name == "none":
            wanted = record.get("settings", {}).get("report_form", "none")
            with signals_blocked(self.choice):
                self.choice.setCurrentIndex(self.choice.findData(wanted))
        self._show()

    def showEvent(self, event: Any) -> None:  # noqa: N802
        """Compute the form when the tab is opened."""
        super().showEvent(event)
        self._show()

    def copy(self) -> None:
        """Copy the form for a spreadsheet, and for a document with its symbols."""
        if self.table is not None:
            data = QMimeData()
            data.setText(as_csv(self.table, separator="\t") or "")
            data.setHtml(self.page.toHtml())
            QApplication.clipboard().setMimeData(data)

    def _show(self) -> None:
        self.table = self._known.get(self.name)
        if self._result is None:
            self.page.setPlainText(NO_BASINS)
        elif self.name == "none":
            self.page.setPlainText(NO_FORM)
        elif self.table is not None:
            self.page.setHtml(_STYLE + "".join(form_section(self.name, self.table)))
        else:
            self.page.setPlainText("Computing the form …")
            # flow through a large network takes seconds
            if self.isVisible():
                job = partial(calling, self._result.form, self.name)
                self._worker.submit(job, (self._result, self.name))
        self.changed.emit()

    def _returned(self, tag: tuple[Pores, str], table: pd.DataFrame) -> None:
        result, name = tag
        if result is self._result:
            self._known[name] = table
            self._show()

    def _failed(self, tag: tuple[Pores, str], problem: Problem) -> None:
        if tag == (self._result, self.name):
            self.page.setPlainText(problem.message)
