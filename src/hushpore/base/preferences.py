"""Preferences of the user on this machine: device, memory limit, temporary folder, optimisations.

An explicit value (flag, form, argument) takes precedence over the environment variable, this over
the saved preference, and this over the default. The source of the value is recorded in the result.

Configuration folder of the user: small TOML files, written atomically.

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
from tempfile import TemporaryFile
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, OutputError
from hushpore.base.formatting import read_text
from hushpore.base.settings import Settings, option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.settings import Option

#: Optimisations that can be switched on or off.
SWITCHES = ("pinned", "graphs")

#: States of a switch.
STATES = ("auto", "on", "off")


@dataclass(frozen=True)
class Preferences(Settings):
    """Preferences for all jobs on this machine; none of them changes the meaning of a result."""

    device: str = option(
        "auto",
        "Device for jobs with the device auto: cpu, cuda (or cuda:1 and so on), or mps (Apple "
        "GPU). auto: a CUDA device if there is one, otherwise the CPU.",
    )
    memory: float | None = option(
        None,
        "Memory that jobs may use; larger volumes are processed block by block. Default: all free "
        "memory.",
        unit="GB",
        minimum=0.1,
        step=1,
        none="all free memory",
    )
    temporary_folder: str = option(
        "",
        "Folder for temporary files of data larger than memory. Empty: the system's folder.",
        path="folder",
    )
    csv_decimal: str = option(
        "point",
        "Decimal sign of numbers in tables (CSV, clipboard). comma: CSV has semicolons between its "
        "columns, as spreadsheet programs of many countries expect. hushpore reads both.",
        label="CSV decimal sign",
        choices=("point", "comma"),
        choice_labels=("Point", "Comma"),
    )
    workbook: bool = option(
        False,
        "Also write all tables of a result as one workbook for Excel and LibreOffice, result.xlsx, "
        "with units in its headings.",
        label="Write a workbook",
    )
    updates: bool = option(
        False,
        "Ask PyPI for a newer version when the window opens. Off: no server is asked for anything.",
        label="Look for updates",
    )
    switches: str = option(
        "",
        "Optimisations of a GPU to switch on or off, for example graphs=off, pinned=on. Others, "
        f"and auto: on where they help. Names: {', '.join(SWITCHES)}.",
        label="Optimisation switches",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise InputError(
                f"device must be 'auto', 'cpu', 'cuda', 'cuda:1' and so on, or 'mps'; got "
                f"{self.device!r}."
            )
        parse_switches(self.switches)


def parse_switches(text: str) -> dict[str, str]:
    """Parse switches, as in ``"graphs=off, pinned=on"``.

    Raises InputError for an unknown switch or state.
    """
    given = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, state = map(str.strip, part.partition("="))
        if name not in SWITCHES:
            raise InputError(
                f"The switch {name!r} does not exist. Give NAME=auto, on or off, with one of the "
                f"names {', '.join(SWITCHES)}."
            )
        if state not in STATES:
            raise InputError(f"The switch {name} must be auto, on or off; got {state!r}.")
        given[name] = state
    return given


class Preferred(NamedTuple):
    """Value of a preference in effect, and its source in words; empty for the default."""

    value: Any
    reason: str


def preferences_file() -> Path:
    """Return the path of the preferences file, whether it exists or not."""
    return config_folder() / "preferences.toml"


def load_preferences() -> Preferences:
    """Return the saved preferences; invalid or unknown ones have their defaults."""
    return Preferences.of_valid(load_file(preferences_file()))


def save_preferences(wanted: Preferences) -> Path:
    """Save preferences to a file with explanations, atomically.

    Parameters
    ----------
    wanted : Preferences
        Preferences at their default are commented out, and so follow future defaults.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        If the temporary folder does not exist or is not writable.
    OutputError
        If the file cannot be written.
    """
    folder = wanted.temporary_folder
    try:
        if folder:
            TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(
            f"The temporary folder {folder!r} cannot be used: {error.strerror}. Choose an existing "
            "folder with write permission."
        ) from error
    head = "# Preferences of hushpore on this machine. A line that begins with # has the default.\n"
    return save_file(preferences_file(), head + explained(wanted))


def reset_preferences() -> None:
    """Delete all preferences and the measured speeds of devices."""
    preferences_file().unlink(missing_ok=True)
    SPEEDS.forget()


def variable_of(name: str) -> str:
    """Return the environment variable of a preference, as ``HUSHPORE_MEMORY``."""
    return f"HUSHPORE_{name.upper()}"


def preferred(name: str) -> Preferred:
    """Return the value of a preference in effect.

    Parameters
    ----------
    name : str
        Name of the preference.

    Raises
    ------
    InputError
        If its environment variable has an invalid value; says what is accepted.
    """
    opt = next(opt for opt in Preferences.options() if opt.name == name)
    variable = variable_of(name)
    given = os.environ.get(variable)
    if given:
        try:
            value = getattr(Preferences.of({name: opt.parse(given)}), name)
        except InputError as error:
            raise InputError(f"The environment variable {variable}: {error}") from error
        return Preferred(value, f"set by {variable}")
    value = getattr(load_preferences(), name)
    return Preferred(value, "" if value == opt.default else "as preferred")


def in_force() -> dict[str, dict[str, Any]]:
    """Return all preferences in effect.

    Returns: for each preference its ``value``, its source as ``reason``, and the environment
    ``variable`` that overrides it.
    """
    found = {}
    for opt in Preferences.options():
        value, reason = preferred(opt.name)
        found[opt.name] = {
            "value": value,
            "reason": reason or "the default",
            "variable": variable_of(opt.name),
        }
    return found


def memory_limit() -> int | None:
    """Return the memory limit of jobs in bytes; None for all free memory."""
    limit = preferred("memory").value
    return None if limit is None else int(1e9 * limit)


def memory_in_words() -> str:
    """Return the memory limit and its source, for a record; empty if there is none."""
    limit, reason = preferred("memory")
    return "" if limit is None else f"at most {limit:g} GB ({reason})"


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
