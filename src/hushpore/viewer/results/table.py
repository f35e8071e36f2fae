"""A table of many rows: a Qt model over a DataFrame, and the view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from qtpy.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    Qt,
    Signal,
)
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import QAbstractItemView, QApplication, QHeaderView, QTableView

from hushpore.pores.measures import PORES, measure_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.measures import Measure

_UP, _DOWN = Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder

#: Pixels of the narrowest column: a number of four digits with its exponent.
NARROW = 72


class TableModel(QAbstractTableModel):
    """Gives Qt the rows that it shows, and no others; sorts and filters by index arrays.

    A row of the table as it was given is called its position here; Qt counts the rows shown.
    """

    def __init__(self, measures: Sequence[Measure[Any]]) -> None:
        super().__init__()
        self._measures = measures
        self._table = pd.DataFrame()
        self._columns: list[npt.NDArray[Any]] = []
        self._titles: list[str] = []
        self._order = self._rows = np.zeros(0, np.int64)
        self._mask = np.zeros(0, np.bool_)
        self._on_top = np.zeros(0, np.bool_)

    def show_table(self, table: pd.DataFrame, unit: str = "", n_spatial: int = 3) -> None:
        """Show another table, all of its rows, in its own order."""
        self.beginResetModel()
        self._table = table
        self._columns = [table[name].to_numpy() for name in table.columns]
        units = [self._measure(name).unit(unit, n_spatial) for name in table.columns]
        self._titles = [
            f"{name}\n{printed}" if printed else f"{name}\n"
            for name, printed in zip(table.columns, units, strict=True)
        ]
        self._mask = np.ones(len(table), np.bool_)
        self._on_top = np.zeros(len(table), np.bool_)
        self._order = self._rows = np.arange(len(table))
        self.endResetModel()

    @property
    def whole(self) -> pd.DataFrame:
        """The table as it was given."""
        return self._table

    @property
    def table(self) -> pd.DataFrame:
        """The rows that pass the filter, in the order in which they are shown."""
        return self._table.iloc[self._rows]

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """(rows shown,): the position of each row that is shown."""
        return self._rows

    def show_only(self, mask: npt.NDArray[np.bool_]) -> None:
        """Show the rows whose position is true in `mask`, (positions,)."""
        self._mask = mask
        self.arrange()

    def keep_on_top(self, mask: npt.NDArray[np.bool_]) -> None:
        """Show rows, (positions,), before all others the next time that rows are arranged."""
        self._on_top = mask

    def sort(self, column: int, order: Qt.SortOrder = _UP) -> None:
        """Sort by a column; equal rows keep the order of the table, missing numbers are last."""
        if 0 <= column < len(self._columns):
            values = self._columns[column]
            self._order = (
                _descending(values) if order == _DOWN else np.argsort(values, kind="stable")
            )
        else:
            self._order = np.arange(len(self._table))
        self.arrange()

    def rowCount(self, parent: QModelIndex | None = None) -> int:  # noqa: N802
        """How many rows are shown."""
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def columnCount(self, parent: QModelIndex | None = None) -> int:  # noqa: N802
        """How many columns there are."""
        return 0 if parent is not None and parent.isValid() else len(self._columns)

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return the text of a cell, or where it stands in it."""
        if role == Qt.ItemDataRole.DisplayRole:
            return cell_text(self._columns[index.column()][self._rows[index.row()]])
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(  # noqa: N802
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return the title of a column with its unit, and what it means."""
        if orientation == Qt.Orientation.Horizontal:
            if role == Qt.ItemDataRole.DisplayRole:
                return self._titles[section]
            if role == Qt.ItemDataRole.ToolTipRole:
                return self._measure(self._table.columns[section]).meaning
        return None

    def _measure(self, column: str) -> Measure[Any]:
        return measure_of(column, self._measures)

    def arrange(self) -> None:
        """Put the rows into their order, those on top first."""
        self.beginResetModel()
        rows = self._order[self._mask[self._order]]
        top = self._on_top[rows]
        self._rows = np.r_[rows[top], rows[~top]] if top.any() else rows
        self.endResetModel()


def _descending(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the order from the largest down; equal ones keep theirs, missing numbers are last."""
    order = len(values) - 1 - np.argsort(values[::-1], kind="stable")[::-1]
    if values.dtype.kind == "f":
        missing = np.isnan(values[order])
        order = np.r_[order[~missing], order[missing]]
    return order


def cell_text(value: Any) -> str:
    """Write a value as a cell shows it: four digits, yes or no, nothing where it is missing."""
    if isinstance(value, np.bool_ | bool):
        return "yes" if value else "no"
    if isinstance(value, np.floating | float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)


class TableView(QTableView):
    """Shows a `TableModel`; selects whole rows, and copies them with Ctrl+C.

    `measures`: what the columns are, by default those of pores.
    """

    #: The user has selected rows: (positions,), bool.
    chosen = Signal(object)

    def __init__(self, name: str, measures: Sequence[Measure[Any]] = PORES) -> None:
        super().__init__()
        self.rows = TableModel(measures)
        self.setModel(self.rows)
        self.setAccessibleName(name)
        self.setSortingEnabled(True)
        self.setWordWrap(False)
        self.setAlternatingRowColors(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 6)
        header = self.horizontalHeader()
        header.setSortIndicatorClearable(True)
        header.setSortIndicator(-1, _UP)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._mask = np.zeros(0, np.bool_)
        self._is_user_selection = True
        self.selectionModel().selectionChanged.connect(self._selected)
        self.rows.modelReset.connect(self._select_again)

    def show_table(self, table: pd.DataFrame, unit: str = "", n_spatial: int = 3) -> None:
        """Show another table, with nothing selected."""
        self._mask = np.zeros(len(table), np.bool_)
        self.horizontalHeader().setSortIndicator(-1, _UP)
        self.rows.show_table(table, unit, n_spatial)
        metrics = self.horizontalHeader().fontMetrics()
        for number, name in enumerate(table.columns):
            self.setColumnWidth(number, max(NARROW, metrics.horizontalAdvance(str(name)) + 26))

    def select(self, mask: npt.NDArray[np.bool_]) -> None:
        """Select the rows whose position is true in `mask`, without telling so.

        One row is scrolled to. Several come to the top of the table: scattered over thousands of
        rows they could be neither seen nor drawn fast.
        """
        self._mask = mask
        self.rows.keep_on_top(mask)
        if np.count_nonzero(mask) > 1:
            self.rows.arrange()
        else:
            self._select_again()

    def chosen_positions(self) -> npt.NDArray[np.int64]:
        """Return the positions of the selected rows, in the order shown."""
        found: npt.NDArray[np.int64] = self.rows.positions[self._mask[self.rows.positions]]
        return found

    def copy(self) -> None:
        """Copy the selected rows, with titles, as a spreadsheet takes them."""
        table = self.rows.whole.iloc[self.chosen_positions()]
        QApplication.clipboard().setText(table.to_csv(sep="\t", index=False, lineterminator="\n"))

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Copy the selected rows with Ctrl+C."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
            event.accept()
        else:
            super().keyPressEvent(event)

    def _selected(self, *_: Any) -> None:
        """Take over what the user has selected."""
        if not self._is_user_selection:
            return
        mask = np.zeros(len(self._mask), np.bool_)
        for part in self.selectionModel().selection():
            mask[self.rows.positions[part.top() : part.bottom() + 1]] = True
        self._mask = mask
        self.rows.keep_on_top(mask)
        self.chosen.emit(mask)

    def _select_again(self) -> None:
        """Give the rows that are selected their look, wherever they are now."""
        self._is_user_selection = False
        rows = np.flatnonzero(self._mask[self.rows.positions])
        chosen = QItemSelection()
        # neighbours as one stretch
        for stretch in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if stretch.size:
                first = self.rows.index(int(stretch[0]), 0)
                last = self.rows.index(int(stretch[-1]), self.rows.columnCount() - 1)
                chosen.select(first, last)
        self.selectionModel().select(chosen, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if rows.size:
            self.scrollTo(self.rows.index(int(rows[0]), 0))
        self._is_user_selection = True
