"""The list of scans of a batch, with name, state, result and the numbers of the result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import QHeaderView, QTreeWidget, QTreeWidgetItem

from hushpore.base.formatting import readable_number
from hushpore.io.input_limits import CONSENT
from hushpore.runs.batch_workers import names_of
from hushpore.runs.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from hushpore.runs.batch_workers import State

#: The first columns; the numbers of the results follow, and are shown before the result.
NAME, STATE, RESULT = range(3)

_TITLES = ("Scan", "State", "Result")
#: Advice on extremely compressed files.
_ALLOW = Reading.as_in_a_form("If you trust its source, set trust=True.")


class ScanList(QTreeWidget):
    """The list of scans without duplicates, named as their results."""

    #: Emitted when scans were added or removed.
    changed = Signal()
    #: Emitted with the row of a scan that the user opens by a double click or Enter.
    wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.is_fixed = False
        self.setHeaderLabels(_TITLES)
        self.setRootIsDecorated(False)
        self.setSelectionMode(QTreeWidget.SelectionMode.ExtendedSelection)
        self.header().setSectionResizeMode(STATE, QHeaderView.ResizeMode.ResizeToContents)
        self.header().setSectionsClickable(True)
        self.header().sectionClicked.connect(self._sort)
        self._sorted_by, self._is_ascending = -1, True
        self.setToolTip(
            "Double-click a finished scan to open it with its result. Click a title to sort."
        )
        self.setAccessibleName("Scans")
        self.itemDoubleClicked.connect(self._want)

    def sizeHint(self) -> QSize:  # noqa: N802
        """Return eight lines: the list takes the space that the form leaves."""
        return QSize(super().sizeHint().width(), 8 * self.fontMetrics().lineSpacing())

    def value(self) -> list[str]:
        """Return the paths of the scans."""
        items = (self.topLevelItem(row) for row in range(self.topLevelItemCount()))
        return [str(item.data(NAME, Qt.ItemDataRole.UserRole)) for item in items]

    def set(self, paths: Iterable[str | Path]) -> None:
        """Replace the list by these scans."""
        self.clear()
        self.add(paths)

    def add(self, paths: Iterable[str | Path]) -> None:
        """Add scans: files, or folders that hold one scan each."""
        known = set(self.value())
        for path in (str(Path(each).resolve()) for each in paths):
            if path not in known:
                known.add(path)
                item = _Row([Path(path).name, "", ""])
                item.setData(NAME, Qt.ItemDataRole.UserRole, path)
                item.setToolTip(NAME, path)
                self.addTopLevelItem(item)
        self._name_rows()

    def remove_selected(self) -> None:
        """Remove the selected scans from the list."""
        for item in self.selectedItems():
            self.takeTopLevelItem(self.indexOfTopLevelItem(item))
        self._name_rows()

    def show_states(self, states: Mapping[str, State]) -> None:
        """Show the states of scans, by their names."""
        for row in range(self.topLevelItemCount()):
            item = self.topLevelItem(row)
            state = states.get(item.text(NAME))
            if state is not None:
                percent = f" {100 * state.fraction:.0f} %" if state.state == "running" else ""
                item.setText(STATE, state.state + percent)
                message = state.message.replace(CONSENT, _ALLOW)
                item.setText(RESULT, message)
                item.setToolTip(RESULT, message)

    def show_figures(self, figures: pd.DataFrame) -> None:
        """Show the numbers of results in columns; see `hushpore.runs.batch_groups.scan_figures`."""
        self.setColumnCount(len(_TITLES) + figures.shape[1])
        self.setHeaderLabels([*_TITLES, *map(str, figures)])
        for row in range(self.topLevelItemCount()):
            item = self.topLevelItem(row)
            name = item.text(NAME)
            values = figures.loc[name] if name in figures.index else [float("nan")] * len(figures.T)
            for column, value in enumerate(values, len(_TITLES)):
                is_count = figures.columns[column - len(_TITLES)] == "Pores"
                text = f"{value:,.0f}" if is_count else readable_number(value)
                item.setText(column, "" if math.isnan(value) else text)
                item.setData(column, Qt.ItemDataRole.UserRole, float(value))
                item.setTextAlignment(column, Qt.AlignmentFlag.AlignRight)
        # the headline of a result is long
        header = self.header()
        header.moveSection(header.visualIndex(RESULT), header.count() - 1)
        for column in range(len(_TITLES), header.count()):
            self.resizeColumnToContents(column)

    def clear_figures(self) -> None:
        """Remove the numbers of an earlier batch."""
        self.setColumnCount(len(_TITLES))

    def _sort(self, column: int) -> None:
        """Sort by a column; a second click reverses the order."""
        self._is_ascending = column != self._sorted_by or not self._is_ascending
        self._sorted_by = column
        order = Qt.SortOrder.AscendingOrder if self._is_ascending else Qt.SortOrder.DescendingOrder
        self.header().setSortIndicatorShown(True)
        self.header().setSortIndicator(column, order)
        self.sortItems(column, order)

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Remove scans with Delete, and open one with Enter."""
        if event.matches(QKeySequence.StandardKey.Delete) and not self.is_fixed:
            self.remove_selected()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentItem():
            self._want(self.currentItem())
        else:
            super().keyPressEvent(event)

    def _want(self, item: QTreeWidgetItem) -> None:
        self.wanted.emit(self.indexOfTopLevelItem(item))

    def _name_rows(self) -> None:
        """Name each row after its result."""
        for row, name in enumerate(names_of([Path(path) for path in self.value()])):
            self.topLevelItem(row).setText(NAME, name)
        self.changed.emit()


class _Row(QTreeWidgetItem):
    """A scan, sorted by the numbers of a column, or else by its text."""

    def __lt__(self, other: QTreeWidgetItem) -> bool:
        column = self.treeWidget().sortColumn()
        if column < len(_TITLES):
            return bool(self.text(column).casefold() < other.text(column).casefold())
        ours, theirs = (each.data(column, Qt.ItemDataRole.UserRole) for each in (self, other))
        # scans without a number come first
        first, second = (
            -math.inf if value is None or math.isnan(value) else value for value in (ours, theirs)
        )
        return bool(first < second)
