"""The panel with the record of the active layer."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, Qt
from qtpy.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from hushpore.jobs import JOBS
from hushpore.pores.tables.totals import total_of
from hushpore.viewer.forms.docking import SharesSide
from hushpore.viewer.forms.layer_choice import is_preview
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.layers.conversion import METADATA_KEY, unwrapped
from hushpore.viewer.results.saving import ask_and_save, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Parts that are unfolded at first.
_OPEN = ("result", "settings", "notes", "input")

#: Titles for parts of a record with JSON names that are hard to understand.
_TITLES = {
    "hushpore": "hushpore version",
    "blake2b": "fingerprint",
    "timings": "seconds by stage",
    "platform": "operating system",
}


class RecordWidget(QWidget):
    """Shows the record of the active layer: settings, input, device, versions, times and notes."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        SharesSide(self, "Record")
        self._layers = napari_viewer.layers
        self._title = QLabel(textFormat=Qt.TextFormat.RichText, wordWrap=True)
        self._why = plain_label()
        # a text too long for the dock is shown in full in its tooltip
        self.tree = QTreeWidget(
            columnCount=2, headerHidden=True, accessibleName="Record of the layer",
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
        )  # fmt: skip
        self._copy = QPushButton(
            "Copy", toolTip="Copy the record as JSON.", clicked=self._to_clipboard
        )
        self._save = QPushButton(
            "Save …", toolTip="Save the record as JSON.", clicked=self._to_file
        )
        buttons = fill(QHBoxLayout(), self._copy, self._save)
        column = fill(
            QVBoxLayout(self), self._title, self._why, self.tree, buttons, margin=6, wide=self.tree
        )
        column.addStretch(0)
        self.setMinimumWidth(300)
        self.tree.viewport().installEventFilter(self)
        self._layers.selection.events.active.connect(self._show)
        self._layers.events.connect(self._follow)
        self._show()

    def provenance(self) -> dict[str, Any]:
        """Return the displayed record as JSON values; empty if there is none."""
        return {} if self._layer is None else provenance_of(self._layer)

    def _follow(self, event: Any) -> None:
        # a preview can become a result without leaving the list
        is_shown = event.type in ("metadata", "name")
        if is_shown and unwrapped(self._layers[event.index]) is unwrapped(self._layer):
            self._show()

    def _show(self, event: Any = None) -> None:
        self._layer = self._layers.selection.active
        provenance = self.provenance()
        self._title.setText("" if self._layer is None else _heading(self._layer.name, provenance))
        self._why.setText("" if provenance else _why_no_record(self._layer))
        self._why.setVisible(not provenance)
        self.tree.clear()
        job = str(provenance.get("job"))
        for title, value in provenance.items():
            item = _item(title, _in_words(job, title, value))
            self.tree.addTopLevelItem(item)
            item.setExpanded(title in _OPEN)
        self._share_width()
        self.tree.setVisible(bool(provenance))
        for button in (self._copy, self._save):
            button.setEnabled(bool(provenance))

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        """Divide the width again when it has changed."""
        if event.type() == QEvent.Type.Resize:
            self._share_width()
        return False

    def _share_width(self) -> None:
        """Give the names at most half of the width, so that the values can be read."""
        self.tree.resizeColumnToContents(0)
        most = self.tree.viewport().width() // 2
        if self.tree.columnWidth(0) > most:
            self.tree.setColumnWidth(0, most)

    def _to_clipboard(self) -> None:
        QApplication.clipboard().setText(to_json(self.provenance()))

    def _to_file(self) -> None:
        provenance = self.provenance()
        ask_and_save(self, "Save record", f"{self._layer.name} record", lambda: provenance)


def provenance_of(layer: Any) -> dict[str, Any]:
    """Return the record of a layer, from the job that made it or from its file.

    Empty for layers of other programs and for previews.
    """
    known = layer.metadata.get(METADATA_KEY)
    if not isinstance(known, dict) or is_preview(layer):
        return {}
    made = known.get("provenance")
    if isinstance(made, dict):
        # the most important parts first
        first = {name: made[name] for name in ("job", "date", "result", "settings") if name in made}
        return {**first, **made}
    return {name: known[name] for name in ("source", "notes", "metadata") if known.get(name)}


def _heading(name: str, provenance: Mapping[str, Any]) -> str:
    text = f"<b>{html.escape(name)}</b>"
    job = provenance.get("job")
    if isinstance(job, str) and job in JOBS:
        return f"{text}: result of <b>{html.escape(JOBS[job].title)}</b>"
    return f"{text}: read from a file" if provenance else text


def _why_no_record(layer: Any) -> str:
    if layer is None:
        return "Select one layer in the list to see its record."
    if is_preview(layer):
        return "This is a preview; the record is made with the result."
    return "This layer was not made by hushpore and has no record."


def _in_words(job: str, title: str, value: Any) -> Any:
    """Return a part of a record with labels and units as in the window, if available."""
    match title:
        case "job":
            return JOBS[job].title if job in JOBS else value
        case "date":
            # 2026-01-02T03:04:05+00:00
            return str(value).replace("T", " ")
        case "settings":
            return _as_in_the_form(job, value)
        case "result" if isinstance(value, dict):
            return _as_in_tables(value)
    return value


def _as_in_tables(result: dict[str, Any]) -> dict[str, Any]:
    """Rename totals as in the report and the comparison, and add their units."""
    shown, unit = {}, str(result.get("unit", "pixel"))
    for name, value in result.items():
        total = total_of(name)
        if total is None or not isinstance(value, int | float):
            shown[name] = f"{value:,}" if type(value) is int else value
        else:
            shown[total.phrase] = total.in_words(value, unit)
    return shown


def _as_in_the_form(job: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Rename settings as in the form of the job, and add their units."""
    if job not in JOBS:
        return settings
    options = {opt.name: opt for opt in JOBS[job].settings.options()}
    shown = {}
    for name, value in settings.items():
        opt = options.get(name)
        if opt is None:
            shown[name] = value
        elif isinstance(value, str):
            shown[opt.label.lower()] = opt.in_words(value)
        else:
            unit = f" {opt.unit}" if opt.unit and value is not None else ""
            shown[opt.label.lower()] = f"{_words(value)}{unit}" if unit else value
    return shown


def _item(title: str, value: Any) -> QTreeWidgetItem:
    item = QTreeWidgetItem([_TITLES.get(title, title.replace("_", " ")), ""])
    item.setToolTip(0, item.text(0))
    if isinstance(value, list | tuple) and any(
        isinstance(each, str | dict | list) for each in value
    ):
        value = {str(number): each for number, each in enumerate(value, 1)}
    if isinstance(value, dict) and value:
        item.addChildren([_item(name, part) for name, part in value.items()])
    else:
        item.setText(1, _words(value))
        item.setToolTip(1, _words(value))
    return item


def _words(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return " x ".join(_words(part) for part in value) or "none"
        case dict():
            return "none"
    return str(value)
