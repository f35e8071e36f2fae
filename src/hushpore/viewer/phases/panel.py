"""What stands above the form of phases: histogram, lines to drag, colours and names."""

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
from hushpore.pores.phases.multi_otsu import find_thresholds
from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.phases.layers import PhasePreview
from hushpore.viewer.segment.grey_histogram import GreyHistogram
from hushpore.viewer.segment.grey_panel import GreyPanel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from qtpy.QtGui import QPainter

    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.preview import GreySurvey
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.forms.layer_choice import LayerChoice


class PhaseHistogram(GreyHistogram):
    """Draws how often each grey value occurs, and the thresholds between phases as lines.

    Lines are called by the number of the phase below them.
    """

    TIP = (
        "How often each grey value occurs, in the colours of the phases. Drag a line, or click, to "
        "move the nearest threshold; or the arrow keys, with Shift in larger steps. Up and down "
        "take the next line"
    )

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Draw all of it; numbers of lines where they have room."""
        self._written: list[tuple[float, float]] = []
        super().paintEvent(event)

    def _kinds(
        self, values: npt.NDArray[np.float64], pale: QColor
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
            # it is in the table, too
            return
        self._written.append((left - 4, left + width + 4))
        painter.setPen(text)
        painter.drawText(QPointF(left, metrics.ascent() + 1), label)

    def _word(self, name: str) -> str:
        return f"threshold above phase {name}"


#: Pixels along the side of a patch of colour.
_PATCH = 12


class PhasePanel(GreyPanel):
    """Shows the grey values of the chosen layer; moving a line sets the thresholds in the form.

    `form`: of `PhaseSettings`. `thresholds`: those that a run would take, as far as they are known.
    """

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        shown = QCheckBox(
            "Show phases",
            toolTip="Paint the phases on the slice on the screen as these thresholds make them, "
            "without the air around the sample, which is looked for slice by slice here; a sample "
            "mask counts only in the run. Moving a line switches it on, Run switches it off.",
        )  # fmt: skip
        super().__init__(viewer, layers, form, PhaseHistogram(viewer), PhasePreview(viewer), shown)
        self.thresholds: tuple[float, ...] = ()
        self._build()
        self.follow()

    def _tell_form(self, layer: Any) -> None:
        self._form.know(holds_labels=layer is not None and not isinstance(layer, Image))

    # ---- in step with the form

    def _show(self) -> None:
        """Let lines, names and preview be as the form says."""
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
            # more names than phases
            self._say(str(error))
        if self.shown.isChecked() and self._target is not None and self.thresholds:
            self.preview.show(self._target, settings, self.thresholds, greys)

    def _moved(self, name: str, value: float) -> None:
        """Set a threshold anew, between its neighbours."""
        step, values = self.histogram.step, list(self.thresholds)
        at = int(name) - 1
        moved = self.histogram.rounded(value)
        if at > 0:
            moved = max(moved, values[at - 1] + step)
        if at + 1 < len(values):
            moved = min(moved, values[at + 1] - step)
        before, after = values[max(at - 1, 0)], values[min(at + 1, len(values) - 1)]
        if (at > 0 and moved <= before) or (at + 1 < len(values) and moved >= after):
            # there is no room between them
            self._show()
            return
        values[at] = round(moved, 9)
        self.shown.setChecked(True)
        self._form["thresholds"].value = _as_text(values)

    def _renamed(self, item: QTableWidgetItem) -> None:
        """Take a name from the table into the form."""
        settings = self._settings()
        if settings is None or item.column():
            return
        count = self._table.rowCount()
        words = [item.text().replace(",", " ").strip() for item in self._names(count)]
        unnamed = [f"phase {number}" for number in range(1, count + 1)]
        # what is called by its number needs no name
        words = ["" if word == usual else word for word, usual in zip(words, unnamed, strict=True)]
        while words and not words[-1]:
            words.pop()
        self._form["names"].value = ", ".join(words)
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

    # ---- how it looks

    def _build(self) -> None:
        self._otsu = QPushButton(
            "Multi-Otsu", clicked=self._find_again,
            toolTip="Drop the thresholds that are set, and have multi-Otsu find as many as there "
            "are phases.",
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
        """Show names, grey values, and which share of the voxels lies between these."""
        self._table.setVisible(bool(names))
        if not names:
            return
        ends = [float(greys.range.low), *self.thresholds, float(greys.range.high)]
        up_to = [0.0, *(greys.share_up_to(value) for value in self.thresholds), 1.0]
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
    """Let a small table of text be as wide as its place, and as high as its rows."""
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 8)
    table.setSelectionMode(QTableWidget.SelectionMode.SingleSelection)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    # from one to the next with the arrow keys; the tab key leads on
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
    """Write a row: its first cell with a patch of colour, numbers to the right."""
    for column, text in enumerate(cells):
        item = QTableWidgetItem(text)
        if column or not can_be_named:
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEditable)
        if column:
            item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        elif colour:
            patch = QPixmap(_PATCH, _PATCH)
            patch.fill(QColor(colour))
            item.setData(Qt.ItemDataRole.DecorationRole, patch)
        table.setItem(row, column, item)


def fit_height(table: QTableWidget) -> None:
    """Make a table as high as its rows, and its scroll bar where it may have one."""
    rows = table.verticalHeader().defaultSectionSize() * table.rowCount()
    bar = 0
    if table.horizontalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff:
        bar = table.horizontalScrollBar().sizeHint().height()
    table.setFixedHeight(table.horizontalHeader().sizeHint().height() + rows + bar + 2)


def _as_text(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in values)
