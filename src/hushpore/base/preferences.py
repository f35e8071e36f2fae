"""Preferences of the user on this machine: device, memory limit, temporary folder, optimisations.

An explicit value (flag, form, argument) takes precedence over the environment variable, this over
the saved preference, and this over the default. The source of the value is recorded in the result.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.base.config import SPEEDS, config_folder, explained, load_file, save_file
from hushpore.base.errors import InputError
from hushpore.base.settings import Settings, option

if TYPE_CHECKING:
    from pathlib import Path

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
