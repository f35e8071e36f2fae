import ast

import pytest
from qtpy.QtWidgets import QApplication

import hushpore
from hushpore.jobs import JOBS
from hushpore.runs import presets
from hushpore.runs.presets import remember
from hushpore.viewer.forms import presets as row_module
from hushpore.viewer.forms.form import SettingsForm
from hushpore.viewer.forms.presets import PresetRow, as_python

PORES = JOBS["pores"].settings
SHIPPED = presets.shipped_presets("pores")


@pytest.fixture
def row(qtbot):
    form = SettingsForm(PORES)
    row = PresetRow("pores", form)
    qtbot.addWidget(form.native)
    qtbot.addWidget(row)
    return row


def entries(row):
    return [row._box.itemText(number) for number in range(row._box.count())]


def choose(row, name):
    row._box.setCurrentText(name)
    row._box.activated.emit(row._box.currentIndex())


def test_at_first_there_are_the_defaults(row):
    assert entries(row) == ["Default", *SHIPPED, "Custom"]
    assert row._box.currentText() == "Default"
    assert not row._delete.isEnabled()


def test_saved_settings_are_chosen_again_by_name(row):
    row._form.value = PORES(merge_height=2.5, pore_type="closed")
    assert row._box.currentText() == "Custom"
    row.save("bread")
    assert row._box.currentText() == "bread"
    choose(row, "Default")
    assert row._form.value == PORES()
    choose(row, "bread")
    assert row._form.value == PORES(merge_height=2.5, pore_type="closed")
    assert presets.load_preset("bread", "pores") == PORES(merge_height=2.5, pore_type="closed")


def test_settings_put_into_the_form_show_the_preset_that_they_are(row):
    presets.save_preset("crumb", "pores", PORES(merge_height=2.5))
    presets.save_preset("noise", "denoise", JOBS["denoise"].settings(steps=5))
    row.refresh()
    assert entries(row) == ["Default", *SHIPPED, "crumb", "Custom"]
    row._form.value = PORES(merge_height=2.5)
    assert row._box.currentText() == "crumb"
    row._form.reset()
    assert row._box.currentText() == "Default"


def test_one_of_two_with_the_same_values_stays_chosen(row):
    presets.save_preset("a", "pores", PORES(merge_height=2.5))
    presets.save_preset("b", "pores", PORES(merge_height=2.5))
    row.refresh()
    choose(row, "b")
    assert row._box.currentText() == "b"


def test_a_preset_is_deleted(row):
    row._form.value = PORES(merge_height=2.5)
    row.save("bread")
    row._delete.click()
    assert entries(row) == ["Default", *SHIPPED, "Custom"]
    assert presets.list_presets() == []
    # what the form holds is not touched
    assert row._form.value == PORES(merge_height=2.5)


def test_a_name_is_asked_for(row, monkeypatch):
    asked = []

    def answer(*words, text):
        asked.append(text)
        return " bread ", True

    monkeypatch.setattr(row_module.QInputDialog, "getText", answer)
    row._form.value = PORES(merge_height=2.5)
    row._save.click()
    row._save.click()
    assert asked == ["", "bread"]
    assert presets.list_presets("pores") == ["bread"]


def test_a_name_that_cannot_be_used_is_explained(row, monkeypatch):
    said = []
    monkeypatch.setattr(row_module, "show_warning", said.append)
    row.save("../x")
    assert "is not a valid name of a preset" in said[0]


def test_what_was_last_used_can_be_chosen_and_not_deleted(row):
    remember("pores", PORES(merge_height=1.75))
    row.refresh()
    assert entries(row) == ["Default", "Last used", *SHIPPED, "Custom"]
    choose(row, "Last used")
    assert row._form.value == PORES(merge_height=1.75)
    assert not row._delete.isEnabled()


def test_one_that_ships_is_chosen_and_not_deleted(row):
    choose(row, "Bread")
    assert row._form.value == presets.load_preset("Bread", "pores") != PORES()
    assert row._box.currentText() == "Bread"
    assert not row._delete.isEnabled()
    assert "Only presets that you saved can be deleted." in row._delete.toolTip()


@pytest.mark.parametrize("job", JOBS)
def test_settings_are_copied_as_a_call_of_the_library(job):
    kind = JOBS[job].settings
    settings = kind(memory_budget=2.5) if "memory_budget" in kind().to_dict() else kind()
    code = ast.parse(as_python(job, settings)).body[-1].value
    assert hasattr(hushpore, code.func.attr)
    given = {each.arg: ast.literal_eval(each.value) for each in code.keywords}
    assert kind(**given) == settings
    assert len(given) == (settings != kind())


def test_the_call_is_in_the_clipboard(row):
    row._form.value = PORES(merge_height=2.5, pore_type="closed")
    row._python.click()
    copied = QApplication.clipboard().text().splitlines()[-1]
    assert copied.startswith("result = hushpore.segment_pores(scan, ")
    assert "merge_height=2.5" in copied
    assert "pore_type='closed'" in copied
