"""Files of the configuration folder: what cannot be kept or read does no harm."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.preferences import (
    FOLDER,
    SPEEDS,
    Preferences,
    Tables,
    config_folder,
    in_force,
    load_file,
    load_preferences,
    memory_in_words,
    memory_limit,
    preferences_file,
    preferred,
    reset_preferences,
    save_file,
    save_preferences,
    toml_value,
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


OTHERS = Tables("others.toml", "Other values.")


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ("linux", "unix.Unix"),
        ("freebsd14", "unix.Unix"),
        ("darwin", "macos.MacOS"),
        ("win32", "windows.Windows"),
    ],
)
@pytest.mark.parametrize("roaming", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_the_folder_is_where_platformdirs_has_it(
    system: str, kind: str, roaming: bool, named: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    windows = pytest.importorskip("platformdirs.windows")
    monkeypatch.setattr(windows, "get_win_folder", windows.get_win_folder_from_env_vars)
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    # Windows always names its own
    monkeypatch.setenv("APPDATA", str(tmp_path / "AppData" / "Roaming"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "AppData" / "Local"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    if named:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    place = pkgutil.resolve_name(f"platformdirs.{kind}")("hushpore", False, roaming=roaming)
    monkeypatch.setattr(sys, "platform", system)
    assert config_folder(roaming) == place.user_config_path


WITHOUT_PLATFORMDIRS = """
import os, sys
sys.modules["platformdirs"] = None
os.environ.pop("HUSHPORE_CONFIG", None)
from hushpore.device.backend import choose_backend
from hushpore.base.preferences import in_force
from hushpore.runs.presets import list_presets
assert choose_backend("auto").device
assert in_force()["device"]["value"] == "auto"
assert list_presets() == []
"""


def test_a_device_is_chosen_without_platformdirs(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", WITHOUT_PLATFORMDIRS], check=True, env=env)


def test_a_folder_that_is_named_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "own"))
    assert config_folder() == config_folder(roaming=True) == tmp_path / "own"


def test_a_file_that_is_too_long_counts_as_empty(tmp_path: Path) -> None:
    file = save_file(tmp_path / "folder" / "a.toml", "a = 1\n")
    assert load_file(file) == {"a": 1}
    file.write_text("a = 1\n" + "#" * 2**20)
    assert load_file(file) == {}


@pytest.mark.parametrize(
    "value", [True, 3, -2.5, 1e-7, 1e22, 'a "quoted" \\ path', "line\nbreak \x1b", np.float64(0.1)]
)
def test_values_and_names_come_back(value: object) -> None:
    assert tomllib.loads(f"a = {toml_value(value)}") == {"a": value}
    name = 'CPU "AMD", 2 threads / torch 2.5.[x]'
    OTHERS.put(name, {"step": value, "a b": 1.0})
    OTHERS.put("next", {})
    assert OTHERS.get(name) == {"step": value, "a b": 1.0}
    assert OTHERS.get("next") == {}
    assert OTHERS.get("none") is None


def test_the_last_of_each_kind_counts() -> None:
    assert SPEEDS.numbers("a") == {}
    SPEEDS.put("a", {"step": 0.5})
    SPEEDS.put("b", {"step": 2.0})
    SPEEDS.put("a", {"step": 0.25, "voxel": 1e-7})
    assert SPEEDS.numbers("a") == {"step": 0.25, "voxel": 1e-7}
    assert SPEEDS.numbers("b") == {"step": 2.0}


def test_the_oldest_kinds_go_first() -> None:
    for number in range(110):
        SPEEDS.put(str(number), {"step": 1.0})
    assert SPEEDS.numbers("9") == {}
    assert SPEEDS.numbers("10") == {"step": 1.0}


@pytest.mark.parametrize(
    "text",
    ["", "[1", "a = 1", '[a]\nstep = "x"', "[a]\nstep = nan", "[a]\nstep = [1.0]", "a = [" * 9999],
)
def test_a_damaged_file_does_no_harm(text: str) -> None:
    SPEEDS.put("a", {"step": 1.0})
    SPEEDS.file.write_text(text.replace("step", "[a]\nstep"), encoding="utf-8")
    assert SPEEDS.numbers("a") == {}
    SPEEDS.put("a", {"step": 1.0})
    assert SPEEDS.numbers("a") == {"step": 1.0}


def test_where_nothing_can_be_written_nothing_fails(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "file"))
    SPEEDS.put("a", {"step": 1.0})
    assert SPEEDS.numbers("a") == {}


def test_all_is_forgotten() -> None:
    SPEEDS.forget()
    SPEEDS.put("a", {"step": 1.0})
    SPEEDS.forget()
    assert SPEEDS.numbers("a") == {}
