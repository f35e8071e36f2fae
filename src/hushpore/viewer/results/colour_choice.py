"""The choice of what pores are coloured by, and what the colours mean."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.utils.colormaps import AVAILABLE_COLORMAPS
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QComboBox, QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from hushpore.pores.tables.measures import measure_of
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import RichLabel, link
from hushpore.viewer.results.pore_view import COLORMAPS, is_categorical
from hushpore.viewer.results.table import cell_text

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.viewer.results.pore_view import PoreView

#: The entry of the combo box that gives colours at random.
RANDOM = "random"

#: What the choice of a colour map says while none is used.
_FIRST = "Choose a column to colour by first."


class ColourChoice(QWidget):
    """Colours the pores by a column: of numbers along a colour map, of kinds each in its own.

    `by`, `map`: the column, and the colour map of numbers. `legend`: the kinds, their colours and
    how many pores are of each.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._view: PoreView | None = None
        self.by = ColumnBox(toolTip="Colour the labels by a column of the table.")
        self.map = compact_combo_box(toolTip=_FIRST, accessibleName="Colour map")
        # for the whole of 'Equivalent diameter' beside it
        self.map.setMinimumContentsLength(3)
        self.map.addItems(COLORMAPS)
        for box in (self.by, self.map):
            box.currentIndexChanged.connect(self._colour)
        self.bar = ColourBar()
        self.bar.hide()
        self.legend = RichLabel(viewer)
        self.legend.setToolTip("What the colours mean, and how many; a click selects them.")
        self.legend.linkActivated.connect(self._select)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(4)
        for column, (box, share) in enumerate(((self.by, 2), (self.map, 1))):
            grid.setColumnStretch(column, share)
            grid.addWidget(box, 0, column)
        grid.addWidget(self.bar, 1, 0, 1, 2)
        grid.addWidget(self.legend, 2, 0, 1, 2)

    def show_view(self, view: PoreView | None) -> None:
        """List the columns of a view that hold numbers or kinds; of None keep what is there."""
        self._view = view
        if view is not None:
            table = view.tables.pores
            numbers = numeric_columns(table)
            others = (name for name in table if name not in numbers)
            kinds = [name for name in others if is_categorical(table[name])]
            self.by.list_columns([RANDOM, *numbers, *kinds], view.column or RANDOM)
            self.show_colours()

    def show_colours(self) -> None:
        """Say what the colours mean."""
        view = self._view
        assert view is not None
        kinds, column = view.categories(), view.column
        with signals_blocked(self.by), signals_blocked(self.map):
            self.by.choose(column or RANDOM)
            self.map.setCurrentText(view.colormap)
        has_map = bool(column) and not kinds
        self.map.setEnabled(has_map)
        self.map.setToolTip(
            "Colours of the column, from its lowest to its highest value." if has_map
            else "Each kind has a colour of its own, below." if kinds
            else _FIRST
        )  # fmt: skip
        self.bar.setVisible(has_map)
        if has_map:
            self.bar.show_map(view.colormap, view.limits(), view.tables.unit_of(column))
        self.legend.say(
            " &nbsp; ".join(
                f'<span style="color: {kind.colour[:7]}">■</span>&nbsp;'
                + link(str(number), f"{html.escape(kind.word)} {np.count_nonzero(kind.rows):,}")
                for number, kind in enumerate(kinds)
            )
        )

    def _colour(self) -> None:
        if self._view is not None:
            column = self.by.column()
            self._view.colour_by("" if column == RANDOM else column, self.map.currentText())

    def _select(self, number: str) -> None:
        """Select the pores of a kind that pass the filter."""
        if self._view is not None:
            self._view.select(self._view.categories()[int(number)].rows & self._view.shown, self)


def compact_combo_box(**properties: Any) -> QComboBox:
    """Return a combo box that does not ask for the width of its longest entry."""
    policy = QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
    return QComboBox(**{"sizeAdjustPolicy": policy, "minimumContentsLength": 6, **properties})


class ColumnBox(QComboBox):
    """A combo box of columns, in words and with what they mean.

    ``**properties``: of the box.
    """

    def __init__(self, **properties: Any) -> None:
        policy = QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        super().__init__(**{"sizeAdjustPolicy": policy, "minimumContentsLength": 6, **properties})

    def list_columns(self, names: list[str], chosen: str) -> None:
        """List columns, by the names that they have in a table, without telling so."""
        with signals_blocked(self):
            # with each step of a drag they are of another result, and nearly always the same
            if names != [self.itemData(row) for row in range(self.count())]:
                self._list(names)
            self.choose(chosen)

    def column(self) -> str:
        """Return the name of the column that is chosen; empty where none is."""
        return str(self.currentData() or "")

    def choose(self, name: str) -> None:
        """Choose a column by its name."""
        self.setCurrentIndex(self.findData(name))

    def _list(self, names: list[str]) -> None:
        self.clear()
        for row, name in enumerate(names):
            self.addItem(_in_words(name), name)
            self.setItemData(row, measure_of(name).meaning, Qt.ItemDataRole.ToolTipRole)


def _in_words(name: str) -> str:
    return name if name == RANDOM else measure_of(name).heading


def numeric_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns of a table of pores that hold numbers, but for those of bounding boxes."""
    kinds = zip(table, table.dtypes, strict=True)
    return [name for name, kind in kinds if kind.kind in "uif" and not name.startswith("bbox")]


class ColourBar(QWidget):
    """A colour map with the values at its ends."""

    def __init__(self) -> None:
        super().__init__()
        self._strip, self._low, self._high = QLabel(), QLabel(), QLabel()
        self._strip.setFixedHeight(8)
        ends = fill(QHBoxLayout(), self._low, None, self._high)
        fill(QVBoxLayout(self), self._strip, ends, spacing=0)
        self.setFixedHeight(self.fontMetrics().height() + 12)

    def show_map(self, name: str, limits: tuple[float, float], unit: str) -> None:
        """Show a colour map between two values."""
        shares = np.linspace(0, 1, 16)
        colours = AVAILABLE_COLORMAPS[name].map(shares)
        stops = (
            f"stop: {share} {QColor.fromRgbF(*map(float, colour)).name()}"
            for share, colour in zip(shares, colours, strict=True)
        )
        self._strip.setStyleSheet(
            f"background: qlineargradient(x1: 0, y1: 0, x2: 1, y2: 0, {', '.join(stops)})"
        )
        low, high = (cell_text(limit) for limit in limits)
        self._low.setText(f"≤ {low} {unit}".strip())
        self._high.setText(f"≥ {high} {unit}".strip())
        self.setToolTip(f"From {low} to {high} {unit}: 98 % of the pores lie between.")
