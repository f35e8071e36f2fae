"""The panel of results: totals, tables of pores and throats, filter and colours."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import (
    QBoxLayout,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)
from superqt import QDoubleRangeSlider
from superqt.utils import signals_blocked

from hushpore.base.errors import InputError
from hushpore.pores.tables.measures import PORES, THROATS, measure_of
from hushpore.pores.tables.totals import totals_in_words
from hushpore.viewer.forms.fields import NameLabel
from hushpore.viewer.forms.layout import Fold, RichLabel, ScrolledColumn, fill, plain_label, sign
from hushpore.viewer.results.choices import ColourChoice, ColumnBox, FormTab, numeric_columns
from hushpore.viewer.results.corrections import CorrectionsPanel
from hushpore.viewer.results.pore_layer import summary_lines
from hushpore.viewer.results.pore_view import MAX_COLOURS, LayerTrackingWidget
from hushpore.viewer.results.record_panel import (
    ask_and_save_result,
    ask_for_file,
    save_measures,
    save_table,
)
from hushpore.viewer.results.scene_3d import FRAMES, Scene3D
from hushpore.viewer.results.table import TableView, cell_text, filter_rows

if TYPE_CHECKING:
    from collections.abc import Callable

#: Milliseconds after the last key press until the filter is applied.
PAUSE = 250

#: Width in pixels from which the controls are beside the table instead of above it.
WIDE = 760

#: Width in pixels of the controls beside the table, including their scroll bar.
NARROW = 360

#: Qt's maximum width of a widget without a limit.
_ANY = 2**24 - 1

NO_RESULT = (
    "No pore result is selected. Run 'Pores', or drop a result folder on the window and "
    "select its labels."
)


class ResultsWidget(LayerTrackingWidget):
    """Shows the measurements of the selected pore layer, linked with the layer."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self._build()
        self.follow()

    # ---- contents

    def show_view(self) -> None:
        """Show the result of another layer, or a hint if there is none."""
        self.colours.show_view(self.view)
        self.corrections.show_view(self.view)
        self.form.show_view(self.view)
        is_3d = self.view is not None and self.view.tables.n_spatial == 3
        self._in_3d.setEnabled(is_3d)
        for widget in (self._controls, self._tabs):
            widget.setEnabled(self.view is not None)
        if self.view is None:
            self._title.setText("")
            self._summary.setText(NO_RESULT)
            self._fold.hide()
            for table, words in ((self.pores, "&Pores"), (self.throats, "&Throats")):
                table.show_table(pd.DataFrame())
                self._tabs.setTabText(self._tabs.indexOf(table), words)
            return
        tables = self.view.tables
        self._title.setText(self.view.layer.name)
        self._filter.clear()
        self.pores.show_table(tables.pores, tables.unit, tables.n_spatial)
        throats = tables.throats
        self._tabs.setTabEnabled(1, throats is not None)
        self._tabs.setTabText(1, "&Throats" if throats is None else f"&Throats ({len(throats):,})")
        if throats is not None:
            self.throats.show_table(throats, tables.unit, tables.n_spatial)
        before, names = self._range_of.column(), numeric_columns(tables.pores)
        first = before if before in names else "equivalent_diameter"
        self._range_of.list_columns(names, first)
        self._choose_range()
        self._show_shown()
        self._show_selected()
        self._limit.say(
            f"{sign(False)} The voxel shape of this layer was changed: the tables are out of date. "
            "Find the pores again, or restore the voxel size."
            if self.view.is_outdated
            else ""
            if self.view.can_colour
            else f"{sign(False)} napari can colour {MAX_COLOURS:,} labels at most; this layer has "
            "more, so filter, selection and colours are not shown in it."
        )

    def _show_shown(self) -> None:
        assert self.view is not None
        shown, count = int(self.view.shown.sum()), len(self.view.shown)
        of = f"{shown:,} of {count:,}" if shown < count else f"{count:,}"
        self._tabs.setTabText(0, f"&Pores ({of})")
        self._summary.setText("\n".join(summary_lines(self.view.tables, self.view.shown)))
        figures = totals_in_words(self.view.tables.totals)
        self.figures.setText(_as_table(figures))
        self._fold.setVisible(bool(figures))
        self.pores.rows.show_only(self.view.shown)

    def _show_selected(self, by: object = None) -> None:
        assert self.view is not None
        if by is not self.pores:
            self.pores.select(self.view.selected)
        self._show_copy()

    def _show_copy(self) -> None:
        if self._tabs.currentWidget() is self.form:
            can_copy = self.form.table is not None
        else:
            can_copy = self.view is not None and bool(self.view.selected.any())
        self._copy.setEnabled(can_copy)

    def slots(self) -> dict[str, Callable[..., None]]:
        """Follow filter, selection and colours of the view."""
        return {
            "tables_changed": self.show_view,
            "shown_changed": self._show_shown,
            "selected_changed": self._show_selected,
            "colours_changed": self.colours.show_colours,
        }

    def _let_go(self) -> None:
        """Also leave 3D, because the button to leave it disappears with the widget."""
        self.scene.leave()
        self.corrections.show_view(None)
        super()._let_go()

    # ---- actions

    def apply_filter(self) -> None:
        """Show the pores that pass the filter and the range, or the error in the filter."""
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
        column = self._range_of.column()
        if column and (low, high) != (self._range.minimum(), self._range.maximum()):
            values = table[column].to_numpy()
            passing &= (values >= low) & (values <= high)
        self.view.show_only(passing)

    def _choose_range(self) -> None:
        if self.view is None or not self._range_of.column():
            return
        values = self.view.tables.pores[self._range_of.column()].to_numpy(np.float64)
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        high = high if high > low else low + 1.0
        with signals_blocked(self._range):
            self._range.setRange(low, high)
            self._range.setValue((low, high))
        self._show_range()

    def _show_range(self) -> None:
        assert self.view is not None
        low, high = (cell_text(float(end)) for end in self._range.value())
        unit = self.view.tables.unit_of(self._range_of.column())
        self._range_text.setText(f"{low} to {high} {unit}".strip())

    def _rows_selected(self, mask: Any) -> None:
        if self.view is not None:
            self.view.select(mask, self.pores)
            if np.count_nonzero(mask) == 1:
                self.view.go_to(int(np.argmax(mask)))

    def _throats_selected(self, mask: Any) -> None:
        """Select the pores at the ends of the selected throats."""
        if self.view is not None and self.view.tables.throats is not None:
            rows = self.view.tables.throats[mask]
            self.view.select_labels(rows[["pore_1", "pore_2"]].to_numpy(), self.throats)

    def _show_in_3d(self, is_wanted: bool) -> None:
        if self.view is not None and is_wanted:
            self.scene.show(self.view)
        else:
            self.scene.leave()
        self._show_scene(self.scene.is_shown)

    def _show_scene(self, is_shown: bool) -> None:
        self._in_3d.setChecked(is_shown)
        self._save_3d.setEnabled(is_shown and self.scene.is_ready)

    def _show_filmed(self, frames: int) -> None:
        """Show the number of recorded frames of a film."""
        self._save_3d.setText(f"Filming {100 * frames // FRAMES} %" if frames else "Save 3D …")

    def _save_in_3d(self) -> None:
        if self.view is not None and self.scene.is_shown:
            kinds = "Picture (*.png);;Film of one turn (*.gif)"
            path = ask_for_file(self, "Save 3D", f"{self.view.layer.name} 3D.png", kinds)
            # 3D may have been left while the dialog was open
            if path is not None and self.scene.is_shown:
                self.scene.save(path)

    def _reset(self) -> None:
        if self.view is not None:
            self._filter.clear()
            self._choose_range()
            self._problem.say("")
            self.view.reset()

    def _copy_rows(self) -> None:
        shown = self.form if self._tabs.currentWidget() is self.form else self._table()
        shown.copy()

    def _export(self) -> None:
        if self.view is None:
            return
        if self._tabs.currentWidget() is self.form:
            self._export_form(self.view.layer.name)
            return
        kind = "pores" if self._table() is self.pores else "throats"
        name = f"{self.view.layer.name} {kind}.csv"
        path = ask_for_file(self, f"Export {kind}", name, "CSV (*.csv)")
        if path is not None:
            save_measures(path, self._table().rows.table, self._describe)

    def _export_form(self, layer: str) -> None:
        if self.form.table is not None:
            name = f"{layer} {self.form.name} form.csv"
            path = ask_for_file(self, "Export form", name, "CSV (*.csv)")
            if path is not None:
                save_table(path, self.form.table)

    def _describe(self, column: str) -> tuple[str, str]:
        """Return the unit and the meaning of a column of the current table."""
        assert self.view is not None
        tables = self.view.tables
        measure = measure_of(column, PORES if self._table() is self.pores else THROATS)
        return measure.unit(tables.unit, tables.n_spatial), measure.meaning

    def _save(self) -> None:
        if self.view is not None:
            ask_and_save_result(self, self.view.layer)

    def _table(self) -> TableView:
        return self.throats if self._tabs.currentWidget() is self.throats else self.pores

    # ---- appearance

    def _build(self) -> None:
        self._title, self._summary = NameLabel(), plain_label()
        # folded, so that the controls stay in view
        self.figures, self._fold = plain_label(), Fold("All totals")
        self.figures.setTextFormat(Qt.TextFormat.RichText)
        self._fold.add(self.figures)
        self._problem, self._limit = RichLabel(self._viewer), RichLabel(self._viewer)
        self.pores = TableView("Table of pores")
        self.throats = TableView("Table of throats", THROATS)
        self.pores.chosen.connect(self._rows_selected)
        self.throats.chosen.connect(self._throats_selected)
        self._tabs = QTabWidget(minimumHeight=110, accessibleName="Tables")
        self._tabs.addTab(self.pores, "&Pores")
        self._tabs.addTab(self.throats, "&Throats")
        self.form = FormTab()
        self._tabs.addTab(self.form, "For&m")
        self._tabs.currentChanged.connect(self._show_copy)
        self.form.changed.connect(self._show_copy)
        self._controls = QWidget()
        self.corrections, correcting = CorrectionsPanel(self._viewer), Fold("Correct pores")
        correcting.add(self.corrections)
        self.corrections.edited.connect(
            lambda stale: correcting.set_title(f"Correct pores{' (table out of date)' * stale}")
        )
        fill(QVBoxLayout(self._controls), self._build_grid(), self._limit, correcting, spacing=4)
        scene = fill(QHBoxLayout(), self._in_3d, self._save_3d)
        parts = self._title, self._summary, self._fold, self._controls, scene
        self._left = ScrolledColumn(*parts, margin=0)
        self._left.column.setSpacing(4)
        buttons = self._build_buttons()
        tables = fill(QVBoxLayout(), self._tabs, buttons, spacing=4, wide=self._tabs)
        # one column at first, because a wider layout would widen the dock at the side
        self._box = fill(QVBoxLayout(self), self._left, tables, margin=6, wide=tables)

    def _build_grid(self) -> QGridLayout:
        self._filter = QLineEdit(
            placeholderText="equivalent_diameter > 20 and not is_open",
            toolTip="Show only pores that meet a condition: names of columns, numbers, "
            "comparisons, and, or, not, parentheses.",
            clearButtonEnabled=True,
        )
        self._pause = QTimer(self, singleShot=True, interval=PAUSE, timeout=self.apply_filter)
        self._filter.textChanged.connect(self._pause.start)
        self._filter.returnPressed.connect(self.apply_filter)
        self._range_of = ColumnBox(toolTip="Filter by", accessibleName="Filter by")
        self._range_of.currentIndexChanged.connect(self._choose_range)
        self._range_of.currentIndexChanged.connect(self.apply_filter)
        self._range = QDoubleRangeSlider(Qt.Orientation.Horizontal)
        self._range.setAccessibleName("Range of the column")
        self._range.setToolTip("Show only pores between these two values.")
        self._range.valueChanged.connect(self._show_range)
        self._range.valueChanged.connect(self.apply_filter)
        self._range_text = QLabel()
        self.colours = ColourChoice(self._viewer)
        self.scene = Scene3D(self._viewer)
        self._in_3d = QPushButton(
            "&3D", checkable=True, clicked=self._show_in_3d,
            toolTip="Show the pores in 3D, coloured by their size, inside the transparent sample. "
            "Click again for 2D.",
        )  # fmt: skip
        self._save_3d = QPushButton(
            "Save 3D …", clicked=self._save_in_3d, enabled=False,
            toolTip="Save the 3D view with a legend, as a picture (PNG) or as a film of one turn "
            "(GIF). Click 3D first.",
        )  # fmt: skip
        self.scene.changed.connect(self._show_scene)
        self.scene.shown.connect(partial(self._show_scene, True))
        self.scene.filmed.connect(self._show_filmed)
        grid = QGridLayout()
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        # colours first, so that messages of the other controls do not push them out of view
        lines = (
            ("&Colour", self.colours.by),
            ("&Filter", self._filter),
            ("&Range", self._range_of),
        )
        for number, (text, buddy) in enumerate(lines):
            label = QLabel(text)
            label.setBuddy(buddy)
            # aligned with the first line of the widget beside it
            label.setFixedHeight(buddy.sizeHint().height())
            grid.addWidget(label, 2 * number, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self.colours, 0, 1, 1, 2, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self._filter, 2, 1, 1, 2)
        grid.addWidget(self._problem, 3, 1, 1, 2)
        grid.addWidget(self._range_of, 4, 1, 1, 2)
        grid.addWidget(self._range, 5, 0, 1, 2)
        grid.addWidget(self._range_text, 5, 2)
        return grid

    def _build_buttons(self) -> QHBoxLayout:
        self._copy = QPushButton(
            "Cop&y", minimumWidth=40, clicked=self._copy_rows,
            toolTip="Copy the selected rows, or the form, for a spreadsheet (Ctrl+C in the table).",
        )  # fmt: skip
        line = fill(
            QHBoxLayout(),
            QPushButton(
                "Show &all", minimumWidth=40, clicked=self._reset,
                toolTip="Clear filter, selection and colours.",
            ),
            self._copy,
            QPushButton(
                "&Export …", minimumWidth=40, clicked=self._export,
                toolTip="Save the visible rows, in the order shown, or the form, as CSV.",
            ),
            QPushButton(
                "Sa&ve …", minimumWidth=40, clicked=self._save,
                toolTip="Save labels, tables, record and report as a folder. Drop it on the window "
                "to open it again.",
            ),
        )  # fmt: skip
        line.setSpacing(4)
        return line

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Put the controls beside the table if there is space, otherwise above it."""
        super().resizeEvent(event)
        across = self.width() >= WIDE
        direction = QBoxLayout.Direction
        self._box.setDirection(direction.LeftToRight if across else direction.TopToBottom)
        self._left.setMinimumWidth(NARROW if across else 0)
        self._left.setMaximumWidth(NARROW if across else _ANY)


def _as_table(rows: list[tuple[str, str]]) -> str:
    """Return titles and values as an HTML table."""
    cells = "".join(
        f'<tr><td>{html.escape(title)}</td><td align="right">&nbsp;{html.escape(value)}</td></tr>'
        for title, value in rows
    )
    return f'<table cellspacing="2">{cells}</table>'
