import html

import pytest

from hushpore.base.events import Note, Remedy
from hushpore.pores.settings import PoreSettings
from hushpore.viewer.forms.rich_label import RemarkList, link, unbroken


@pytest.fixture
def notes(qtbot, viewer):
    notes = RemarkList(viewer)
    qtbot.addWidget(notes)
    return notes


def test_one_note_is_in_sight_and_nothing_is_folded(notes):
    notes.show_remarks([Note("slice 6 is missing")])
    assert "slice 6" in notes._first.text()
    assert notes._fold.isHidden()


def test_of_several_notes_a_warning_is_in_sight_and_the_others_fold(notes):
    notes.show_remarks([Note("one"), Note("two"), Note("grey values shift", warning=True)])
    assert "grey values shift" in notes._first.text()
    assert not notes._fold.isHidden()
    assert notes._fold.button.text().strip() == "2 more remarks"
    assert not notes._fold.button.isChecked()
    assert all(word in notes.text() for word in ("one", "two", "shift"))


def test_a_link_chooses_the_remedy_of_its_remark(qtbot, notes):
    notes.reword = PoreSettings.as_in_a_form
    remedy = Remedy("Exclude them", {"minimum_voxels": 8})
    small = Note("5 pores are small (minimum_voxels=1).", True, "result", remedy)
    notes.show_remarks([Note("one"), small])
    assert "'Minimum pore size' = 1" in html.unescape(notes._first.text())
    assert "⚠" in notes._first.text()
    with qtbot.waitSignal(notes.remedy_chosen) as chosen:
        notes._first.linkActivated.emit("remedy 0")
    assert chosen.args == [remedy]


def test_without_notes_it_takes_no_room(notes):
    assert notes.isHidden()
    notes.show_remarks([Note("one"), Note("two")])
    notes.show_remarks(())
    assert notes.isHidden()
    assert not notes.text()


def test_what_belongs_to_the_word_before_stays_on_its_line():
    assert unbroken("0.067 % of 5 mm") == "0.067\u00a0% of 5\u00a0mm"
    assert "Save result\u00a0…" in link("save", "Save result …")
