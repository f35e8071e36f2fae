"""Configuration folder of the user: small TOML files, written atomically.

Contains preferences, presets, the settings of the last run and measured speeds. All files may be
deleted at any time; damaged files are ignored.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from hushpore.base.atomic import new_file
from hushpore.base.errors import OutputError
from hushpore.base.safe_text import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.settings import Option, Settings

#: Environment variable for the path of the folder.
FOLDER = "HUSHPORE_CONFIG"

#: Largest size of a settings file, in bytes; one with all settings of all jobs has 30 kB.
_LONGEST = 2**20

#: Width of comment lines, in characters.
_WIDTH = 88


def config_folder(roaming: bool = False) -> Path:
    """Return the configuration folder, whether it exists or not.

    `roaming`: on Windows, the folder that follows the user to other machines.
    """
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen).expanduser()
    variable, below = "XDG_CONFIG_HOME", ".config"
    if sys.platform == "darwin":
        below = "Library/Application Support"
    elif sys.platform == "win32":
        variable, below = "LOCALAPPDATA", "AppData/Local"
        if roaming:
            variable, below = "APPDATA", "AppData/Roaming"
    named = os.environ.get(variable, "").strip()
    # without a home folder the path begins with a literal ~
    return Path(named or os.path.join(os.path.expanduser("~"), below)) / "hushpore"


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises OSError if it cannot be read or is too large; ValueError if it is not TOML.
    """
    text = read_text(file, _LONGEST)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        if re.search(r"=\s*[-+]?\d+,\d", text):
            raise ValueError(f"{error}. Write decimal numbers with a point") from error
        raise


def load_file(file: Path) -> dict[str, Any]:
    """Return the content of a file in the folder; empty if it is damaged or missing."""
    try:
        return read_toml(file)
    except (OSError, ValueError):
        return {}


def save_file(file: Path, text: str, *, lasting: bool = True) -> Path:
    """Write a file in the folder atomically, and return its path.

    `lasting`: as for `new_file`.
    Raises OutputError if the file or its folder cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {file.parent} cannot be created: {error.strerror}."
        ) from error
    with new_file(file, overwrite=True, lasting=lasting) as part:
        part.write_text(text, encoding="utf-8")
    return file


@dataclass(frozen=True)
class Tables:
    """Tables of plain values in one file of the folder, which can be deleted without harm.

    >>> speeds = Tables("speeds.toml", "Measured speeds.")
    >>> speeds.put("CPU, 2 threads", {"step": 0.25})  # doctest: +SKIP
    """

    name: str  # file name
    content: str  # description, a sentence for the first line
    roaming: bool = False  # as for `config_folder`
    most: int = 100  # largest number of tables; the oldest is dropped first

    @property
    def file(self) -> Path:
        """Path of the file, whether it exists or not."""
        return config_folder(self.roaming) / self.name

    def get(self, name: str) -> dict[str, Any] | None:
        """Return a table by name; None if it is missing or damaged."""
        return self._all().get(name)

    def numbers(self, name: str) -> dict[str, float]:
        """Return a table of non-negative floats; empty if it is missing or has other values."""
        found = self.get(name) or {}
        sound = all(isinstance(n, float) and isfinite(n) and n >= 0 for n in found.values())
        return found if sound else {}

    def put(self, name: str, values: Mapping[str, Any]) -> None:
        """Save a table under its name; does nothing if the file cannot be written."""
        tables = self._all()
        tables.pop(name, None)
        tables[name] = dict(values)
        lines = [f"# {self.content} It may be deleted at any time.\n"]
        for each, table in list(tables.items())[-self.most :]:
            lines.append(f"\n[{_key(each)}]\n")
            lines += [f"{_key(key)} = {toml_value(value)}\n" for key, value in table.items()]
        # optional: a run must not fail for it, and the window must not wait for the disk
        with suppress(OSError, OutputError):
            save_file(self.file, "".join(lines), lasting=False)

    def forget(self) -> None:
        """Delete the file."""
        self.file.unlink(missing_ok=True)

    def _all(self) -> dict[str, dict[str, Any]]:
        return {
            name: table
            for name, table in load_file(self.file).items()
            if isinstance(table, dict)
            and all(isinstance(value, bool | int | float | str) for value in table.values())
        }


#: Measured times of jobs on this computer, in seconds.
SPEEDS = Tables("speeds.toml", "Measured speeds of this computer.")


def explained(settings: Settings) -> str:
    """Return settings as TOML with explanations and accepted values as comments.

    Settings at their default are commented out, and so follow future defaults.
    """
    return "".join(_lines(opt, getattr(settings, opt.name)) for opt in settings.options())


def _lines(opt: Option, value: Any) -> str:
    unit = f", in {opt.unit}" if opt.unit else ""
    explanation = [*wrap(opt.help, _WIDTH), *wrap(f"{opt.expected or 'text'}{unit}", _WIDTH)]
    mark = "# " if value == opt.default else ""
    comments = "".join(f"# {line}\n" for line in explanation)
    return f"\n{comments}{mark}{opt.name} = {toml_value(value)}\n"


def toml_value(value: Any) -> str:
    """Return a value as TOML; None becomes ``"none"``."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        shown = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped)
        return f'"{"".join(shown)}"'
    # the repr of NumPy numbers includes their type
    return repr(float(value) if isinstance(value, float) else int(value))


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else toml_value(name)
