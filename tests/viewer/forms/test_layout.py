import pytest
from qtpy.QtWidgets import QApplication, QLabel, QWidget

from hushpore.viewer.forms.layout import PinnedColumn, ScrolledColumn


class Block(QWidget):
    """A widget of one height."""

    def __init__(self, height):
        super().__init__()
        self.setFixedHeight(height)


@pytest.fixture
def pinned(qtbot):
    def make(upper, lower, height):
        column = PinnedColumn(ScrolledColumn(Block(upper)), ScrolledColumn(Block(lower)))
        qtbot.addWidget(column)
        column.resize(300, height)
        column.show()
        settle()
        return column

    return make


def settle():
    for _ in range(5):
        QApplication.processEvents()


def is_seen_whole(column):
    return column.verticalScrollBar().maximum() == 0


def test_the_lower_column_is_seen_whole_however_long_the_upper_one_is(pinned):
    column = pinned(2000, 150, 400)
    assert is_seen_whole(column.lower)
    assert not is_seen_whole(column.upper)
    assert column.lower.geometry().bottom() == column.rect().bottom()


def test_a_high_lower_column_leaves_the_upper_one_its_share(pinned):
    column = pinned(2000, 2000, 500)
    assert column.upper.height() == pytest.approx(200, abs=2)
    assert not is_seen_whole(column.lower)


def test_what_the_upper_column_does_not_need_the_lower_one_may_take(pinned):
    column = pinned(80, 380, 500)
    assert is_seen_whole(column.lower)
    assert is_seen_whole(column.upper)


def test_it_never_makes_a_window_grow(pinned):
    column = pinned(900, 900, 300)
    assert column.minimumSizeHint().height() < 150
    assert column.height() == 300


def test_a_line_that_wraps_has_room_for_all_its_lines(qtbot, pinned):
    column = pinned(2000, 20, 400)
    label = QLabel("many words that do not fit into a line " * 6, wordWrap=True)
    column.lower.column.insertWidget(0, label)
    settle()
    assert label.height() >= label.heightForWidth(label.width()) > 2 * label.fontMetrics().height()
    assert is_seen_whole(column.lower)
    label.setText("few")
    qtbot.waitUntil(lambda: column.lower.height() < 100, timeout=2000)
