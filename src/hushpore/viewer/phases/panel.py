"""The panel above the form of phases: histogram with thresholds, colours and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from napari.layers import Image
from qtpy.QtCore import QPointF, Qt
from qtpy.QtGui import QColor, QPixmap
from qtpy.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QHeaderView,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
)
from superqt.utils import signals_blocked

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_grey
from hushpore.pores.phases.labelling import find_thresholds
from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.phases.layers import PhasePreview
from hushpore.viewer.segment.grey_histogram import GreyHistogram
from hushpore.viewer.segment.grey_panel import GreyPanel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from qtpy.QtGui import QPainter

    from hushpore.base.arrays import Float64s
    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.preview import GreySurvey
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.forms.layer_choice import LayerChoice


class PhaseHistogram(GreyHistogram):
    """A histogram of grey values, with the thresholds between phases as lines.

    The name of a line is the number of the phase below it.
    """

    TIP = (
        "Histogram of the grey values in the colours of the phases. Drag a line or click to move "
        "the nearest threshold, or use the left and right keys (Shift: larger steps). Up and down "
        "select the next line"
    )

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Draw the histogram; values of lines only where there is space."""
        self._written: list[tuple[float, float]] = []
        super().paintEvent(event)

    def _kinds(
        self, values: Float64s, pale: QColor
    ) -> tuple[list[QColor], npt.NDArray[np.integer[Any]]]:
        if not self.lines:
            return [pale], np.zeros(values.size, np.int64)
        return [QColor(each) for each in COLOURS], np.searchsorted([*self.lines.values()], values)

    def _paint_label(
        self, painter: QPainter, text: QColor, name: str, value: float, x: float
    ) -> None:
        label, metrics = readable_grey(value), painter.fontMetrics()
        width = metrics.horizontalAdvance(label)
        left = min(max(x - width / 2, 2.0), self.width() - width - 2.0)
        if any(left < end and start < left + width for start, end in self._written):
            # the value is also in the table
            return
        self._written.append((left - 4, left + width + 4))
        painter.setPen(text)
        painter.drawText(QPointF(left, metrics.ascent() + 1), label)

    def _word(self, name: str) -> str:
        return f"threshold above phase {name}"


#: Side of a colour swatch in pixels.
_SWATCH = 12


class PhasePanel(GreyPanel):
    """The histogram of the input layer; moving a line sets the thresholds in the form.

    `form`: the form of `PhaseSettings`. `thresholds`: thresholds of the next run, if known.
    """

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        shown = QCheckBox(
            "Show phases",
            toolTip="Overlay the phases at these thresholds on the slice. Surrounding air is found "
            "slice by slice here; a sample mask is used in the run only.",
        )  # fmt: skip
        super().__init__(viewer, layers, form, PhaseHistogram(viewer), PhasePreview(viewer), shown)
        self.thresholds: tuple[float, ...] = ()
        self._build()
        self.follow()

    def _tell_form(self, layer: Any) -> None:
        self._form.know(holds_labels=layer is not None and not isinstance(layer, Image))

    # ---- synchronized with the form

    def _show(self) -> None:
        """Update lines, names and preview from the form."""
        settings = self._settings()
        if settings is None:
            return
        self.thresholds = settings.grey_values
        greys = None if self.greys is None else self.greys.of(settings.of_pores(0.0))
        reason = ""
        if not self.thresholds and greys is not None:
            try:
                self.thresholds = find_thresholds(greys.histogram, settings.phases)
            except InputError as error:
                reason = "No thresholds"
                self._say(str(error))
        self._form.know(thresholds=self.thresholds)
        self._otsu.setEnabled(bool(settings.grey_values))
        if greys is None:
            self._table.hide()
            return
        lines = {str(number): value for number, value in enumerate(self.thresholds, 1)}
        self.histogram.show_lines(lines, reason=reason)
        try:
            self._fill_table(settings.named(len(lines) + 1) if lines else (), greys)
        except InputError as error:
            # there are more names than phases
            self._say(str(error))
        if self.shown.isChecked() and self._target is not None and self.thresholds:
            self.preview.show(self._target, settings, self.thresholds, greys)

    def _moved(self, name: str, value: float) -> None:
        """Set a moved threshold in the form, between its neighbours."""
        step, values = self.histogram.step, list(self.thresholds)
        at = int(name) - 1
        moved = self.histogram.rounded(value)
        if at > 0:
            moved = max(moved, values[at - 1] + step)
        if at + 1 < len(values):
            moved = min(moved, values[at + 1] - step)
        before, after = values[max(at - 1, 0)], values[min(at + 1, len(values) - 1)]
        if (at > 0 and moved <= before) or (at + 1 < len(values) and moved >= after):
            # no space between the neighbours
            self._show()
            return
        values[at] = round(moved, 9)
        self.shown.setChecked(True)
        self._form["thresholds"].value = _as_text(values)

    def _renamed(self, item: QTableWidgetItem) -> None:
        """Set a name from the table in the form."""
        settings = self._settings()
        if settings is None or item.column():
            return
        count = self._table.rowCount()
        names = [item.text().replace(",", " ").strip() for item in self._names(count)]
        unnamed = [f"phase {number}" for number in range(1, count + 1)]
        # default names are left out
        names = ["" if name == usual else name for name, usual in zip(names, unnamed, strict=True)]
        while names and not names[-1]:
            names.pop()
        self._form["names"].value = ", ".join(names)
        self._show()

    def _names(self, count: int) -> list[QTableWidgetItem]:
        return [cast("QTableWidgetItem", self._table.item(row, 0)) for row in range(count)]

    def _settings(self) -> PhaseSettings | None:
        try:
            found = cast("PhaseSettings", self._form.value)
        except InputError as error:
            self._say(str(error))
            return None
        self._say("")
        return found

    # ---- appearance

    def _build(self) -> None:
        self._otsu = QPushButton(
            "Multi-Otsu", clicked=self._find_again,
            toolTip="Find the thresholds with multi-Otsu again.",
        )  # fmt: skip
        self._otsu.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._table = QTableWidget(0, 3)
        self._table.setHorizontalHeaderLabels(["Phase", "Grey values", "Voxels"])
        self._table.setAccessibleName("Phases: names, grey values and shares")
        self._table.setToolTip("Double-click a name to change it.")
        suit_table(self._table)
        self._table.itemChanged.connect(self._renamed)
        row = fill(QHBoxLayout(), self.shown, self._log, None, self._otsu)
        fill(QVBoxLayout(self), self.histogram, row, self._table, self._line, spacing=4)

    def _fill_table(self, names: Sequence[str], greys: GreySurvey) -> None:
        """Show the name, the range of grey values and the share of voxels of each phase."""
        self._table.setVisible(bool(names))
        if not names:
            return
        ends = [float(greys.range.low), *self.thresholds, float(greys.range.high)]
        up_to = [0.0, *(greys.histogram.share_beyond(value) for value in self.thresholds), 1.0]
        with signals_blocked(self._table):
            self._table.setRowCount(len(names))
            for row, name in enumerate(names):
                low, high = (readable_grey(end) for end in ends[row : row + 2])
                share = f"{100 * max(up_to[row + 1] - up_to[row], 0.0):.3g} %"
                cells = (name, f"{low} – {high}", share)
                fill_row(self._table, row, cells, COLOURS[row], can_be_named=True)
        fit_height(self._table)

    def _find_again(self) -> None:
        self._form["thresholds"].value = ""


def suit_table(table: QTableWidget) -> None:
    """Prepare a small table of text that is as high as its rows."""
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 8)
    table.setSelectionMode(QTableWidget.SelectionMode.SingleSelection)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    # arrow keys move between cells, the Tab key leaves the table
    table.setTabKeyNavigation(False)
    header = table.horizontalHeader()
    header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
    header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)


def fill_row(
    table: QTableWidget,
    row: int,
    cells: Sequence[str],
    colour: str = "",
    *,
    can_be_named: bool = False,
) -> None:
    """Fill a row: a colour swatch in the first cell, numbers aligned right."""
    for column, text in enumerate(cells):
        item = QTableWidgetItem(text)
        if column or not can_be_named:
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEditable)
        if column:
            item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        elif colour:
            swatch = QPixmap(_SWATCH, _SWATCH)
            swatch.fill(QColor(colour))
            item.setData(Qt.ItemDataRole.DecorationRole, swatch)
        table.setItem(row, column, item)


def fit_height(table: QTableWidget) -> None:
    """Make a table as high as its rows and its scroll bar, if any."""
    rows = table.verticalHeader().defaultSectionSize() * table.rowCount()
    bar = 0
    if table.horizontalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff:
        bar = table.horizontalScrollBar().sizeHint().height()
    table.setFixedHeight(table.horizontalHeader().sizeHint().height() + rows + bar + 2)


def _as_text(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in values)
