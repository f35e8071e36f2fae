import pytest

from hushpore.base.events import Note
from hushpore.viewer.forms.rich_label import NoteMessages, link, unbroken


@pytest.fixture
def notes(qtbot, viewer):
    notes = NoteMessages(viewer)
    qtbot.addWidget(notes)
    return notes


def test_one_note_is_in_sight_and_nothing_is_folded(notes):
    notes.show_notes([Note("slice 6 is missing")])
    assert "slice 6" in notes._first.text()
    assert notes._fold.isHidden()


def test_of_several_notes_a_warning_is_in_sight_and_the_others_fold(notes):
    notes.show_notes([Note("one"), Note("two"), Note("grey values shift", warning=True)])
    assert "grey values shift" in notes._first.text()
    assert not notes._fold.isHidden()
    assert notes._fold.button.text().strip() == "2 more notes"
    assert not notes._fold.button.isChecked()
    assert all(word in notes.text() for word in ("one", "two", "shift"))


def test_without_notes_it_takes_no_room(notes):
    assert notes.isHidden()
    notes.show_notes([Note("one"), Note("two")])
    notes.show_notes(())
    assert notes.isHidden()
    assert not notes.text()


def test_what_belongs_to_the_word_before_stays_on_its_line():
    assert unbroken("0.067 % of 5 mm") == "0.067\u00a0% of 5\u00a0mm"
    assert "Save result\u00a0…" in link("save", "Save result …")
