"""The widget that compares two results: overlaid distributions and a table of differences."""

from __future__ import annotations

import html
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from magicgui.widgets import CheckBox, ComboBox
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QAbstractItemView,
    QGridLayout,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
)

from hushpore.base.errors import InputError
from hushpore.figures.drawing import SCREEN, add_legend, draw_sizes, edges_of, frame
from hushpore.io.export import PoreResult
from hushpore.pores.tables.measures import measure_of
from hushpore.pores.tables.totals import total_of
from hushpore.runs.compare import (
    MEDIAN,
    NOT_INDEPENDENT,
    OF_PORES,
    PhaseTables,
    columns_compared,
    compare,
    distributions,
    draw_bars,
    is_of_phases,
    kind_in_words,
    kind_of,
    open_phases,
    quantity_in_words,
    shift_in_words,
    unit_in_words,
)
from hushpore.runs.pore_result import open_result
from hushpore.viewer.forms.fields import keep_narrow
from hushpore.viewer.forms.layout import RichLabel, ScrolledColumn, ValueOf, fill, plain_label, sign
from hushpore.viewer.layers.conversion import scan_of, unwrapped, volume_of
from hushpore.viewer.results.choices import ResultChoice, phases_of
from hushpore.viewer.results.plots import SAVE_TIP, PlotCanvas
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.results.record_panel import ask_for_file, save_table
from hushpore.viewer.running.worker import JobWorker, calling
from hushpore.viewer.running.worker_container import WorkerContainer

if TYPE_CHECKING:
    from hushpore.pores.phases.result import Phases
    from hushpore.runs.pore_result import ResultLike
    from hushpore.viewer.running.problem import Problem

NO_RESULT = (
    "Choose two results to compare, both of pores or both of phases: layers or result folders. For "
    "example a scan before and after denoising, or two samples."
)

#: Weights of the distributions, as named in the combo box.
BY_NUMBER, BY_VOLUME = "by number", "by volume"

#: Width of the column of quantities in pixels.
_FIRST_WIDTH = 130

#: Quantity of pores that is plotted first.
_FIRST = "equivalent_diameter"

#: Titles of the columns, and their tooltips.
_HEADS = {
    "": "Totals, and medians over all pores or throats; for phases, each phase and each contact.",
    "A": "",
    "B": "",
    "Change": "From A to B, in % of A.",
    "KS": "Kolmogorov-Smirnov distance: largest difference between the two cumulative "
    "distributions, from 0 (identical) to 1.",
}

_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True)
class Compared:
    """Two results and their differences, see `hushpore.runs.compare.compare`."""

    first: PoreResult | PhaseTables
    second: PoreResult | PhaseTables
    table: pd.DataFrame
    of_one_scan: bool = False  # so that their pores are no independent samples

    @property
    def pores(self) -> tuple[PoreResult, PoreResult] | None:
        """Both pore results, or None if the results are of phases."""
        if isinstance(self.first, PoreResult) and isinstance(self.second, PoreResult):
            return self.first, self.second
        return None


class CompareWidget(WorkerContainer):
    """Compares two results: overlaid distributions (of phases: bars) and a table of differences.

    A magicgui container of the two results (layers or folders) and the plot settings. The
    comparison starts when another result is chosen; a script calls `run` and waits for the end::

        compare.a.value, compare.b.value = viewer.layers["before"], "results/after"
        compare.run()
        compare.wait().table
    """

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(name="compare")
        self._viewer = napari_viewer
        # collects changes of both boxes and of several tables into one comparison
        self._wait = QTimer(self.native, singleShot=True, interval=0, timeout=self._compare)
        self._build()
        napari_viewer.events.theme.connect(self.draw)
        self._wait.start()

    # ---- comparison

    def run(self) -> JobWorker:
        """Compare the chosen results in a thread; return its worker.

        Raises InputError unless two results are chosen.
        """
        self._wait.stop()
        for before in self._workers:
            before.cancel()
        self._workers.clear()
        self._problem.say("")
        given = [choice.value for choice in (self.a, self.b)]
        if None in given or given[0] is given[1] or given[0] == given[1]:
            self._show(None)
            raise InputError(NO_RESULT)
        sources = [_result_of(each) if hasattr(each, "metadata") else each for each in given]
        are_layers = all(hasattr(each, "metadata") for each in given)
        of_one_scan = are_layers and scan_of(given[0]) == scan_of(given[1])
        worker = JobWorker(partial(calling, _compared, *sources, of_one_scan), "hushpore compares")
        # results of earlier workers are ignored
        worker.returned.connect(partial(self._returned, worker))
        worker.failed.connect(partial(self._failed, worker))
        self._workers.append(worker)
        worker.start()
        return worker

    def _compare(self) -> None:
        with suppress(InputError):
            self.run()

    def _returned(self, worker: JobWorker, found: Compared) -> None:
        if worker is self.worker:
            self._workers.clear()
            self._show(found)
            self.called.emit(found)

    def _failed(self, worker: JobWorker, problem: Problem) -> None:
        if worker is self.worker:
            self._workers.clear()
            self._show(None)
            self._problem.say(f"{sign(not problem.expected)} {html.escape(problem.message)}")
            self.failed.emit(problem)

    def _cancelled(self) -> None:
        """Ignore a cancel: another comparison has started, or the widget is closing."""

    def _show(self, found: Compared | None) -> None:
        self.result = found
        self._nothing.setVisible(found is None)
        for part in (self.canvas, self.table, self._save_table, self._save_plot):
            part.setEnabled(found is not None)
        for widget in self[2:]:
            is_of_use = widget is self.quantity or (found is not None and found.pores is not None)
            widget.enabled = found is not None and is_of_use
        before = self.quantity.choices
        with self.quantity.changed.blocked():
            self.quantity.reset_choices()
            if _FIRST in self.quantity.choices and before != self.quantity.choices:
                self.quantity.value = _FIRST
        if found is None:
            self.table.setRowCount(0)
        else:
            self.table.show_differences(found.table, found.first.name, found.second.name)
        self.draw()

    def _quantities(self, box: Any = None) -> list[tuple[str, str]]:
        """Return titles and names of the quantities that can be plotted.

        Called by napari at any change of the layers.
        """
        found = self.result
        if found is None or found.pores is not None:
            return [(measure_of(column).heading, column) for column in columns_compared()]
        kinds = dict.fromkeys(found.table["quantity"].map(kind_of))
        titles = ((kind_in_words(kind, ""), kind) for kind in kinds)
        return [(title[:1].upper() + title[1:], kind) for title, kind in titles]

    # ---- the plot

    def draw(self, event: Any = None) -> None:
        """Draw both distributions."""
        self.canvas.clear()
        self._shift.say("")
        if self.result is not None and (pores := self.result.pores):
            found = self.result
            shift = shift_in_words(found.table, self.quantity.value, found.of_one_scan)
            self._shift.say(html.escape(shift))
            self._draw(*pores)
        elif self.result is not None:
            self._draw_phases(self.result.table)
        self.canvas.show_figure()

    def _draw_phases(self, table: pd.DataFrame) -> None:
        rows = table[table["quantity"].map(kind_of) == self.quantity.value]
        self.canvas.numbers = rows
        axes = self.canvas.figure.add_subplot()
        rows = rows.assign(unit=[unit_in_words(unit) for unit in rows["unit"]])
        draw_bars(axes, rows, ("A", "B"), SCREEN)
        add_legend(axes)

    def _draw(self, first: PoreResult, second: PoreResult) -> None:
        column, by_volume = self.quantity.value, self.shares.value == BY_VOLUME
        self.canvas.numbers = data = distributions(
            first, second, column, by_volume=by_volume, log=self.log.value
        )
        axes = self.canvas.figure.add_subplot()
        cumulative = self.cumulative.value
        for name, found, colour in zip("ab", (first, second), SCREEN, strict=False):
            label = f"{name.upper()} ({len(found.pores):,} pores)"
            draw_sizes(
                axes, edges_of(data), data[name], colour, label, cumulative=cumulative, fill=0.2
            )
        what = "pore volume" if by_volume else "pores"
        up = f"{what} up to this size (%)" if cumulative else f"share of {what} (%)"
        frame(axes, measure_of(column).titled(first.labels.unit, first.labels.n_spatial), up)
        axes.set_ylim(0, 101 if cumulative else None)
        if self.log.value:
            axes.set_xscale("log")
        add_legend(axes)

    # ---- actions

    def _plot_quantity(self, column: str) -> None:
        if column in self.quantity.choices:
            self.quantity.value = column

    def _ask_table(self) -> None:
        path = ask_for_file(self.native, "Save differences", "compared.csv", "CSV (*.csv)")
        if path is not None and self.result is not None:
            save_table(path, self.result.table)

    def _stop_outside(self, parent: Any) -> None:
        """Also disconnect from the layers when napari removes the widget from its dock."""
        super()._stop_outside(parent)
        if parent is None:
            for choice in (self.a, self.b):
                choice.native.disconnect_layers()

    # ---- appearance

    def _build(self) -> None:
        self.a = ValueOf(lambda: ResultChoice(self._viewer, "A", 1), "a", object)
        self.b = ValueOf(lambda: ResultChoice(self._viewer, "B", 0), "b", object)
        self._nothing, self._problem = plain_label(NO_RESULT), RichLabel(self._viewer)
        self._shift = RichLabel(self._viewer)
        self._shift.setToolTip(NOT_INDEPENDENT)
        self.canvas = PlotCanvas(self._viewer)
        self.canvas.setMinimumHeight(100)
        self.quantity = ComboBox(
            name="quantity", annotation=str, value=_FIRST,
            choices=self._quantities,
            tooltip="Quantity to plot. A click on a row of the table chooses it, too.",
        )  # fmt: skip
        self.shares = ComboBox(
            name="shares", choices=[BY_NUMBER, BY_VOLUME], annotation=str,
            tooltip="Shares of the number of pores, or of their volume.",
        )  # fmt: skip
        for box, name in ((self.quantity, "Quantity"), (self.shares, "Shares")):
            keep_narrow(box.native, name)
        self.log = CheckBox(
            name="log", text="&log", annotation=bool, tooltip="Logarithmic horizontal axis."
        )
        self.cumulative = CheckBox(
            name="cumulative", text="&cumulative", annotation=bool,
            tooltip="Cumulative distribution.",
        )  # fmt: skip
        for widget in (self.quantity, self.shares, self.log, self.cumulative):
            widget.changed.connect(self.draw)
        self.table = DifferenceTable()
        self.table.chosen.connect(self._plot_quantity)
        self._save_plot = QPushButton(
            "Save &plot …",
            toolTip=SAVE_TIP,
            clicked=lambda: self.canvas.ask_and_save("compared.png"),
        )
        self._save_table = QPushButton(
            "Save &table …", toolTip="Save the differences as CSV.", clicked=self._ask_table
        )
        self._lay_out()

    def _lay_out(self) -> None:
        grid = QGridLayout()
        grid.setColumnStretch(1, 1)
        for row, choice in enumerate((self.a.native, self.b.native)):
            label = QLabel(f"&{choice.name}")
            label.setBuddy(choice)
            grid.addWidget(label, row, 0)
            grid.addWidget(choice, row, 1)
            choice.changed.connect(self._wait.start)
        what = fill(QHBoxLayout(), self.quantity.native, self.shares.native)
        what.setStretch(0, 3)
        what.setStretch(1, 2)
        line = fill(QHBoxLayout(), self.log.native, self.cumulative.native, None)
        save = fill(QHBoxLayout(), None, self._save_plot, self._save_table)
        parts = (
            grid,
            self._nothing,
            self._problem,
            what,
            self.canvas,
            self._shift,
            line,
            self.table,
            save,
        )
        # scrolls, so that the widget takes no height from a table below the canvas
        scrolled = ScrolledColumn(*parts, wide=self.canvas)
        scrolled.column.setStretchFactor(self.table, 1)
        fill(self.native.layout(), scrolled)
        # items and attributes of the container; their layout is done above
        self.extend([self.a, self.b, self.quantity, self.shares, self.log, self.cumulative])


def _compared(
    a: ResultLike | Phases, b: ResultLike | Phases, of_one_scan: bool = False
) -> Compared:
    if is_of_phases(a) or is_of_phases(b):
        return Compared(open_phases(a), open_phases(b), compare(a, b), of_one_scan)
    first, second = open_result(a), open_result(b)
    return Compared(first, second, compare(first, second), of_one_scan)


def _result_of(layer: Any) -> PoreResult | Phases:
    """Return the result of a layer, whether it was made here or read from a folder."""
    phases = phases_of(layer)
    if phases is not None:
        return phases
    tables = tables_of(layer)
    assert tables is not None
    throats = tables.throats
    if throats is None:
        throats = pd.DataFrame({"inscribed_diameter": [], "area": []}, dtype=np.float64)
    # not copied, because tables of a layer are replaced, never changed in place
    return PoreResult(
        unwrapped(layer).name, volume_of(layer), tables.pores, throats, {"result": tables.totals}
    )


class DifferenceTable(QTableWidget):
    """The table of `hushpore.runs.compare.compare`, one row for each quantity."""

    #: Emitted with the name of the quantity when a row is chosen.
    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(
            0, len(_HEADS), accessibleName="Differences", minimumHeight=90, tabKeyNavigation=False,
            editTriggers=QAbstractItemView.EditTrigger.NoEditTriggers,
            selectionBehavior=QAbstractItemView.SelectionBehavior.SelectRows,
            selectionMode=QAbstractItemView.SelectionMode.SingleSelection,
        )  # fmt: skip
        self._quantities: list[str] = []
        self.setHorizontalHeaderLabels(list(_HEADS))
        for place, tip in enumerate(_HEADS.values()):
            self.horizontalHeaderItem(place).setToolTip(tip)
        header, side = self.horizontalHeader(), self.verticalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Interactive)
        header.resizeSection(0, _FIRST_WIDTH)
        side.hide()
        # long titles take two lines in a narrow dock
        side.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.currentCellChanged.connect(self._emit_chosen)

    def show_differences(self, table: pd.DataFrame, first: str, second: str) -> None:
        """Show a table, with the names of the results as tooltips of A and B."""
        self._quantities = list(table["quantity"])
        self.setRowCount(len(table))
        for number, row in enumerate(table.itertuples(index=False)):
            shift = f"{100 * row.relative:+.1f} %" if isfinite(row.relative) else ""
            ks = f"{row.ks:.2f}" if isfinite(row.ks) else ""
            title = quantity_in_words(row.quantity, row.unit)
            total = total_of(row.quantity)
            is_share = total.is_share if total is not None else row.quantity.startswith("share of ")
            percent = 100 if is_share else 1
            cells = (title, _digits(percent * row.a), _digits(percent * row.b), shift, ks)
            for place, text in enumerate(cells):
                item = QTableWidgetItem(text)
                if place:
                    item.setTextAlignment(_RIGHT)
                # the full text, which may be too long for the dock
                item.setToolTip(title)
                self.setItem(number, place, item)
        for place, name in ((1, first), (2, second)):
            self.horizontalHeaderItem(place).setToolTip(name)

    def _emit_chosen(self, row: int) -> None:
        quantity = self._quantities[row] if 0 <= row < len(self._quantities) else ""
        if quantity.startswith(MEDIAN) and quantity.endswith(OF_PORES):
            self.chosen.emit(quantity.removeprefix(MEDIAN).removesuffix(OF_PORES))
        else:
            self.chosen.emit(kind_of(quantity))


def _digits(value: float) -> str:
    if not isfinite(value):
        return ""
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"
