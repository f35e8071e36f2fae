from __future__ import annotations

import ast
import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from magicgui.backends._qtpy.widgets import QFILE_DIALOG_MODES
from magicgui.types import FileDialogMode
from qtpy.QtCore import QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QLabel

import hushpore
from hushpore import InputError, jobs
from hushpore.base.settings import Settings, option
from hushpore.jobs import JOBS
from hushpore.runs import presets
from hushpore.runs.presets import remember
from hushpore.viewer.forms import form as row_module
from hushpore.viewer.forms.form import PresetRow, SettingsForm, as_python


@dataclass(frozen=True)
class Example(Settings):
    rate: float = option(4e-4, "How fast.", minimum=1e-6, maximum=1.0, step=1e-4)
    count: int = option(3, "How many.", minimum=0, unit="px")
    limit: float | None = option(
        None, "When to stop.", unit="s", minimum=1, step=10, none="no limit"
    )
    batch: int | None = option(None, "Patches.", minimum=1)
    threshold: str | float = option("otsu", "Where to cut.", choices=("otsu", "li"))
    kind: str = option("dark", "Which.", choices=("dark", "bright"), more="Further")
    closed: bool = option(False, "Whether it is closed.", label="Closed border", more="Further")
    sharp: bool | None = option(None, "Whether it is sharpened.", more="Others")
    rank: int = option(2, "2 or 3.", minimum=2, maximum=3, more="Others")
    name: str = option("", "Any text.", more="Others")


def labels_of(form):
    return [label.text() for label in form.native.findChildren(QLabel)]


VALUES = st.fixed_dictionaries(
    {
        "rate": st.integers(1, 10_000).map(lambda n: n * 1e-4),
        "count": st.integers(0, 2**31 - 1),
        "limit": st.none() | st.integers(1, 10**6).map(float),
        "batch": st.none() | st.integers(1, 2**31 - 1),
        "threshold": st.sampled_from(["otsu", "li"]) | st.integers(-32768, 65535).map(float),
        "kind": st.sampled_from(["dark", "bright"]),
        "closed": st.booleans(),
        "sharp": st.none() | st.booleans(),
        "rank": st.sampled_from([2, 3]),
        "name": st.text(st.characters(categories=("L", "N", "Zs")), max_size=8),
    }
)


@pytest.fixture
def form(qtbot):
    form = SettingsForm(Example)
    qtbot.addWidget(form.native)
    return form


@pytest.mark.parametrize("job", sorted(jobs.JOBS))
def test_a_new_form_shows_the_defaults(qtbot, job):
    kind = jobs.JOBS[job].settings
    form = SettingsForm(kind)
    qtbot.addWidget(form.native)
    assert form.value == kind()
    groups = list(dict.fromkeys(["", *(option.more for option in kind.options())]))
    in_groups = sorted(kind.options(), key=lambda option: groups.index(option.more))
    assert [field.name for field in form] == [option.name for option in in_groups]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(values=VALUES)
def test_what_is_set_is_what_is_read(form, values):
    wanted = Example(**values)
    form.value = wanted
    read = form.value.to_dict()
    assert read.pop("rate") == pytest.approx(wanted.rate)
    assert read == {name: value for name, value in wanted.to_dict().items() if name != "rate"}


def test_folded_settings_are_grouped_under_headings_and_found_by_any_word(form):
    form.more.set_open(True)
    headings = {name: label.text() for name, label in form._groups.items()}
    assert headings == {"Further": "<b>Further</b>", "Others": "<b>Others</b>"}

    def found():
        return [field.name for field in form if field.option.more and not field.native.isHidden()]

    everything = found()
    form._search.setText("sharpened")
    assert found() == ["sharp"]
    assert form._groups["Further"].isHidden()
    assert not form._groups["Others"].isHidden()
    # also by group and by several words, and those shown at first stay
    form._search.setText("further border")
    assert found() == ["closed"]
    form._search.clear()
    assert found() == everything


@pytest.mark.parametrize("job", sorted(jobs.JOBS))
def test_every_setting_of_a_job_is_in_its_form_and_three_or_fewer_are_shown_at_first(job):
    options = jobs.JOBS[job].settings.options()
    assert sum(not option.more for option in options) <= 3
    form = SettingsForm(jobs.JOBS[job].settings)
    assert {field.name for field in form} == {option.name for option in options}


def test_what_may_be_left_open_is_asked_in_words(form):
    box = form.sharp.native
    assert [box.itemText(row) for row in range(box.count())] == ["Automatic", "Yes", "No"]
    assert box.currentText() == "Automatic"
    box.setCurrentText("No")
    assert form.value.sharp is False


def test_a_small_number_is_not_shown_as_zero(form):
    spin = form.rate.native
    assert spin.text() == "0.0004"
    spin.stepUp()
    assert form.value.rate == pytest.approx(5e-4)


def test_none_is_shown_in_the_words_of_the_setting(form):
    spin = form.limit.native
    assert spin.text() == "no limit"
    spin.stepUp()
    assert form.value.limit == 1.0
    assert spin.text() == "1 s"


def test_every_setting_explains_itself(form):
    form.more.set_open(True)
    for field in form:
        assert field.tooltip == field.option.help, field.name
        assert field.native.toolTip() == field.option.help, field.name
    assert "Closed border" in labels_of(form)


def test_every_field_stands_beside_its_name(form):
    form.more.set_open(True)
    form.native.show()
    for field in form:
        (title,) = [
            label
            for label in form.native.findChildren(QLabel)
            if label.text() == field.option.label and label.parent() is field.native.parent()
        ]
        assert title.geometry().right() < field.native.geometry().left(), field.name
        assert abs(title.geometry().center().y() - field.native.geometry().center().y()) < 3


def test_a_threshold_of_ones_own_has_a_number_to_set(form):
    field = form.threshold
    box, spin = field.native.findChild(QComboBox), field.native.findChild(QAbstractSpinBox)
    assert spin.isHidden()
    field.suggest(120.5)
    box.setCurrentText("Manual")
    assert not spin.isHidden()
    assert form.value.threshold == 120.5
    field.suggest(7.0)
    assert form.value.threshold == 120.5
    box.setCurrentText("li")
    assert form.value.threshold == "li"


def test_rarely_needed_settings_are_folded_away_and_changed_ones_marked(form):
    assert not form.more.button.isChecked()
    assert form.more.button.text().strip() == "More"
    form.closed.value = True
    assert form.more.button.text().strip() == "More (1 changed)"
    form.more.set_open(True)
    assert form.more.button.isChecked()
    assert "Closed border •" in labels_of(form)


def test_reset_brings_the_defaults_back(form):
    assert form._reset.isHidden()
    form["count"].value = 9
    form.closed.value = True
    assert not form._reset.isHidden()
    form._reset.click()
    assert form.value == Example()
    assert form._reset.isHidden()


def test_a_number_outside_its_limits_is_refused_in_words(form):
    form.limit.native.setValue(0.5)
    with pytest.raises(InputError, match="limit must be a number of at least 1"):
        _ = form.value


def test_the_wheel_scrolls_past_a_number_that_has_no_focus(qtbot, form):
    spin = form["count"].native
    event = QWheelEvent(
        QPointF(5, 5),
        QPointF(5, 5),
        QPoint(0, 120),
        QPoint(0, 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(spin, event)
    assert form.value.count == 3


@dataclass(frozen=True)
class Short(Settings):
    seed: int = option(0, "Start of the random numbers.", minimum=0)


def test_a_form_with_nothing_to_fold_still_can_be_reset(qtbot):
    form = SettingsForm(Short)
    qtbot.addWidget(form.native)
    form.seed.value = 3
    assert form.more.button.isHidden()
    assert not form._reset.isHidden()


@dataclass(frozen=True)
class Telling(Settings):
    length: float = option(1.0, "How long.", minimum=0)
    name: str = option("", "Any text.")
    level: float | None = option(None, "How bright.", none="any")
    end: str | float = option("last", "Where to end.", choices=("last",))

    def hints(self, known):
        unit = known.get("unit", "")
        return {"length": f"Twice is {2 * self.length:g} {unit}."} if self.length else {}

    def unused(self, known):
        return {"name": "Not used: there is no length."} if not self.length else {}


@pytest.fixture
def telling(qtbot):
    form = SettingsForm(Telling)
    qtbot.addWidget(form.native)
    return form


def test_a_line_under_a_control_says_what_its_value_comes_to(telling):
    line = telling._lines["length"]
    assert line.text() == "Twice is 2 ."
    telling.know(unit="mm")
    assert line.text() == "Twice is 2\xa0mm."
    telling.length.value = 4.0
    assert line.text() == "Twice is 8\xa0mm."
    telling.length.value = 0.0
    assert line.isHidden()
    assert telling._lines["name"].isHidden()


def test_a_control_without_effect_cannot_be_used_and_says_why(telling):
    field = telling["name"]
    assert field.enabled
    telling.length.value = 0.0
    assert not field.enabled
    assert field.tooltip == "Not used: there is no length.\nAny text."
    assert telling._titles["name"].toolTip() == field.tooltip
    telling.length.value = 1.0
    assert field.enabled
    assert field.tooltip == "Any text."


def test_the_default_is_said_of_what_is_changed(telling):
    telling.length.value = 4.0
    assert telling.length.tooltip == "How long.\nDefault: 1"


def test_numbers_suit_the_values_of_a_layer(telling):
    level, end = telling.level, telling.end
    level.suit(0.001, "a.u.", (0.0, 0.05))
    end.suit(0.001, "a.u.")
    assert level.value is None
    spin = level.native
    assert spin.text() == "any"
    spin.stepUp()
    assert level.value == 0.0
    level.value = 0.0123
    assert spin.text() == "0.0123 a.u."
    end.value = 0.0042
    assert telling.value.end == 0.0042


def test_what_suits_another_layer_changes_no_value(telling):
    level = telling.level
    level.suit(1, "a.u.", (7000, 37000))
    level.suit(0.1, "a.u.", (20, 180))
    assert level.value is None
    level.value = 150
    level.suit(1, "a.u.", (7000, 37000))
    assert level.value == 150
    level.suit(0.1, "a.u.", (20, 100))
    assert level.value == 150


def test_what_cannot_be_read_leaves_all_controls_to_be_set_right(telling):
    telling.length.value = 0.0
    assert not telling["name"].enabled
    telling.length.native.setMinimum(-5)
    telling.length.native.setValue(-1.0)
    assert telling["name"].enabled


@dataclass(frozen=True)
class Paths(Settings):
    model: str = option("", "What was learnt.", path="file")
    kept: str = option("", "Where it is kept.", path="new file")
    place: str = option("", "Where to work.", path="folder")


@pytest.mark.parametrize(("name", "dialog"), [("model", "r"), ("kept", "w"), ("place", "d")])
def test_a_path_is_typed_or_chosen_in_a_dialog(qtbot, monkeypatch, name, dialog):
    def answer(parent, caption, start, *_):
        asked.append(start)
        return "/scans/chosen" if dialog == "d" else ("/scans/chosen", "")

    asked = []
    monkeypatch.setitem(QFILE_DIALOG_MODES, FileDialogMode(dialog), answer)
    form = SettingsForm(Paths)
    qtbot.addWidget(form.native)
    field = form[name]
    assert field.value == ""
    field.edit.line_edit.native.setText("typed.safetensors")
    assert form.value == Paths(**{name: "typed.safetensors"})
    field.edit.choose_btn.native.click()
    assert asked == [os.path.abspath("typed.safetensors")]
    assert form.value == Paths(**{name: "/scans/chosen"})
    assert field.edit.line_edit.native.accessibleName() == name.capitalize()
    form.reset()
    assert form.value == Paths()


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


def test_one_of_two_with_the_same_values_stays_chosen(row):
    presets.save_preset("a", "pores", PORES(merge_height=2.5))
    presets.save_preset("b", "pores", PORES(merge_height=2.5))
    row.refresh()
    choose(row, "b")
    assert row._box.currentText() == "b"


def test_a_preset_is_deleted(row):
    row._form.value = PORES(merge_height=2.5)
    row.save("bread")
    row._delete.trigger()
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
    row._save.trigger()
    row._save.trigger()
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
    row._python.trigger()
    copied = QApplication.clipboard().text().splitlines()[-1]
    assert copied.startswith("result = hushpore.segment_pores(scan, ")
    assert "merge_height=2.5" in copied
    assert "pore_type='closed'" in copied


def test_a_hint_that_never_had_a_text_asks_for_no_height(qtbot, qtlog):
    form = SettingsForm(JOBS["pores"].settings)
    qtbot.addWidget(form.native)
    form._lines["exterior"].resize(100, 20)
    assert not [record for record in qtlog.records if "Negative sizes" in record.message]
