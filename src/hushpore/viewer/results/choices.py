"""Boxes to choose a result, the colours of pores, and the form of a field as a tab."""

from __future__ import annotations

import html
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.utils.colormaps import AVAILABLE_COLORMAPS
from qtpy.QtCore import QMimeData, Qt, Signal
from qtpy.QtGui import QColor
from qtpy.QtWidgets import (
    QApplication,
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from hushpore.io.results import as_csv
from hushpore.pores.settings import PoreSettings
from hushpore.pores.tables.measures import measure_of
from hushpore.runs.report_page import form_section
from hushpore.viewer.forms.fields import NameBox
from hushpore.viewer.forms.layout import RichLabel, fill, link
from hushpore.viewer.layers.conversion import known_of, unwrapped
from hushpore.viewer.results.pore_layer import result_of, tables_of
from hushpore.viewer.results.pore_view import COLORMAPS, is_categorical
from hushpore.viewer.results.table import cell_text
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores
    from hushpore.viewer.results.pore_view import PoreView
    from hushpore.viewer.running.problem import Problem


#: Entry that opens a dialog for a folder.
FOLDER = "folder …"
#: Entry while nothing is chosen.
NONE = "none"

#: Events of a layer that change its numbers or its name.
_SHOWN = ("features", "metadata", "name")


def phases_of(layer: Any) -> Phases | None:
    """Return the measured phases of a layer, or None."""
    found: Phases | None = known_of(layer).get("phases")
    return found


class ResultChoice(NameBox):
    """A box with the layers of pores and phases, newest first, and result folders.

    Until the user chooses, it shows the newest layers: those of pores or of phases, whichever kind
    has at least two.

    `name`: letter of the box, A or B. `age`: age rank of the initial layer; 0 is the newest.
    """

    #: Emitted when another result is chosen, or its numbers have changed.
    changed = Signal()

    def __init__(self, viewer: Any, name: str, age: int) -> None:
        super().__init__(
            sizeAdjustPolicy=self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon,
            minimumContentsLength=8,
            accessibleName=f"Result {name}",
            toolTip="Layer of pores or phases, or a result folder.",
        )
        self.name, self._age = name, age
        self._all = viewer.layers
        self._entries: list[Any] = []  # layers, folders, and None if nothing is chosen
        self._folders: list[Path] = []
        self._touched = False
        self._chosen: Any = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.activated.connect(self._choose)
        # the events of the list include those of its layers
        self._all.events.connect(self._follow)
        self._refresh()

    def value(self) -> Any:
        """Return the chosen layer or the path of the chosen folder, or None."""
        return self._chosen

    def set(self, result: Any) -> None:
        """Choose a layer, or a result folder by its path."""
        self._touched = True
        if isinstance(result, str | Path):
            result = Path(result)
            if result not in self._folders:
                self._folders.append(result)
        self._chosen = result
        self._refresh()

    def disconnect_layers(self) -> None:
        """Disconnect from the layers."""
        self._all.events.disconnect(self._follow)

    def _choose(self, position: int) -> None:
        if self.itemText(position) == FOLDER:
            folder = QFileDialog.getExistingDirectory(self, "Result folder")
            if folder:
                self.set(Path(folder))
            else:
                self._refresh()
        elif self._entries[position] is not None:
            self.set(self._entries[position])

    def _refresh(self, event: Any = None) -> None:
        newest = [unwrapped(layer) for layer in reversed(self._all)]
        known = [layer for layer in newest if tables_of(layer) or phases_of(layer)]
        alike = _of_one_kind(known)
        gone = not isinstance(self._chosen, Path) and self._chosen not in known
        before = self._chosen
        if not self._touched or gone:
            self._chosen = alike[self._age] if len(alike) > self._age else None
            self._touched = self._touched and not gone
        self._entries = [*known, *self._folders, *([None] if self._chosen is None else [])]
        self.clear()
        for entry in self._entries:
            name = NONE if entry is None else entry.name
            self.addItem(f"{name}/" if isinstance(entry, Path) else name)
        self.addItem(FOLDER)
        self.setCurrentIndex(self._entries.index(self._chosen))
        if self._chosen is not before or event is None:
            self.changed.emit()

    def _follow(self, event: Any) -> None:
        """Refresh the list, because a preview may become a result, or pores may be merged again."""
        if event.type in ("inserted", "removed", *_SHOWN):
            self._refresh(event)
        if event.type in _SHOWN and unwrapped(self._all[event.index]) is self._chosen:
            self.changed.emit()


def _of_one_kind(known: list[Any]) -> list[Any]:
    """Return the layers of pores or of phases: the kind with at least two, or the newest kind."""
    phases = [layer for layer in known if phases_of(layer)]
    pores = [layer for layer in known if layer not in phases]
    kinds = [phases, pores] if known[:1] == phases[:1] else [pores, phases]
    return next((kind for kind in kinds if len(kind) > 1), kinds[0])


#: Entry for random colours.
RANDOM = "random"


class ColourChoice(QWidget):
    """Colours the pores by a column: numbers by a colour map, categories by fixed colours.

    `by`, `map`: the column and the colour map. `legend`: the categories with colours and counts.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._view: PoreView | None = None
        self.by = ColumnBox(toolTip="Colour the pores by a column of the table.")
        self.map = compact_combo_box(
            toolTip="Colours of the column, from its lowest to its highest value.",
            accessibleName="Colour map",
        )
        self.map.addItems(COLORMAPS)
        for box in (self.by, self.map):
            box.currentIndexChanged.connect(self._colour)
        self.bar = ColourBar()
        self.bar.hide()
        self.legend = RichLabel(viewer)
        self.legend.setToolTip(
            "Meaning of the colours and number of pores; click to select these pores."
        )
        self.legend.linkActivated.connect(self._select)
        fill(QVBoxLayout(self), self.by, self.map, self.bar, self.legend, spacing=4)

    def show_view(self, view: PoreView | None) -> None:
        """List the numeric and categorical columns of a view; None leaves the list unchanged."""
        self._view = view
        if view is not None:
            table = view.tables.pores
            numbers = numeric_columns(table)
            others = (name for name in table if name not in numbers)
            kinds = [name for name in others if is_categorical(table[name])]
            self.by.list_columns([RANDOM, *numbers, *kinds], view.column or RANDOM)
            self.show_colours()

    def show_colours(self) -> None:
        """Show the chosen column and colour map, and the legend of the colours."""
        view = self._view
        assert view is not None
        kinds, column = view.categories(), view.column
        with signals_blocked(self.by), signals_blocked(self.map):
            self.by.choose(column or RANDOM)
            self.map.setCurrentText(view.colormap)
        has_map = bool(column) and not kinds
        # without a column or with categories, which have fixed colours, there is none to choose
        self.map.setVisible(has_map)
        self.bar.setVisible(has_map)
        if has_map:
            self.bar.show_map(view.colormap, view.limits(), view.tables.unit_of(column))
        self.legend.say(
            " &nbsp; ".join(
                f'<span style="color: {kind.colour[:7]}">■</span>&nbsp;'
                + link(str(number), f"{html.escape(kind.word)} {np.count_nonzero(kind.rows):,}")
                for number, kind in enumerate(kinds)
            )
        )

    def _colour(self) -> None:
        if self._view is not None:
            column = self.by.column()
            self._view.colour_by("" if column == RANDOM else column, self.map.currentText())

    def _select(self, number: str) -> None:
        """Select the pores of a category that pass the filter."""
        if self._view is not None:
            self._view.select(self._view.categories()[int(number)].rows & self._view.shown, self)


def compact_combo_box(**properties: Any) -> QComboBox:
    """Return a combo box that may be narrower than its longest entry."""
    policy = QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
    return QComboBox(**{"sizeAdjustPolicy": policy, "minimumContentsLength": 2, **properties})


class ColumnBox(NameBox):
    """A combo box of columns, with titles and meanings.

    ``**properties``: Qt properties of the box.
    """

    def __init__(self, **properties: Any) -> None:
        policy = QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        super().__init__(**{"sizeAdjustPolicy": policy, "minimumContentsLength": 2, **properties})

    def list_columns(self, names: list[str], chosen: str) -> None:
        """List columns by their names in a table, without a signal."""
        with signals_blocked(self):
            # skip an unchanged list, because this is called at each step of a drag
            if names != [self.itemData(row) for row in range(self.count())]:
                self._list(names)
            self.choose(chosen)

    def column(self) -> str:
        """Return the name of the chosen column; empty if there is none."""
        return str(self.currentData() or "")

    def choose(self, name: str) -> None:
        """Choose a column by its name."""
        self.setCurrentIndex(self.findData(name))

    def _list(self, names: list[str]) -> None:
        self.clear()
        for row, name in enumerate(names):
            self.addItem(_in_words(name), name)
            self.setItemData(row, measure_of(name).meaning, Qt.ItemDataRole.ToolTipRole)


def _in_words(name: str) -> str:
    return name if name == RANDOM else measure_of(name).heading


def numeric_columns(table: pd.DataFrame) -> list[str]:
    """Return the numeric columns of a table of pores, except those of bounding boxes."""
    kinds = zip(table, table.dtypes, strict=True)
    return [name for name, kind in kinds if kind.kind in "uif" and not name.startswith("bbox")]


class ColourBar(QWidget):
    """A colour map with the values at its ends."""

    def __init__(self) -> None:
        super().__init__()
        self._strip, self._low, self._high = QLabel(), QLabel(), QLabel()
        self._strip.setFixedHeight(8)
        ends = fill(QHBoxLayout(), self._low, None, self._high)
        fill(QVBoxLayout(self), self._strip, ends, spacing=0)
        self.setFixedHeight(self.fontMetrics().height() + 12)

    def show_map(self, name: str, limits: tuple[float, float], unit: str) -> None:
        """Show a colour map between two values."""
        shares = np.linspace(0, 1, 16)
        colours = AVAILABLE_COLORMAPS[name].map(shares)
        stops = (
            f"stop: {share} {QColor.fromRgbF(*map(float, colour)).name()}"
            for share, colour in zip(shares, colours, strict=True)
        )
        self._strip.setStyleSheet(
            f"background: qlineargradient(x1: 0, y1: 0, x2: 1, y2: 0, {', '.join(stops)})"
        )
        low, high = (cell_text(limit) for limit in limits)
        self._low.setText(f"≤ {low}")
        self._high.setText(f"≥ {high} {unit}".strip())
        self.setToolTip(f"From {low} to {high} {unit}, the range of 98 % of the pores.")


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
            data.setHtml("".join(form_section(self.name, self.table)))
            QApplication.clipboard().setMimeData(data)

    def _show(self) -> None:
        self.table = self._known.get(self.name)
        if self._result is None:
            self.page.setPlainText(NO_BASINS)
        elif self.name == "none":
            self.page.setPlainText(NO_FORM)
        elif self.table is not None:
            self.page.setHtml(_STYLE + "".join(form_section(self.name, self.table, narrow=True)))
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
