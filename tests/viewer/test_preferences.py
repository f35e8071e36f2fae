import pytest
from napari.components import ViewerModel

from hushpore.base.preferences import Preferences, load_preferences
from hushpore.device import memory
from hushpore.jobs import JOBS
from hushpore.runs.presets import remember, remembered
from hushpore.viewer.preferences import PreferencesWidget

SOON = 10_000


@pytest.fixture
def place(tmp_path, monkeypatch):
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(memory.tempfile, "gettempdir", lambda: str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


@pytest.fixture
def widget(qtbot, place):
    widget = PreferencesWidget(ViewerModel())
    qtbot.addWidget(widget)
    qtbot.waitUntil(lambda: "Looking" not in widget._files.text() + widget._device.text())
    return widget


def test_what_is_preferred_is_kept_and_shown_again(qtbot, widget, tmp_path):
    assert not widget._save.isEnabled()
    widget.form.device.value = "cuda"
    widget.form.memory.value = 4
    widget.form.temporary_folder.value = str(tmp_path)
    assert widget._save.isEnabled()
    widget._save.click()
    assert load_preferences() == Preferences("cuda", 4, str(tmp_path))
    assert "Saved in" in widget._message.text()
    assert not widget._save.isEnabled()
    again = PreferencesWidget(ViewerModel())
    qtbot.addWidget(again)
    assert again.form.value == load_preferences()


def test_what_cannot_be_preferred_is_said_and_not_kept(widget, tmp_path):
    widget.form.temporary_folder.value = str(tmp_path / "none")
    widget.save()
    assert "cannot be" in widget._message.text()
    assert load_preferences() == Preferences()


def test_a_variable_of_the_environment_that_wins_is_said(qtbot, place, monkeypatch):
    monkeypatch.setenv("HUSHPORE_MEMORY", "2")
    widget = PreferencesWidget(ViewerModel())
    qtbot.addWidget(widget)
    assert "Memory is 2.0, set by HUSHPORE_MEMORY, not as set here." in widget._reasons.text()


def test_it_says_what_auto_comes_to(widget):
    assert widget._device.text().endswith("(as the test says)")


def test_what_was_left_over_is_removed_and_what_is_in_use_stays(qtbot, widget):
    mine, others = memory.new_folder(), memory.new_folder()
    computer, _, rest = others.name.removeprefix("hushpore-").split("-")
    others = others.rename(others.with_name(f"hushpore-{computer}-{2**22 + 1:x}-{rest}"))
    (others / "labels.raw").write_bytes(bytes(2_000_000))
    assert not widget._clean.isEnabled()
    widget.look()
    qtbot.waitUntil(widget._clean.isEnabled, timeout=SOON)
    assert "2 folders" in widget._files.text()
    assert "1 folder, 2 MB" in widget._files.text()
    assert str(others) in widget._clean.toolTip()
    widget._clean.click()
    qtbot.waitUntil(lambda: "Left behind" not in widget._files.text(), timeout=SOON)
    assert mine.is_dir()
    assert not others.exists()


def test_what_was_last_used_is_forgotten(widget):
    kind = JOBS["pores"].settings
    remember("pores", kind(merge_height=2))
    widget._forget_button.click()
    assert remembered("pores", kind) is None
