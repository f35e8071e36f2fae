import numpy as np
import pandas as pd
import pytest
from qtpy.QtCore import QItemSelectionModel, Qt
from qtpy.QtWidgets import QApplication

from hushpore.pores.tables.measures import measure_of
from hushpore.viewer.results.table import TableView, cell_text

TABLE = pd.DataFrame(
    {
        "label": [1, 2, 3, 4, 5],
        "volume": [3.0, np.nan, 1.0, 3.0, 2.0],
        "is_open": [True, False, True, False, True],
    }
)


@pytest.fixture
def view(qtbot):
    view = TableView("pores")
    qtbot.addWidget(view)
    view.show_table(TABLE, "um")
    return view


def labels(view):
    return [int(view.rows.data(view.rows.index(row, 0))) for row in range(view.rows.rowCount())]


def user_selects(view, *rows):
    flag = QItemSelectionModel.SelectionFlag
    for row in rows:
        view.selectionModel().select(view.rows.index(row, 0), flag.Select | flag.Rows)


def test_titles_carry_units_and_say_what_they_mean(view):
    title = view.rows.headerData(1, Qt.Orientation.Horizontal)
    assert title == "Volume,\nµm³"
    tip = view.rows.headerData(1, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)
    assert "area" in tip
    assert tip.endswith("files: volume")


def test_columns_are_as_narrow_as_two_lines_of_their_titles(view):
    assert view.rows.headerData(2, Qt.Orientation.Horizontal).split("\n")[0] == "Open"
    view.show_table(pd.DataFrame({"equivalent_diameter": [1.0], "x": [2.0]}), "mm")
    title = view.rows.headerData(0, Qt.Orientation.Horizontal)
    assert title.split("\n") == ["Equivalent", "diameter, mm"]
    advance = view.horizontalHeader().fontMetrics().horizontalAdvance
    assert advance("diameter, mm") < view.columnWidth(0) < advance("Equivalent diameter, mm")


def test_names_of_columns_are_written_in_words():
    names = [
        "num_voxels",
        "bbox_z_start",
        "is_open",
        "axis_direction_z",
        "touches_border",
        "axis_num_is",
    ]
    assert [measure_of(name).heading for name in names] == [
        "Number of voxels",
        "Bounding box z start",
        "Open",
        "Axis direction z",
        "Touches border",
        "Axis num is",
    ]


def test_it_knows_how_high_it_is_with_some_rows_in_sight(qtbot, view):
    view.show_table(pd.DataFrame({"label": range(1, 41)}))
    view.resize(300, view.height_of(12))
    view.show()
    qtbot.waitExposed(view)
    last = view.rowAt(view.viewport().height() - 1)
    # where all columns fit there is room for a bar more
    assert 11 <= last <= 13


def test_sorting_is_that_of_pandas(view):
    for order, ascending in (
        (Qt.SortOrder.AscendingOrder, True),
        (Qt.SortOrder.DescendingOrder, False),
    ):
        view.sortByColumn(1, order)
        expected = TABLE.sort_values("volume", ascending=ascending, kind="stable")
        assert labels(view) == expected["label"].tolist()


def test_a_filter_keeps_the_order(view):
    view.sortByColumn(1, Qt.SortOrder.DescendingOrder)
    view.rows.show_only(TABLE["is_open"].to_numpy())
    assert labels(view) == [1, 5, 3]
    assert view.rows.table["label"].tolist() == [1, 5, 3]


def test_what_the_user_selects_is_told_by_its_place_in_the_table(view, qtbot):
    view.sortByColumn(1, Qt.SortOrder.DescendingOrder)
    told = []
    view.chosen.connect(told.append)
    user_selects(view, 0, 2)
    assert told[-1].tolist() == [True, False, False, False, True]


def test_a_selection_from_elsewhere_is_not_told_back(view):
    told = []
    view.chosen.connect(told.append)
    view.select(np.array([False, True, False, False, True]))
    assert not told
    assert labels(view) == [2, 5, 1, 3, 4]
    assert len(view.selectionModel().selectedRows()) == 2


def test_the_selection_stays_with_its_pores_when_rows_move(view):
    user_selects(view, 1)
    view.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    chosen = [index.data() for index in view.selectionModel().selectedRows(0)]
    assert chosen == ["2"]
    view.rows.show_only(TABLE["is_open"].to_numpy())
    assert not view.selectionModel().selectedRows(0)
    view.rows.show_only(np.ones(5, bool))
    assert [index.data() for index in view.selectionModel().selectedRows(0)] == ["2"]


def test_rows_are_copied_as_a_spreadsheet_takes_them(view):
    view.select(np.array([True, False, True, False, False]))
    view.copy()
    lines = QApplication.clipboard().text().splitlines()
    assert lines == ["label\tvolume\tis_open", "1\t3.0\tTrue", "3\t1.0\tTrue"]


def test_cells_are_short():
    values = (np.float64(1234567), np.nan, np.bool_(True), np.int32(12345))
    assert [cell_text(value) for value in values] == ["1,235,000", "–", "yes", "12,345"]
