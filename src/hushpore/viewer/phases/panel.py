"""What stands above the form of phases: histogram, lines to drag, colours and names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Image
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor, QPixmap
from qtpy.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QHeaderView,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from hushpore.base.errors import HushporeError, InputError
from hushpore.pores.phases.multi_otsu import find_thresholds
from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.phases.histogram import PhaseHistogram
from hushpore.viewer.phases.layers import PhasePreview
from hushpore.viewer.running.latest_only import LatestOnlyWorker
from hushpore.viewer.running.target import capture
from hushpore.viewer.segment.grey_histogram import readable_grey
from hushpore.viewer.segment.threshold_panel import count_greys, round_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.volume import Volume
    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.preview import GreySurvey
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.forms.layer_choice import LayerChoice
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.target import Target

#: Pixels along the side of a patch of colour.
_PATCH = 12


class PhasePanel(QWidget):
    """Shows the grey values of the chosen layer; moving a line sets the thresholds in the form.

    What is in the form counts: lines and names are as it says, whoever put them there.

    `form`: of `PhaseSettings`. `greys`: what is known of the grey values of the chosen layer.
    `thresholds`: those that a run would take, as far as they are known.
    """

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        super().__init__()
        self._viewer, self._layers, self._form = viewer, layers, form
        self._target: Target | None = None
        self.greys: GreySurvey | None = None
        self.thresholds: tuple[float, ...] = ()
        # by layer: the values that were counted, and what was found
        self._surveys: WeakKeyDictionary[Any, tuple[Any, GreySurvey]] = WeakKeyDictionary()
        self.preview = PhasePreview(viewer)
        self._counting = LatestOnlyWorker("grey values")
        self._build()
        self._counting.returned.connect(self._counted)
        self._counting.failed.connect(self._failed)
        self.preview.dismissed.connect(partial(self.show_phases, False))
        self.preview.message_changed.connect(self._say)
        layers.changed.connect(self.follow)
        form.changed.connect(self._show)
        self.follow()

    @property
    def is_busy(self) -> bool:
        """Whether something is being counted or painted."""
        return self._counting.is_busy or self.preview.is_busy

    def follow(self) -> None:
        """Count the grey values of the layer that is chosen now."""
        layer = self._layers.value
        is_grey = isinstance(layer, Image) and layer.dtype != np.bool_
        self.setVisible(is_grey)
        self._form.know(holds_labels=layer is not None and not isinstance(layer, Image))
        labels = tuple(self._viewer.dims.axis_labels[-layer.ndim :]) if is_grey else ()
        try:
            target = capture(layer, labels) if is_grey else None
        except HushporeError:
            # said in the line of facts
            target = None
        if target is not None and self._shows(target.volume):
            # its name or place has changed
            self._target = target
            self._show()
            return
        self._counting.cancel()
        self.preview.hide()
        self._target = target
        counted, greys = self._surveys.get(layer, (None, None)) if is_grey else (None, None)
        self._set_survey(greys if target is not None and counted is target.volume.data else None)
        if target is not None and self.greys is None:
            self.histogram.show_lines({}, reason="Counting the grey values …")
            work = partial(count_greys, target.volume)
            self._counting.submit(work, (layer, target.volume))

    def show_phases(self, are_shown: bool) -> None:
        """Show the phases on the slice on the screen, or none."""
        self._shown.setChecked(are_shown)

    def _shows(self, volume: Volume) -> bool:
        return self._target is not None and self._target.volume.data is volume.data

    # ---- what comes from the thread

    def _counted(self, tag: tuple[Any, Volume], greys: GreySurvey) -> None:
        layer, volume = tag
        self._surveys[layer] = (volume.data, greys)
        if self._shows(volume):
            self._set_survey(greys)

    def _failed(self, tag: tuple[Any, Volume], problem: Problem) -> None:
        if self._shows(tag[1]):
            self.histogram.show_lines({}, reason="No histogram")
            self._say(problem.message)

    def _set_survey(self, greys: GreySurvey | None) -> None:
        """Show the grey values of a volume, once they are known."""
        self.greys = greys
        self.histogram.show_greys(greys)
        self._say("")
        if greys is not None:
            low, high = float(greys.range.low), float(greys.range.high)
            whole = np.asarray(greys.range.low).dtype.kind in "iu"
            self.histogram.step = 1.0 if whole else round_step((high - low) / 500)
        self._show()

    # ---- in step with the form

    def _show(self) -> None:
        """Let lines, names and preview be as the form says."""
        settings = self._settings()
        if settings is None:
            return
        self.thresholds = settings.grey_values
        reason = ""
        if not self.thresholds and self.greys is not None:
            try:
                self.thresholds = find_thresholds(self.greys.histogram, settings.phases)
            except InputError as error:
                reason = "No thresholds"
                self._say(str(error))
        self._form.know(thresholds=self.thresholds)
        self._otsu.setEnabled(bool(settings.grey_values))
        if self.greys is None:
            self._fill_table(())
            return
        lines = {str(number): value for number, value in enumerate(self.thresholds, 1)}
        self.histogram.show_lines(lines, reason=reason)
        try:
            self._fill_table(settings.named(len(lines) + 1) if lines else ())
        except InputError as error:
            # more names than phases
            self._say(str(error))
        if self._shown.isChecked() and self._target is not None and self.thresholds:
            self.preview.show(self._target, settings, self.thresholds, self.greys)

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
        self.show_phases(True)
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
        self.histogram = PhaseHistogram(self._viewer)
        self.histogram.moved.connect(self._moved)
        self._shown = QCheckBox(
            "Show phases", toggled=self._shown_toggled,
            toolTip="Paint the phases on the slice on the screen as these thresholds make them, "
            "without the air around the sample, which is looked for slice by slice here; a sample "
            "mask counts only in the run. Moving a line switches it on, Run switches it off.",
        )  # fmt: skip
        self._log = QCheckBox(
            "Log", toggled=self.histogram.set_log,
            toolTip="A logarithmic scale of counts: small peaks are seen beside large ones.",
        )  # fmt: skip
        self._otsu = QPushButton(
            "Multi-Otsu", clicked=self._find_again,
            toolTip="Drop the thresholds that are set, and have multi-Otsu find as many as there "
            "are phases.",
        )  # fmt: skip
        for widget in (self._shown, self._log, self._otsu):
            widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._table = QTableWidget(0, 3)
        self._table.setHorizontalHeaderLabels(["Phase", "Grey values", "Voxels"])
        self._table.setAccessibleName("Phases: names, grey values and shares")
        self._table.setToolTip("Double-click a name to change it.")
        suit_table(self._table)
        self._table.itemChanged.connect(self._renamed)
        self._line = plain_label()
        self._line.hide()
        row = fill(QHBoxLayout(), self._shown, self._log, None, self._otsu)
        fill(QVBoxLayout(self), self.histogram, row, self._table, self._line, spacing=4)

    def _fill_table(self, names: Sequence[str]) -> None:
        """Show names, grey values, and which share of the voxels lies between these."""
        greys = self.greys
        self._table.setVisible(bool(names))
        if greys is None or not names:
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

    def _shown_toggled(self, are_shown: bool) -> None:
        if are_shown:
            self._show()
        else:
            self.preview.hide()

    def _say(self, text: str) -> None:
        self._line.setText(text)
        self._line.setVisible(bool(text))

    def hideEvent(self, event: Any) -> None:  # noqa: N802
        """Take the phases of the slice away with the panel."""
        super().hideEvent(event)
        self.preview.hide()

    def showEvent(self, event: Any) -> None:  # noqa: N802
        """Bring them back."""
        super().showEvent(event)
        self._show()


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
    """Make a table as high as its rows."""
    rows = table.verticalHeader().defaultSectionSize() * table.rowCount()
    table.setFixedHeight(table.horizontalHeader().sizeHint().height() + rows + 2)


def _as_text(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in values)
