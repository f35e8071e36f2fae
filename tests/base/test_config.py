"""Files of the configuration folder: what cannot be kept or read does no harm."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore.base.config import (
    FOLDER,
    SPEEDS,
    Tables,
    config_folder,
    load_file,
    save_file,
    toml_value,
)

if TYPE_CHECKING:
    from pathlib import Path

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
