import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel

from hushpore.viewer.forms.docking import NameBox, NameLabel

LONG = "a very long name of a scan of bread, as scanners give it, 2026-11-26 "


@pytest.fixture
def label(qtbot):
    label = NameLabel()
    qtbot.addWidget(label)
    label.resize(200, 20)
    return label


def test_a_long_name_loses_its_middle(label):
    label.setText(LONG + "pores")
    assert "…" in QLabel.text(label)
    assert QLabel.text(label).endswith("pores")
    assert label.toolTip() == LONG + "pores"
    label.show()
    label.resize(2000, 20)
    assert QLabel.text(label) == LONG + "pores"


def test_markup_in_a_name_is_no_markup(label):
    label.setText("<b>5 & 6")
    assert QLabel.text(label) == "<b>5 & 6"
    assert label.textFormat() == Qt.TextFormat.PlainText
    label.setText("")
    assert label.text() == label.toolTip() == ""


def test_names_that_end_differently_look_different_in_a_combo_box(qtbot):
    box = NameBox()
    qtbot.addWidget(box)
    box.addItems([LONG + "denoised", LONG + "removed"])
    box.resize(250, 25)
    before = box.grab().toImage()
    box.setCurrentIndex(1)
    assert box.grab().toImage() != before
    assert box.currentText() == LONG + "removed"
