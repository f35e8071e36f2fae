from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hushpore.base.errors import InputError
from hushpore.base.preferences import (
    Preferences,
    config_folder,
    load_preferences,
    memory_in_words,
    memory_limit,
    preferences_file,
    preferred,
)

if TYPE_CHECKING:
    from pathlib import Path


def write(text: str) -> None:
    preferences_file().parent.mkdir(parents=True)
    preferences_file().write_text(text)


def test_without_preferences_the_defaults_hold_for_no_reason() -> None:
    assert preferred("device") == ("auto", "")
    assert preferred("memory") == (None, "")
    assert memory_limit() is None
    assert memory_in_words() == ""


def test_the_environment_wins_over_what_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    write('device = "cpu"\nmemory = 3\n')
    assert preferred("device") == ("cpu", "as preferred")
    assert memory_limit() == 3_000_000_000
    monkeypatch.setenv("HUSHPORE_MEMORY", "1.5")
    monkeypatch.setenv("HUSHPORE_DEVICE", "cuda:1")
    assert preferred("device") == ("cuda:1", "as HUSHPORE_DEVICE says")
    assert memory_in_words() == "at most 1.5 GB (as HUSHPORE_MEMORY says)"


@pytest.mark.parametrize(("name", "value"), [("MEMORY", "lots"), ("DEVICE", "gpu")])
def test_a_variable_that_cannot_be_used_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HUSHPORE_{name}", value)
    with pytest.raises(InputError, match=f"HUSHPORE_{name}: {name.lower()} must be"):
        preferred(name.lower())


@pytest.mark.parametrize("text", ["device = ", "\x00", 'device = "gpu"\nwarp = 9\nmemory = -4\n'])
def test_a_damaged_or_old_file_leaves_the_defaults(text: str) -> None:
    write(text)
    assert load_preferences() == Preferences()


def test_what_is_right_in_a_file_is_kept_where_the_rest_is_not() -> None:
    write('device = "gpu"\nmemory = 2\n')
    assert load_preferences() == Preferences(memory=2)


def test_the_folder_is_the_users_own_or_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path))
    assert config_folder() == tmp_path
    monkeypatch.delenv("HUSHPORE_CONFIG")
    assert config_folder().name == "hushpore"
