"""The table of what differs between two results."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem

from hushpore.base.volume import readable_unit

if TYPE_CHECKING:
    import pandas as pd

#: Titles of the columns, and what they mean.
_HEADS = {
    "": "Totals, and medians over all pores or throats.",
    "A": "",
    "B": "",
    "B - A": "Difference, as a share of A.",
    "KS": "Kolmogorov-Smirnov distance: the largest difference of the two cumulative shares, "
    "0 (alike) to 1.",
}
_MEDIAN, _OF_PORES = "median ", " of pores"
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class DifferenceTable(QTableWidget):
    """Shows the table of `hushpore.runs.compare.compare`, a row a quantity."""

    #: The row of a column of the table of pores was chosen: its name.
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
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        side.hide()
        # in a narrow dock the longest titles take two lines
        side.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.currentCellChanged.connect(self._tell)

    def clear_differences(self) -> None:
        """Show nothing."""
        self._quantities = []
        self.setRowCount(0)

    def show_differences(self, table: pd.DataFrame, first: str, second: str) -> None:
        """Show a table, and in the tips of A and B what they are."""
        self._quantities = list(table["quantity"])
        self.setRowCount(len(table))
        for number, row in enumerate(table.itertuples(index=False)):
            shift = f"{100 * row.relative:+.3g} %" if isfinite(row.relative) else ""
            ks = f"{row.ks:.2f}" if isfinite(row.ks) else ""
            title = _title(row.quantity, row.unit)
            cells = (title, _digits(row.a), _digits(row.b), shift, ks)
            for place, text in enumerate(cells):
                item = QTableWidgetItem(text)
                if place:
                    item.setTextAlignment(_RIGHT)
                # what is too long for the dock is shown whole where the pointer rests
                item.setToolTip(title)
                self.setItem(number, place, item)
        for place, name in ((1, first), (2, second)):
            self.horizontalHeaderItem(place).setToolTip(name)

    def _tell(self, row: int) -> None:
        quantity = self._quantities[row] if 0 <= row < len(self._quantities) else ""
        if quantity.startswith(_MEDIAN) and quantity.endswith(_OF_PORES):
            self.chosen.emit(quantity.removeprefix(_MEDIAN).removesuffix(_OF_PORES))


def _title(quantity: str, unit: str) -> str:
    """Return a quantity as it is read: 'equivalent diameter (µm)', 'throats: area (µm²)'."""
    name = quantity.removeprefix(_MEDIAN).replace("_", " ")
    if name.endswith(" of throats"):
        name = f"throats: {name.removesuffix(' of throats')}"
    name, power = name.removesuffix(_OF_PORES), 1
    if unit.startswith("1/"):
        unit, power = unit.removeprefix("1/"), -1
    elif "^" in unit:
        unit, _, digit = unit.partition("^")
        power = int(digit)
    return f"{name} ({readable_unit(unit, power)})" if unit else name


def _digits(value: float) -> str:
    if not isfinite(value):
        return ""
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"
