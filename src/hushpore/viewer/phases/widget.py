"""The widget that measures phases."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Labels
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHeaderView, QTableWidget, QVBoxLayout, QWidget

from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import known_of
from hushpore.viewer.phases.panel import (
    PhasePanel,
    contacts_of,
    fill_row,
    fit_height,
    phase_layers,
    suit_table,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from napari.layers import Layer

    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.pores.phases.result import Phases
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker


class PhasesWidget(JobWidget):
    """Separates and measures phases; the result is a labels layer with two tables."""

    job = "phases"
    takes_labels = True
    in_one_image = "Phases are measured"
    room_for_result: ClassVar = (0.5, 30)

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self.panel = PhasePanel(napari_viewer, self.layer, self.form)
        self.tables = PhaseTables()
        upper, column = self._upper.column, self._lower.column
        upper.insertWidget(upper.indexOf(self.form.native), self.panel)
        column.insertWidget(column.indexOf(self._result) + 1, self.tables)

    def run(self) -> JobWorker:
        """Start the job, and remove the preview, which the phases replace."""
        worker = super().run()
        self.panel.remove_preview()
        self.tables.hide()
        return worker

    @classmethod
    def result_layers(cls, result: Phases, target: Target) -> list[LayerData]:
        """Return labels in the colours of the phases, regions and thickness."""
        return phase_layers(result, target)

    def settings(self) -> Settings:
        """Return the settings for a run; labels are used as phases."""
        settings = super().settings()
        if isinstance(self.layer.value, Labels):
            return dataclasses.replace(settings, are_labels=True)  # type: ignore[call-arg]
        return settings

    def facts(self, volume: Volume) -> str:
        """Return the line about the layer, with an explanation of labels."""
        facts = super().facts(volume)
        is_labels = isinstance(self.layer.value, Labels)
        return f"{facts} · each label counts as a phase" if is_labels else facts

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        super()._show_outcome(outcome, made)
        self.tables.show_result(outcome.result)

    def _show_message(self) -> None:
        super()._show_message()
        if hasattr(self, "tables"):
            # as long as the message about the run is shown
            message = self._messages.message
            is_chosen = message is not None and message.scan == self._messages.scan
            is_of_scan = is_chosen and self.result is not None
            if is_of_scan:
                self.tables.setVisible(self.tables.has_content)
            elif (measured := _measured(self.layer.value)) is not None:
                self.tables.show_result(measured)
            else:
                self.tables.hide()

    def _set_voxel_size(self, text: str) -> None:
        super()._set_voxel_size(text)
        measured = next(filter(None, map(_measured, [*self._made, self.layer.value])), None)
        if measured is None:
            # areas and lengths do not scale with the voxel shape
            self.tables.clear()
            return
        if self.result is not None:
            self.result = measured
        self.tables.show_result(measured)

    def _forget(self, event: Any) -> None:
        super()._forget(event)
        if self.result is None and hasattr(self, "tables"):
            self.tables.clear()


def _measured(layer: Layer | None) -> Phases | None:
    """Return the measured phases of a layer, if its voxel size has not changed."""
    known = None if layer is None else known_of(layer).get("phases")
    if known is None or not np.allclose(known.volume.spacing, layer.scale):  # type: ignore[union-attr]
        return None
    measured: Phases = known
    return measured


class PhaseTables(QWidget):
    """Tables of phases and of their contacts; hidden while empty."""

    def __init__(self) -> None:
        super().__init__()
        self.phases, self.contacts = QTableWidget(), QTableWidget()
        self.phases.setAccessibleName("Measured phases")
        self.contacts.setAccessibleName("Contacts between phases")
        fill(QVBoxLayout(self), self.phases, self.contacts, spacing=4)
        self.hide()

    @property
    def has_content(self) -> bool:
        """Whether there are rows."""
        return bool(self.phases.rowCount() > 0)

    def clear(self) -> None:
        """Empty and hide the tables."""
        self.phases.setRowCount(0)
        self.hide()

    def show_result(self, result: Phases) -> None:
        """Show the tables of a result."""
        _fill(self.phases, table_of(result), COLOURS)
        _fill(self.contacts, contacts_of(result))
        self.contacts.setVisible(self.contacts.rowCount() > 0)
        self.show()


def _fill(
    table: QTableWidget, rows: Sequence[tuple[str, ...]], colours: Sequence[str] = ()
) -> None:
    head, *body = rows
    table.setColumnCount(len(head))
    table.setHorizontalHeaderLabels(head)
    suit_table(table)
    # a narrow dock cannot show all columns
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
    table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
    table.setRowCount(len(body))
    for row, cells in enumerate(body):
        fill_row(table, row, cells, colours[row] if colours else "")
    fit_height(table)
