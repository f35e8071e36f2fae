"""The panel of results: totals, tables of pores and throats, filter and colours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMainWindow,
    QPushButton,
    QScrollArea,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)
from superqt import QDoubleRangeSlider

from hushpore.base.errors import InputError
from hushpore.pores.measures import THROATS, measure_of
from hushpore.viewer.forms.docking import dock_of
from hushpore.viewer.forms.rich_label import RichLabel, plain_label, sign
from hushpore.viewer.results.colour_choice import (
    ColourChoice,
    columns_of,
    compact_combo_box,
    fill_columns,
    is_numeric,
)
from hushpore.viewer.results.layer_tracking import LayerTrackingWidget
from hushpore.viewer.results.pore_layer import summary_lines
from hushpore.viewer.results.pore_view import MOST_COLOURS
from hushpore.viewer.results.row_filter import filter_rows
from hushpore.viewer.results.saving import save_with
from hushpore.viewer.results.table import TableView, cell_text

if TYPE_CHECKING:
    import pandas as pd

#: Name of this widget, as the manifest has it.
RESULTS = "Results"

#: Milliseconds without a key pressed after which a filter is tried.
PAUSE = 250

#: Pixels from which the controls stand beside the table, not above it.
WIDE = 760

#: Pixels of the controls beside the table, the bar that scrolls them included.
NARROW, _ANY = 360, 2**24 - 1

#: Pixels that the panel takes under the canvas at first.
HEIGHT = 230

NO_RESULT = (
    "No pore result is chosen. Run 'Segment pores', or drop a result folder on the window and "
    "select its labels."
)


class ResultsWidget(LayerTrackingWidget):
    """Shows the numbers of the pore layer that is selected, linked with the layer."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self._is_docked_below = False
        self._build()
        self.follow()

    # ---- what is shown

    def show_view(self) -> None:
        """Show the result of another layer, or that there is none."""
        for widget in (self._controls, self._tabs):
            widget.setEnabled(self.view is not None)
        if self.view is None:
            self._title.setText("")
            self._summary.setText(NO_RESULT)
            return
        tables = self.view.tables
        self._title.setText(f"<b>{self.view.layer.name}</b>")
        self._filter.clear()
        self.pores.show_table(tables.pores, tables.unit, tables.n_spatial)
        self._tabs.setTabText(0, f"&Pores ({len(tables.pores):,})")
        self._tabs.setTabEnabled(1, tables.throats is not None)
        self._tabs.setTabText(1, "&Throats")
        if tables.throats is not None:
            self.throats.show_table(tables.throats, tables.unit, tables.n_spatial)
            self._tabs.setTabText(1, f"&Throats ({len(tables.throats):,})")
        self._fill_columns()
        self._show_shown()
        self._show_selected()
        self._limit.say(
            ""
            if self.view.can_colour
            else f"{sign(False)} napari colours up to {MOST_COLOURS:,} labels; this layer has more "
            "and does not follow the table."
        )

    def _show_shown(self) -> None:
        assert self.view is not None
        self._summary.setText("\n".join(summary_lines(self.view.tables, self.view.shown)))
        self.pores.rows.show_only(self.view.shown)

    def _show_selected(self, by: object = None) -> None:
        assert self.view is not None
        if by is not self.pores:
            self.pores.select(self.view.selected)
        self._copy.setEnabled(bool(self.view.selected.any()))

    def view_changed(self) -> None:
        """Follow another result."""
        if self.view is not None:
            self.view.tables_changed.connect(self.show_view)
            self.view.shown_changed.connect(self._show_shown)
            self.view.selected_changed.connect(self._show_selected)
        self.colours.follow(self.view)
        self.show_view()

    def view_leaves(self) -> None:
        """Follow a result no longer."""
        assert self.view is not None
        self.view.tables_changed.disconnect(self.show_view)
        self.view.shown_changed.disconnect(self._show_shown)
        self.view.selected_changed.disconnect(self._show_selected)
        self.colours.follow(None)

    # ---- what the user does

    def apply_filter(self) -> None:
        """Show the pores that pass line and slider; say what is wrong with the line."""
        self._pause.stop()
        if self.view is None:
            return
        table = self.view.tables.pores
        try:
            passing = filter_rows(self._filter.text(), table)
        except InputError as error:
            self._problem.say(f"{sign(False)} {error}")
            return
        self._problem.say("")
        low, high = self._range.value()
        column = self._range_of.currentText()
        if column and (low, high) != (self._range.minimum(), self._range.maximum()):
            values = table[column].to_numpy()
            passing &= (values >= low) & (values <= high)
        self.view.show_only(passing)

    def _fill_columns(self) -> None:
        """List the columns that hold numbers, the most wanted first."""
        assert self.view is not None
        table = self.view.tables.pores
        names = columns_of(table, is_numeric)
        before = self._range_of.currentText()
        wanted = before if before in names else "equivalent_diameter"
        fill_columns(self._range_of, names, wanted)
        self._choose_range()

    def _choose_range(self) -> None:
        """Let the slider span another column."""
        if self.view is None or not self._range_of.currentText():
            return
        values = self.view.tables.pores[self._range_of.currentText()].to_numpy(np.float64)
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        high = high if high > low else low + 1.0
        self._range.blockSignals(True)
        self._range.setRange(low, high)
        self._range.setValue((low, high))
        self._range.blockSignals(False)
        self._show_range()

    def _range_changed(self) -> None:
        self._show_range()
        self.apply_filter()

    def _show_range(self) -> None:
        assert self.view is not None
        low, high = self._range.value()
        column, tables = self._range_of.currentText(), self.view.tables
        unit = measure_of(column).unit(tables.unit, tables.n_spatial)
        text = f"{cell_text(float(low))} to {cell_text(float(high))} {unit}".strip()
        self._range_text.setText(text)

    def _range_column_changed(self) -> None:
        self._choose_range()
        self.apply_filter()

    def _rows_selected(self, mask: Any) -> None:
        """Rows of the table of pores were selected."""
        if self.view is not None:
            self.view.select(mask, self.pores)
            if np.count_nonzero(mask) == 1:
                self.view.go_to(int(np.argmax(mask)))

    def _throats_selected(self, mask: Any) -> None:
        """Rows of the table of throats were selected: the pores at their ends stand out."""
        if self.view is not None and self.view.tables.throats is not None:
            rows = self.view.tables.throats[mask]
            self.view.select_labels(rows[["pore_1", "pore_2"]].to_numpy(), self.throats)

    def _reset(self) -> None:
        if self.view is not None:
            self._filter.clear()
            self._choose_range()
            self._problem.say("")
            self.view.reset()

    def _copy_rows(self) -> None:
        self._table().copy()

    def _export(self) -> None:
        """Write the rows that are shown, in their order."""
        if self.view is None:
            return
        kind = "pores" if self._table() is self.pores else "throats"
        chosen, _ = QFileDialog.getSaveFileName(
            self, f"Export the {kind} shown", f"{self.view.layer.name} {kind}.csv", "CSV (*.csv)"
        )
        if chosen:
            save_table(Path(chosen), self._table().rows.table)

    def _table(self) -> TableView:
        return self.throats if self._tabs.currentWidget() is self.throats else self.pores

    # ---- how it looks

    def _build(self) -> None:
        self._title, self._summary = QLabel(), plain_label()
        self._title.setTextFormat(Qt.TextFormat.RichText)
        self._problem, self._limit = RichLabel(self._viewer), RichLabel(self._viewer)
        self.pores = TableView("Table of pores")
        self.throats = TableView("Table of throats", THROATS)
        self.pores.chosen.connect(self._rows_selected)
        self.throats.chosen.connect(self._throats_selected)
        self._tabs = QTabWidget()
        self._tabs.addTab(self.pores, "&Pores")
        self._tabs.addTab(self.throats, "&Throats")
        self._tabs.setMinimumHeight(110)
        # there they are in sight however low the panel is
        self._tabs.setCornerWidget(self._build_buttons())
        self._controls = QWidget()
        side = QVBoxLayout(self._controls)
        side.setContentsMargins(0, 0, 0, 0)
        side.setSpacing(4)
        side.addLayout(self._build_grid())
        side.addWidget(self._limit)
        left = QWidget()
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        for widget in (self._title, self._summary, self._controls):
            column.addWidget(widget)
        column.addStretch(1)
        # a low window has room for the canvas too
        self._left = scroll = QScrollArea()
        scroll.setWidget(left)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # as it is beside the canvas at first: wider, it would widen what is docked there
        self._box = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._box.setContentsMargins(6, 6, 6, 6)
        self._box.addWidget(scroll)
        self._box.addWidget(self._tabs, 1)

    def _build_grid(self) -> QGridLayout:
        self._filter = QLineEdit()
        self._filter.setPlaceholderText("equivalent_diameter > 20 and not is_open")
        self._filter.setToolTip(
            "Show the pores that pass: names of columns, numbers, comparisons, and, or, not and "
            "parentheses."
        )
        self._filter.setClearButtonEnabled(True)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE)
        self._pause.timeout.connect(self.apply_filter)
        self._filter.textChanged.connect(self._pause.start)
        self._filter.returnPressed.connect(self.apply_filter)
        self._range_of = compact_combo_box()
        self._range_of.setToolTip("Column of the slider.")
        self._range_of.currentIndexChanged.connect(self._range_column_changed)
        self._range = QDoubleRangeSlider(Qt.Orientation.Horizontal)
        self._range.setToolTip("Show the pores between these two values.")
        self._range.valueChanged.connect(self._range_changed)
        self._range_text = QLabel()
        self.colours = ColourChoice(self._viewer)
        grid = QGridLayout()
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(2, 1)
        buddies = {
            0: ("&Filter", self._filter),
            2: ("&Range", self._range_of),
            4: ("&Colour", self.colours.by),
        }
        for row, (text, buddy) in buddies.items():
            label = QLabel(text)
            label.setBuddy(buddy)
            # the first line of what is beside it may not be the only one
            label.setFixedHeight(buddy.sizeHint().height())
            grid.addWidget(label, row, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self._filter, 0, 1, 1, 2)
        grid.addWidget(self._problem, 1, 1, 1, 2)
        grid.addWidget(self._range_of, 2, 1)
        grid.addWidget(self._range, 2, 2)
        grid.addWidget(self._range_text, 3, 1, 1, 2)
        grid.addWidget(self.colours, 4, 1, 1, 2, Qt.AlignmentFlag.AlignTop)
        return grid

    def _build_buttons(self) -> QWidget:
        everything, self._copy = QPushButton("Show &all"), QPushButton("Cop&y rows")
        export = QPushButton("&Export …")
        everything.setToolTip("Clear filter, selection and colours.")
        self._copy.setToolTip("Copy the selected rows for a spreadsheet (Ctrl+C in the table).")
        export.setToolTip("Save the rows that are shown, in their order, as CSV.")
        everything.clicked.connect(self._reset)
        self._copy.clicked.connect(self._copy_rows)
        export.clicked.connect(self._export)
        row = QWidget()
        # no higher than the tabs beside them
        row.setStyleSheet("QPushButton { padding: 0px 5px; }")
        line = QHBoxLayout(row)
        line.setContentsMargins(0, 0, 0, 2)
        for button in (everything, self._copy, export):
            line.addWidget(button)
        return row

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Put the controls beside the table where there is room, above it where there is not."""
        super().resizeEvent(event)
        across = self.width() >= WIDE
        direction = QBoxLayout.Direction
        self._box.setDirection(direction.LeftToRight if across else direction.TopToBottom)
        self._left.setMinimumWidth(NARROW if across else 0)
        self._left.setMaximumWidth(NARROW if across else _ANY)

    def showEvent(self, event: Any) -> None:  # noqa: N802
        """Begin under the canvas: a table is wide."""
        super().showEvent(event)
        if not self._is_docked_below:
            self._is_docked_below = True
            QTimer.singleShot(0, self._move_down)

    def _move_down(self) -> None:
        dock = dock_of(self)
        window = dock.parent() if dock is not None else None
        if isinstance(window, QMainWindow):
            # the list of layers keeps its height: a low window has no more for it
            window.setCorner(Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.LeftDockWidgetArea)
            window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, dock)
            window.resizeDocks([dock], [HEIGHT], Qt.Orientation.Vertical)


def save_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV in a thread, numbers in full precision; says where, or why not."""
    path = path if path.suffix else path.with_suffix(".csv")
    save_with(path, lambda part: table.to_csv(part, index=False, lineterminator="\n"))
