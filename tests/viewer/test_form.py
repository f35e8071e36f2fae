from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qtpy.QtCore import QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QLabel

from hushpore import InputError, jobs
from hushpore.base.settings import Settings, option
from hushpore.viewer.form import SettingsForm


@dataclass(frozen=True)
class Example(Settings):
    rate: float = option(4e-4, "How fast.", minimum=1e-6, maximum=1.0, step=1e-4)
    count: int = option(3, "How many.", minimum=0, unit="px")
    limit: float | None = option(
        None, "When to stop; None: no limit.", unit="s", minimum=1, step=10
    )
    batch: int | None = option(None, "Patches.", minimum=1)
    threshold: str | float = option("otsu", "Where to cut.", choices=("otsu", "li"))
    kind: str = option("dark", "Which.", choices=("dark", "bright"), more=True)
    closed: bool = option(False, "Whether it is closed.", label="Closed border", more=True)
    rank: int = option(2, "2 or 3.", minimum=2, maximum=3, more=True)
    name: str = option("", "Any text.", more=True)


VALUES = st.fixed_dictionaries(
    {
        "rate": st.integers(1, 10_000).map(lambda n: n * 1e-4),
        "count": st.integers(0, 2**31 - 1),
        "limit": st.none() | st.integers(1, 10**6).map(float),
        "batch": st.none() | st.integers(1, 2**31 - 1),
        "threshold": st.sampled_from(["otsu", "li"]) | st.integers(-32768, 65535).map(float),
        "kind": st.sampled_from(["dark", "bright"]),
        "closed": st.booleans(),
        "rank": st.sampled_from([2, 3]),
        "name": st.text(st.characters(categories=("L", "N", "Zs")), max_size=8),
    }
)


@pytest.fixture
def form(qtbot):
    form = SettingsForm(Example)
    qtbot.addWidget(form)
    return form


@pytest.mark.parametrize("job", sorted(jobs.JOBS))
def test_a_new_form_shows_the_defaults(qtbot, job):
    kind = jobs.JOBS[job].settings
    form = SettingsForm(kind)
    qtbot.addWidget(form)
    assert form.settings() == kind()
    shown_first = sorted(kind.options(), key=lambda opt: opt.more)
    assert list(form.fields) == [opt.name for opt in shown_first]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(values=VALUES)
def test_what_is_set_is_what_is_read(form, values):
    wanted = Example(**values)
    form.set(wanted)
    read = form.settings().to_dict()
    assert read.pop("rate") == pytest.approx(wanted.rate)
    assert read == {name: value for name, value in wanted.to_dict().items() if name != "rate"}


def test_a_small_number_is_not_shown_as_zero(form):
    spin = form.fields["rate"].findChild(QAbstractSpinBox)
    assert spin.text() == "0.0004"
    spin.stepUp()
    assert form.settings().rate == pytest.approx(5e-4)


def test_none_is_shown_in_the_words_of_the_setting(form):
    spin = form.fields["limit"].findChild(QAbstractSpinBox)
    assert spin.text() == "no limit"
    spin.stepUp()
    assert form.settings().limit == 1.0
    assert spin.text() == "1 s"


def test_every_setting_explains_itself(form):
    for name, field in form.fields.items():
        assert field.toolTip() == field.opt.help, name
    assert "Closed border" in [label.text() for label in form.findChildren(QLabel)]


def test_a_threshold_of_ones_own_has_a_number_to_set(form):
    field = form.fields["threshold"]
    box, spin = field.findChild(QComboBox), field.findChild(QAbstractSpinBox)
    assert spin.isHidden()
    field.suggest(120.5)
    box.setCurrentText("value")
    assert not spin.isHidden()
    assert form.settings().threshold == 120.5
    field.suggest(7.0)
    assert form.settings().threshold == 120.5
    box.setCurrentText("li")
    assert form.settings().threshold == "li"


def test_rarely_needed_settings_are_folded_away_and_changed_ones_marked(form):
    assert not form.more.is_open
    assert form.more.title() == "More"
    form.fields["closed"].set(True)
    assert form.more.title() == "More (1 changed)"
    assert "Closed border •" in [label.text() for label in form.findChildren(QLabel)]
    form.more.set_open(True)
    assert form.more.is_open


def test_reset_brings_the_defaults_back(form):
    assert form._reset.isHidden()
    form.fields["count"].set(9)
    form.fields["closed"].set(True)
    assert not form._reset.isHidden()
    form._reset.click()
    assert form.settings() == Example()
    assert form._reset.isHidden()


def test_a_number_outside_its_limits_is_refused_in_words(form):
    form.fields["limit"]._spin.setValue(0.5)
    with pytest.raises(InputError, match="limit must be a number of at least 1"):
        form.settings()


def test_the_wheel_scrolls_past_a_number_that_has_no_focus(qtbot, form):
    spin = form.fields["count"].findChild(QAbstractSpinBox)
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
    assert form.settings().count == 3


@dataclass(frozen=True)
class Short(Settings):
    seed: int = option(0, "Start of the random numbers.", minimum=0)


def test_a_form_with_nothing_to_fold_still_can_be_reset(qtbot):
    form = SettingsForm(Short)
    qtbot.addWidget(form)
    form.fields["seed"].set(3)
    assert form.more._button.isHidden()
    assert not form._reset.isHidden()
