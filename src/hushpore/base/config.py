"""The user's configuration folder: small TOML files, read with care, written whole or not at all.

Preferences, presets, the settings of the last run and measured speeds are files in it. All of it
may be deleted at any time.
"""

from __future__ import annotations

import os
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

#: Environment variable that names the folder.
FOLDER = "HUSHPORE_CONFIG"

#: Bytes that a file of settings may have; one with all settings of all jobs has 30 kB.
_LONGEST = 2**20

#: Characters of a line of comment.
_WIDTH = 88


def config_folder(roaming: bool = False) -> Path:
    """Return the configuration folder, whether it exists or not.

    `roaming`: on Windows, for what goes with the user from one machine to another.
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
    # where no home folder is known the path begins with ~, as a name of this folder
    return Path(named or os.path.join(os.path.expanduser("~"), below)) / "hushpore"


def read_toml(file: Path) -> dict[str, Any]:
    """Return what a TOML file holds.

    Raises OSError if it cannot be read or is too long; ValueError if it is not TOML.
    """
    try:
        return tomllib.loads(read_text(file, _LONGEST))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def kept(file: Path) -> dict[str, Any]:
    """Return what a file of the folder holds; nothing where it is damaged or missing."""
    try:
        return read_toml(file)
    except (OSError, ValueError):
        return {}


def keep(file: Path, text: str, *, lasting: bool = True) -> Path:
    """Write a file of the folder, complete or not at all; returns it.

    `lasting`: as `new_file` takes it.
    Raises OutputError if it, or the folder that it lies in, cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Nothing can be kept in {file.parent}: {error.strerror}.") from error
    with new_file(file, overwrite=True, lasting=lasting) as part:
        part.write_text(text, encoding="utf-8")
    return file


@dataclass(frozen=True)
class Tables:
    """Tables of plain values in one file of the folder, which it does no harm to lose.

    >>> speeds = Tables("speeds.toml", "What was measured.")
    >>> speeds.put("CPU, 2 threads", {"step": 0.25})  # doctest: +SKIP
    """

    name: str  # of the file
    content: str  # what it holds, a sentence for its first line
    roaming: bool = False  # as for `config_folder`
    most: int = 100  # tables that are kept; the oldest goes first

    @property
    def file(self) -> Path:
        """The file, whether it exists or not."""
        return config_folder(self.roaming) / self.name

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the table of a name; None where there is none, or it is damaged."""
        return self._all().get(name)

    def numbers(self, name: str) -> dict[str, float]:
        """Return a table of fractions from 0 on; empty where there is none, or it holds others."""
        found = self.get(name) or {}
        sound = all(isinstance(n, float) and isfinite(n) and n >= 0 for n in found.values())
        return found if sound else {}

    def put(self, name: str, values: Mapping[str, Any]) -> None:
        """Keep a table in place of that of its name; does nothing where nothing can be written."""
        tables = self._all()
        tables.pop(name, None)
        tables[name] = dict(values)
        lines = [f"# {self.content} It may be deleted at any time.\n"]
        for each, table in list(tables.items())[-self.most :]:
            lines.append(f"\n[{_key(each)}]\n")
            lines += [f"{_key(key)} = {toml_value(value)}\n" for key, value in table.items()]
        # a courtesy: a run must not fail for it, nor the window wait for the disk
        with suppress(OSError, OutputError):
            keep(self.file, "".join(lines), lasting=False)

    def forget(self) -> None:
        """Delete the file."""
        self.file.unlink(missing_ok=True)

    def _all(self) -> dict[str, dict[str, Any]]:
        return {
            name: table
            for name, table in kept(self.file).items()
            if isinstance(table, dict)
            and all(isinstance(value, bool | int | float | str) for value in table.values())
        }


#: How fast work was measured to be on this computer, in seconds, by all that it depends on.
SPEEDS = Tables("speeds.toml", "How fast work was measured to be on this computer.")


def explained(settings: Settings) -> str:
    """Return settings as TOML that says of each what it does and what is accepted.

    What is at its default is a comment, and so follows the program.
    """
    return "".join(_lines(opt, getattr(settings, opt.name)) for opt in settings.options())


def _lines(opt: Option, value: Any) -> str:
    unit = f", in {opt.unit}" if opt.unit else ""
    told = [*wrap(opt.help, _WIDTH), *wrap(f"{opt.expected or 'text'}{unit}", _WIDTH)]
    mark = "# " if value == opt.default else ""
    comments = "".join(f"# {line}\n" for line in told)
    return f"\n{comments}{mark}{opt.name} = {toml_value(value)}\n"


def toml_value(value: Any) -> str:
    """Return a value as TOML; None as the word none."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        shown = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped)
        return f'"{"".join(shown)}"'
    # NumPy writes its own numbers with their type
    return repr(float(value) if isinstance(value, float) else int(value))


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else toml_value(name)
