"""The table of pores, and the filter of its rows."""

from __future__ import annotations

import ast
import difflib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from qtpy.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    Qt,
    Signal,
)
from qtpy.QtGui import QColor, QKeySequence
from qtpy.QtWidgets import QAbstractItemView, QApplication, QHeaderView, QTableView

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_number
from hushpore.io.results import as_csv
from hushpore.pores.tables.measures import PORES, measure_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Int64s, Mask
    from hushpore.pores.tables.measures import Measure


#: Maximum length of a filter in characters; longer ones could exceed Python's recursion limit.
LONGEST = 1000

_WORDS = {"&": " and ", "&&": " and ", "|": " or ", "||": " or ", "~": " not "}
_HOW = "Write, for example: equivalent_diameter > 20 and not is_open"

#: What Python's grammar also has, but a condition on rows has not.
_REFUSED = ast.Attribute | ast.Call | ast.Subscript | ast.Lambda | ast.IfExp | ast.comprehension


def filter_rows(text: str, table: pd.DataFrame) -> Mask:
    """Return which rows of a table pass a filter.

    `text`: comparisons of columns and numbers, joined by ``and``, ``or``, ``not`` (or ``& | ~``,
    with the precedence of the words) and parentheses; empty for all rows. `table`: numeric and bool
    columns.
    Returns: (rows,), bool. A comparison with a missing number (NaN) is false.
    Raises InputError if the filter is invalid, names an unknown column, or is not a condition.

    Examples
    --------
    >>> import pandas as pd
    >>> pores = pd.DataFrame({"volume": [1.0, 8.0, 27.0], "is_open": [True, True, False]})
    >>> filter_rows("volume > 2 & is_open", pores)
    array([False,  True, False])
    """
    if not text.strip():
        return np.ones(len(table), np.bool_)
    if len(text) > LONGEST:
        raise InputError(f"The filter has {len(text)} characters; at most {LONGEST} are allowed.")
    words = re.sub(r"&&?|\|\|?|~", lambda found: _WORDS[found.group()], text).strip()
    try:
        tree = ast.parse(words, mode="eval")
        parts = list(ast.walk(tree))
        for part in parts:
            if isinstance(part, ast.Name):
                _require_numbers(part.id, table)
            elif isinstance(part, ast.Constant) and type(part.value) is int:
                # because powers of large integers could take very long
                part.value = float(part.value)
        if any(isinstance(part, _REFUSED) for part in parts):
            raise ValueError
        with np.errstate(all="ignore"):
            passing = np.asarray(table.eval(ast.unparse(tree), engine="python"))
    except InputError:
        raise
    except OverflowError:
        raise InputError("A number in the filter is too large: use at most 1e308.") from None
    except Exception:  # pandas has no error of its own for what it cannot evaluate
        if re.search(r"[^=<>!]=[^=]", text):
            raise InputError("To test for equality, write == (two equals signs).") from None
        raise InputError(f"The filter cannot be read: {text.strip()}. {_HOW}") from None
    if passing.dtype != np.bool_:
        raise InputError(f"'{text}' is a number; compare it with one, for example {text} > 10.")
    return np.broadcast_to(passing, len(table)).copy()


def _require_numbers(name: str, table: pd.DataFrame) -> None:
    """Raise InputError unless there is a column of this name, and it is numeric or bool."""
    if name not in table.columns:
        near = near_names(name, [str(column) for column in table.columns])
        hint = f"did you mean {' or '.join(near)}?" if near else f"available: {', '.join(table)}."
        raise InputError(f"There is no column {name}: {hint}")
    if table[name].dtype.kind not in "buif":
        raise InputError(f"The column {name} contains text, not numbers.")


def near_names(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """Return the names that the user may have meant, the most likely first.

    These are names with a similar spelling and names that contain the given one.

    Examples
    --------
    >>> near_names("diameter", ["volume", "equivalent_diameter", "inscribed_diameter"])
    ['inscribed_diameter', 'equivalent_diameter']
    """
    word = name.lower()
    spelt = difflib.get_close_matches(word, names, most)
    parts = [each for each in names if len(word) > 2 and (word in each or each in word)]
    return list(dict.fromkeys([*spelt, *parts]))[:most]


_UP = Qt.SortOrder.AscendingOrder
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter

#: Minimum width of a column in pixels: four digits with an exponent.
NARROW = 72

#: Columns of labels; their numbers are not quantities.
NAMES = ("label", "pore_1", "pore_2")


class TableModel(QAbstractTableModel):
    """A table model that sorts and filters by index arrays.

    Positions are row numbers of the whole table; Qt counts the visible rows.

    `colours`: of the rows of the whole table, shown in the first column; by default none.
    `whole`: the whole table. `positions`: shape (visible rows,): position of each visible row.
    `on_top`: shape (positions,), bool: rows to put first at the next `arrange`.
    """

    def __init__(self, measures: Sequence[Measure[Any]]) -> None:
        super().__init__()
        self._measures = measures
        self.colours: Sequence[str] = ()
        self.show_table(pd.DataFrame())

    def show_table(self, table: pd.DataFrame, unit: str = "", n_spatial: int = 3) -> None:
        """Show all rows of another table, in its order."""
        self.beginResetModel()
        self.whole = table
        self._columns = [table[name].to_numpy() for name in table.columns]
        measures = [self._measure(name) for name in table.columns]
        self._titles = [two_lines(each.heading, each.unit(unit, n_spatial)) for each in measures]
        self._mask = np.ones(len(table), np.bool_)
        self.on_top = np.zeros(len(table), np.bool_)
        self._order = self.positions = np.arange(len(table))
        self.endResetModel()

    @property
    def table(self) -> pd.DataFrame:
        """The visible rows, in the order shown."""
        return self.whole.iloc[self.positions]

    def show_only(self, mask: Mask) -> None:
        """Show the rows with True in `mask`, (positions,)."""
        self._mask = mask
        self.arrange()

    def sort(self, column: int, order: Qt.SortOrder = _UP) -> None:
        """Sort by a column; equal rows keep the order of the table, missing numbers are last."""
        self._order = np.arange(len(self.whole))
        if 0 <= column < len(self._columns):
            values = pd.Series(self._columns[column])
            values = values.sort_values(ascending=order == _UP, kind="stable")
            self._order = values.index.to_numpy()
        self.arrange()

    def rowCount(self, parent: QModelIndex | None = None) -> int:  # noqa: N802
        """Return the number of visible rows."""
        return 0 if parent is not None and parent.isValid() else len(self.positions)

    def columnCount(self, parent: QModelIndex | None = None) -> int:  # noqa: N802
        """Return the number of columns."""
        return 0 if parent is not None and parent.isValid() else len(self._columns)

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return the text or the alignment of a cell."""
        if role == Qt.ItemDataRole.DisplayRole:
            value = self._columns[index.column()][self.positions[index.row()]]
            # the label of a pore has no thousands separator
            is_name = self.whole.columns[index.column()] in NAMES
            return str(value) if is_name else cell_text(value)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _RIGHT
        if role == Qt.ItemDataRole.DecorationRole and self.colours and not index.column():
            return QColor(self.colours[self.positions[index.row()]])
        return None

    def headerData(  # noqa: N802
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return the title of a column with its unit, or its tooltip: meaning and column name."""
        if orientation == Qt.Orientation.Horizontal:
            if role == Qt.ItemDataRole.DisplayRole:
                return self._titles[section]
            if role == Qt.ItemDataRole.ToolTipRole:
                name = self.whole.columns[section]
                meaning = self._measure(name).meaning
                return f"{meaning}\nIn filters and files: {name}".strip()
        return None

    def _measure(self, column: str) -> Measure[Any]:
        return measure_of(column, self._measures)

    def arrange(self) -> None:
        """Order the rows, with the rows of `on_top` first."""
        self.beginResetModel()
        rows = self._order[self._mask[self._order]]
        top = self.on_top[rows]
        self.positions = np.r_[rows[top], rows[~top]]
        self.endResetModel()


def cell_text(value: Any) -> str:
    """Return a value as text: four digits, yes or no, a dash if it is missing."""
    if isinstance(value, np.bool_ | bool):
        return "yes" if value else "no"
    if isinstance(value, np.floating | float):
        return "–" if np.isnan(value) else readable_number(float(value), 4)
    return f"{value:,}" if isinstance(value, np.integer | int) else str(value)


@cache
def two_lines(heading: str, unit: str) -> str:
    """Return heading and unit of a column in two lines of similar length.

    Examples
    --------
    >>> two_lines("Equivalent diameter", "mm").split(chr(10))
    ['Equivalent', 'diameter, mm']
    """
    words = f"{heading}, {unit}".split(" ") if unit else heading.split(" ")
    ways = [(" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(1, len(words) + 1)]
    # always two lines, so that all titles are equally high
    return "\n".join(min(ways, key=lambda lines: max(map(len, lines))))


class TableView(QTableView):
    """A table view of a `TableModel`, with selection of rows and Ctrl+C to copy them.

    `measures`: measures of the columns; by default those of pores.
    """

    #: Emitted when the user has selected rows: shape (positions,), bool.
    chosen = Signal(object)

    def __init__(self, name: str, measures: Sequence[Measure[Any]] = PORES) -> None:
        super().__init__(
            accessibleName=name, sortingEnabled=True, wordWrap=False, tabKeyNavigation=False,
            selectionBehavior=QAbstractItemView.SelectionBehavior.SelectRows,
        )  # fmt: skip
        self.rows = TableModel(measures)
        self.setModel(self.rows)
        side, header = self.verticalHeader(), self.horizontalHeader()
        side.hide()
        side.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        side.setMinimumSectionSize(1)
        side.setDefaultSectionSize(self.fontMetrics().height() + 3)
        header.setSortIndicatorClearable(True)
        header.setSortIndicator(-1, _UP)
        header.setDefaultAlignment(_RIGHT)
        self._mask = np.zeros(0, np.bool_)
        self._is_user_selection = True
        self.selectionModel().selectionChanged.connect(self._selected)
        self.rows.modelReset.connect(self._select_again)

    def show_table(self, table: pd.DataFrame, unit: str = "", n_spatial: int = 3) -> None:
        """Show another table, with nothing selected."""
        self._mask = np.zeros(len(table), np.bool_)
        self.horizontalHeader().setSortIndicator(-1, _UP)
        self.rows.show_table(table, unit, n_spatial)
        metrics = self.horizontalHeader().fontMetrics()
        for number in range(self.rows.columnCount()):
            title = self.rows.headerData(number, Qt.Orientation.Horizontal)
            width = max(metrics.horizontalAdvance(line) for line in title.split("\n"))
            self.setColumnWidth(number, max(NARROW, width + 26))

    def height_of(self, rows: int) -> int:
        """Return the height in pixels for some rows, with title and scroll bar."""
        bar: int = self.horizontalScrollBar().sizeHint().height()
        title: int = self.horizontalHeader().sizeHint().height()
        row: int = self.verticalHeader().defaultSectionSize()
        return title + rows * row + bar + 2 * int(self.frameWidth()) + 6

    def select(self, mask: Mask) -> None:
        """Select the rows with True in `mask`, (positions,), without a signal.

        Scrolls to a single row. Several rows are moved to the top, because rows scattered over
        thousands would not be visible, and slow to draw.
        """
        self._mask = mask
        self.rows.on_top = mask
        if np.count_nonzero(mask) > 1:
            self.rows.arrange()
        else:
            self._select_again()

    def chosen_positions(self) -> Int64s:
        """Return the positions of the selected rows, in the order shown."""
        return self.rows.positions[self._mask[self.rows.positions]]

    def copy(self) -> None:
        """Copy the selected rows with titles, for a spreadsheet."""
        table = self.rows.whole.iloc[self.chosen_positions()]
        QApplication.clipboard().setText(as_csv(table, separator="\t") or "")

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Copy the selected rows with Ctrl+C."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
            event.accept()
        else:
            super().keyPressEvent(event)

    def _selected(self, *_: Any) -> None:
        """Update the selection from the view."""
        if not self._is_user_selection:
            return
        mask = np.zeros(len(self._mask), np.bool_)
        for part in self.selectionModel().selection():
            mask[self.rows.positions[part.top() : part.bottom() + 1]] = True
        self._mask = mask
        self.rows.on_top = mask
        self.chosen.emit(mask)

    def _select_again(self) -> None:
        """Restore the selection in the view after a change of the order."""
        self._is_user_selection = False
        rows = np.flatnonzero(self._mask[self.rows.positions])
        chosen = QItemSelection()
        # neighbouring rows as one range
        for stretch in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if stretch.size:
                first = self.rows.index(int(stretch[0]), 0)
                last = self.rows.index(int(stretch[-1]), self.rows.columnCount() - 1)
                chosen.select(first, last)
        self.selectionModel().select(chosen, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if rows.size:
            self.scrollTo(self.rows.index(int(rows[0]), 0))
        self._is_user_selection = True
