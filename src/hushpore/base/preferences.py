"""What the user prefers on this machine, where a job is left to decide: device, memory, disk.

What is asked for (a flag, a form, an argument) comes first; then the environment variable, then the
preference that was saved, then the default. The reason goes into the record of the result.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hushpore.base.errors import InputError
from hushpore.base.settings import Settings, option
from hushpore.base.text import LONGEST_SETTINGS, read_text

#: Environment variable that names the folder of preferences, presets and remembered settings.
FOLDER = "HUSHPORE_CONFIG"

#: Name of the file in it.
FILE = "preferences.toml"


@dataclass(frozen=True)
class Preferences(Settings):
    """What holds for all jobs on this machine; none of it changes what a result means."""

    device: str = option(
        "auto",
        "Where jobs run whose device is left at auto: cpu, cuda, cuda:1 and so on, or mps (Apple's "
        "GPU). auto: a CUDA device where it is of use, else the CPU.",
    )
    memory: float | None = option(
        None,
        "Memory that jobs may count on; what does not fit is read from disk or worked on piece by "
        "piece. None: all that is free.",
        unit="GB",
        minimum=0.1,
        step=1,
    )
    temporary_folder: str = option(
        "",
        "Folder for temporary files of what does not fit into memory. Empty: the system's.",
        path="folder",
    )
    switches: str = option(
        "",
        "Optimisations to use or not, for example graphs=off, pinned=on. Left out, or auto: each "
        "where it was measured to win. Names: pinned, stream, graphs, read_ahead, void.",
        label="Optimisations",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise InputError(
                f"device must be 'auto', 'cpu', 'cuda', 'cuda:1' and so on, or 'mps'; got "
                f"{self.device!r}."
            )


class Preferred(NamedTuple):
    """A value that holds, and why: in words for a record; empty for the default."""

    value: Any
    reason: str


def config_folder(roaming: bool = False) -> Path:
    """Return the folder of what the user has saved, whether it exists or not.

    `roaming`: on Windows, for what goes with the user from one machine to another.
    """
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen).expanduser()
    # not needed by who never asks
    from platformdirs import user_config_path

    return user_config_path("hushpore", appauthor=False, roaming=roaming)


def preferences_file() -> Path:
    """Return the file of preferences, whether it exists or not."""
    return config_folder() / FILE


def load_preferences() -> Preferences:
    """Return what was saved; what is damaged, or of another version, is left at its default."""
    try:
        values = tomllib.loads(read_text(preferences_file(), LONGEST_SETTINGS))
    except (OSError, ValueError, RecursionError):
        return Preferences()
    known = {name: None if value == "none" else value for name, value in values.items()}
    return Preferences.of_what_fits(known)


def variable_of(name: str) -> str:
    """Return the environment variable of a preference: ``HUSHPORE_MEMORY``."""
    return f"HUSHPORE_{name.upper()}"


def preferred(name: str) -> Preferred:
    """Return what holds where nothing is asked for.

    Parameters
    ----------
    name : str
        Of a preference.

    Raises
    ------
    InputError
        If its environment variable is not accepted; says what is.
    """
    opt = next(opt for opt in Preferences.options() if opt.name == name)
    variable = variable_of(name)
    given = os.environ.get(variable)
    if given:
        try:
            value = getattr(Preferences.of({name: opt.parse(given)}), name)
        except InputError as error:
            raise InputError(f"The environment variable {variable}: {error}") from error
        return Preferred(value, f"as {variable} says")
    value = getattr(load_preferences(), name)
    return Preferred(value, "" if value == opt.default else "as preferred")


def memory_limit() -> int | None:
    """Return how many bytes jobs may count on; None where that is all that is free."""
    limit = preferred("memory").value
    return None if limit is None else int(1e9 * limit)


def memory_in_words() -> str:
    """Return the limit and its reason, for a record; empty where there is none."""
    limit, reason = preferred("memory")
    return "" if limit is None else f"at most {limit:g} GB ({reason})"
