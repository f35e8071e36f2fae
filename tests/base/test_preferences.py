from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore.base.config import config_folder
from hushpore.base.errors import InputError
from hushpore.base.preferences import (
    Preferences,
    in_force,
    load_preferences,
    memory_in_words,
    memory_limit,
    preferences_file,
    preferred,
    reset_preferences,
    save_preferences,
)
from hushpore.cli.commands import hushpore as command
from hushpore.device.backend import Backend, choose_backend
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


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
    assert preferred("device") == ("cuda:1", "set by HUSHPORE_DEVICE")
    assert memory_in_words() == "at most 1.5 GB (set by HUSHPORE_MEMORY)"


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


def call(*words: object) -> Result:
    return CliRunner().invoke(command, ["preferences", *map(str, words)])


def test_preferences_are_saved_as_a_file_that_explains_itself(tmp_path: Path) -> None:
    wanted = Preferences(device="cpu", memory=2, temporary_folder=str(tmp_path))
    text = save_preferences(wanted).read_text()
    assert "# Memory that jobs may use" in text
    assert load_preferences() == wanted
    save_preferences(Preferences())
    assert load_preferences() == Preferences()
    reset_preferences()
    reset_preferences()
    assert not preferences_file().exists()


def test_a_folder_is_the_same_wherever_a_program_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path)
    save_preferences(Preferences(temporary_folder="scratch"))
    assert load_preferences().temporary_folder == str(tmp_path / "scratch")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be used.*Choose an existing folder"):
        save_preferences(Preferences(temporary_folder=str(tmp_path / "none")))
    assert load_preferences() == Preferences()


def test_jobs_run_where_it_is_preferred_and_the_record_says_why() -> None:
    save_preferences(Preferences(device="cpu", memory=0.5))
    assert choose_backend("auto").reason == "as preferred"
    assert JOBS["pores"].backend("auto").reason == "as preferred"
    assert choose_backend("cpu").reason == "as requested"
    assert Backend().free_memory() == 500_000_000
    found = hushpore.segment_pores(np.arange(64.0).reshape(4, 4, 4))
    assert found.provenance["device"].endswith("(as preferred)")
    assert found.provenance["memory"] == "at most 0.5 GB (as preferred)"


def test_a_gpu_that_is_preferred_and_not_there_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HUSHPORE_DEVICE", "cuda:77")
    backend = choose_backend("auto")
    assert backend.device == "cpu"
    assert backend.reason.startswith("cuda:77 set by HUSHPORE_DEVICE, but: Device 'cuda:77' ")


def test_the_command_shows_changes_and_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = call()
    assert shown.exit_code == 0, shown.output
    assert "device = auto  (the default; override: HUSHPORE_DEVICE)" in shown.output
    assert "memory = 4.0  (as preferred" in call("--memory", 4).output
    assert "device = cpu  (as preferred" in call("--device", "cpu").output
    assert load_preferences() == Preferences(device="cpu", memory=4)
    monkeypatch.setenv("HUSHPORE_MEMORY", "2")
    known = json.loads(call("--json").stdout)["preferences"]
    assert known["memory"] == {
        "value": 2.0, "reason": "set by HUSHPORE_MEMORY", "variable": "HUSHPORE_MEMORY",
    }  # fmt: skip
    assert "memory = none  (the default" not in call("--reset", "--memory", "none").output
    assert load_preferences() == Preferences()


def test_the_command_refuses_what_cannot_be_preferred() -> None:
    for words, told in ((("--device", "gpu"), "must be 'auto'"), (("--memory", 0), "at least 0.1")):
        done = call(*words)
        assert done.exit_code != 0
        assert told in done.output


def test_what_holds_is_said_with_its_reason() -> None:
    assert in_force()["temporary_folder"]["reason"] == "the default"
