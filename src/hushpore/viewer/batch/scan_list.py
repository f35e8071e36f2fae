"""The list of the scans of a batch: what they are called, and how each stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import QHeaderView, QTreeWidget, QTreeWidgetItem

from hushpore.runs.batch_workers import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hushpore.runs.batch_workers import State

#: The columns.
NAME, STATE, RESULT = range(3)


class ScanList(QTreeWidget):
    """Lists each scan once, under the name that its result will have."""

    #: Scans have come or gone.
    changed = Signal()
    #: The scan of a row is to be opened, by a double click or Enter.
    wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.is_fixed = False
        self.setHeaderLabels(["Scan", "State", "Result"])
        self.setRootIsDecorated(False)
        self.setSelectionMode(QTreeWidget.SelectionMode.ExtendedSelection)
        self.header().setSectionResizeMode(STATE, QHeaderView.ResizeMode.ResizeToContents)
        self.setToolTip("Double-click a finished scan to open it with its pores.")
        self.setAccessibleName("Scans")
        self.itemDoubleClicked.connect(self._want)

    def sizeHint(self) -> QSize:  # noqa: N802
        """Return room for eight lines: it takes what the form leaves, and pushes nothing out."""
        return QSize(super().sizeHint().width(), 8 * self.fontMetrics().lineSpacing())

    def value(self) -> list[str]:
        """Return the paths of the scans."""
        items = (self.topLevelItem(row) for row in range(self.topLevelItemCount()))
        return [str(item.data(NAME, Qt.ItemDataRole.UserRole)) for item in items]

    def set(self, paths: Iterable[str | Path]) -> None:
        """List these scans alone."""
        self.clear()
        self.add(paths)

    def add(self, paths: Iterable[str | Path]) -> None:
        """List further scans: files, or folders that hold one scan each."""
        known = set(self.value())
        for path in (str(Path(each).resolve()) for each in paths):
            if path not in known:
                known.add(path)
                item = QTreeWidgetItem([Path(path).name, "", ""])
                item.setData(NAME, Qt.ItemDataRole.UserRole, path)
                item.setToolTip(NAME, path)
                self.addTopLevelItem(item)
        self._name_rows()

    def take_off(self) -> None:
        """Take the selected scans off."""
        for item in self.selectedItems():
            self.takeTopLevelItem(self.indexOfTopLevelItem(item))
        self._name_rows()

    def show_states(self, states: Mapping[str, State]) -> None:
        """Show how scans stand, by their names."""
        for row in range(self.topLevelItemCount()):
            item = self.topLevelItem(row)
            state = states.get(item.text(NAME))
            if state is not None:
                percent = f" {100 * state.fraction:.0f} %" if state.state == "running" else ""
                item.setText(STATE, state.state + percent)
                item.setText(RESULT, state.message)
                item.setToolTip(RESULT, state.message)

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Take scans off with Delete, and open one with Enter."""
        if event.matches(QKeySequence.StandardKey.Delete) and not self.is_fixed:
            self.take_off()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentItem():
            self._want(self.currentItem())
        else:
            super().keyPressEvent(event)

    def _want(self, item: QTreeWidgetItem) -> None:
        self.wanted.emit(self.indexOfTopLevelItem(item))

    def _name_rows(self) -> None:
        """Call scans what their results will be called."""
        for row, name in enumerate(names_of([Path(path) for path in self.value()])):
            self.topLevelItem(row).setText(NAME, name)
        self.changed.emit()
