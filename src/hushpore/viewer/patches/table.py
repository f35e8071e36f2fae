"""The table of patches: a row each, sorted by a click on a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QAbstractTableModel, QModelIndex, Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QTableView

if TYPE_CHECKING:
    import pandas as pd


class PatchTable(QTableView):
    """Shows the features of patches, and which of them is marked."""

    #: Emitted with the number of the patch that the user chose.
    picked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._rows = _Rows()
        self.setModel(self._rows)
        self.setSortingEnabled(True)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName("Table of patches")
        self.verticalHeader().hide()
        self.setMinimumHeight(160)
        # a few rows tell how wide columns must be
        self.horizontalHeader().setResizeContentsPrecision(20)
        self.clicked.connect(self._clicked)

    def show_table(self, table: pd.DataFrame) -> None:
        """Show other patches: a DataFrame with the column ``patch``."""
        self._rows.fill(table)
        self.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.resizeColumnsToContents()

    def mark(self, patch: int) -> None:
        """Select the row of a patch, and scroll to it."""
        row = self._rows.row_of(patch)
        if row is not None:
            self.selectRow(row)
            self.scrollTo(self._rows.index(row, 0))

    def marked(self) -> int | None:
        """Return the patch whose row is selected."""
        rows = self.selectionModel().selectedRows()
        return self._rows.patch_at(rows[0].row()) if rows else None

    def _clicked(self, index: Any) -> None:
        self.picked.emit(self._rows.patch_at(index.row()))


class _Rows(QAbstractTableModel):
    """Gives Qt the cells that it shows, so that thousands of rows cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._columns: list[Any] = []
        self._patches = self._order = np.zeros(0, np.int64)

    def fill(self, table: pd.DataFrame) -> None:
        self.beginResetModel()
        self._names = list(table.columns)
        self._columns = [table[name].to_numpy() for name in table.columns]
        self._patches = table["patch"].to_numpy()
        self._order = np.arange(len(table))
        self.endResetModel()

    def patch_at(self, row: int) -> int:
        return int(self._patches[self._order[row]])

    def row_of(self, patch: int) -> int | None:
        rows = np.flatnonzero(self._patches[self._order] == patch)
        return int(rows[0]) if len(rows) else None

    def rowCount(self, parent: Any = None) -> int:  # noqa: N802
        return 0 if parent is not None and parent.isValid() else len(self._order)

    def columnCount(self, parent: Any = None) -> int:  # noqa: N802
        return 0 if parent is not None and parent.isValid() else len(self._names)

    def data(self, index: Any, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        value = self._columns[index.column()][self._order[index.row()]]
        return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)

    def headerData(  # noqa: N802
        self, section: int, orientation: Any, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return self._names[section]
        return None

    def sort(self, column: int, order: Any = Qt.SortOrder.AscendingOrder) -> None:
        if not 0 <= column < len(self._columns):
            return
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        patches = [self.patch_at(index.row()) for index in before]
        self._order = np.argsort(self._columns[column], kind="stable")
        if order == Qt.SortOrder.DescendingOrder:
            self._order = self._order[::-1]
        # what is selected stays selected, wherever it goes
        after = [
            self.index(row, index.column())
            if (row := self.row_of(patch)) is not None
            else QModelIndex()
            for index, patch in zip(before, patches, strict=True)
        ]
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()
