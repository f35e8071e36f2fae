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
        parts = ScrolledColumn(Block(upper)), Block(40), ScrolledColumn(Block(lower))
        column = PinnedColumn(*parts)
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


def test_the_bar_keeps_its_place_whatever_is_above_and_below(pinned):
    places = {
        column.bar.geometry().getRect()
        for upper in (80, 2000)
        for lower in (0, 150, 2000)
        if (column := pinned(upper, lower, 500))
    }
    assert places == {(0, 288, 300, 40)}


def test_the_bar_keeps_its_place_when_messages_come_and_go(qtbot, pinned):
    column = pinned(300, 20, 400)
    before = column.bar.geometry()
    label = QLabel("many words that do not fit into a line " * 6, wordWrap=True)
    column.lower.column.insertWidget(0, label)
    settle()
    assert label.height() >= label.heightForWidth(label.width()) > 2 * label.fontMetrics().height()
    assert column.bar.geometry() == before
    label.setText("few")
    settle()
    assert column.bar.geometry() == before


def test_all_of_the_height_is_used(pinned):
    column = pinned(2000, 2000, 500)
    assert column.upper.geometry().bottom() + 2 == column.bar.y()
    assert column.bar.geometry().bottom() + 1 == column.lower.y()
    assert column.lower.geometry().bottom() == column.rect().bottom()
    # a high window gives the form what is left
    high = pinned(2000, 2000, 1200)
    below = 1200 - high.bar.y()
    assert below - 19 * high.fontMetrics().height() in range(8)


def test_it_never_makes_a_window_grow(pinned):
    column = pinned(900, 900, 300)
    assert column.minimumSizeHint().height() < 150
    assert column.height() == 300
