"""What the user prefers on this machine, where a job is left to decide: device, memory, disk.

What is asked for (a flag, a form, an argument) comes first; then the environment variable, then the
preference that was saved, then the default. The reason goes into the record of the result.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.base.config import SPEEDS, config_folder, explained, keep, kept
from hushpore.base.errors import InputError
from hushpore.base.settings import Settings, option

if TYPE_CHECKING:
    from pathlib import Path

#: Optimisations that can be switched.
SWITCHES = ("pinned", "stream", "graphs", "read_ahead", "void")

#: What a switch can say.
STATES = ("auto", "on", "off")


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
        "Memory that jobs may use; larger volumes are processed block by block. Default: all free "
        "memory.",
        unit="GB",
        minimum=0.1,
        step=1,
        none="all free memory",
    )
    temporary_folder: str = option(
        "",
        "Folder for temporary files of what does not fit into memory. Empty: the system's.",
        path="folder",
    )
    switches: str = option(
        "",
        "Optimisations to use or not, for example graphs=off, pinned=on. Left out, or auto: each "
        f"where it was measured to win. Names: {', '.join(SWITCHES)}.",
        label="Optimisations",
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
    """Read ``"graphs=off, pinned=on"``.

    Raises InputError if there is no such switch, or it cannot be set so.
    """
    given = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, state = map(str.strip, part.partition("="))
        if name not in SWITCHES:
            raise InputError(
                f"There is no switch {name!r}; expected NAME=auto, on or off, of which the "
                f"names are {', '.join(SWITCHES)}."
            )
        if state not in STATES:
            raise InputError(f"The switch {name} can be auto, on or off; got {state!r}.")
        given[name] = state
    return given


class Preferred(NamedTuple):
    """A value that holds, and why: in words for a record; empty for the default."""

    value: Any
    reason: str


def preferences_file() -> Path:
    """Return the file of preferences, whether it exists or not."""
    return config_folder() / "preferences.toml"


def load_preferences() -> Preferences:
    """Return what was saved; what is damaged, or not known, is left at its default."""
    return Preferences.of_what_fits(kept(preferences_file()))


def save_preferences(wanted: Preferences) -> Path:
    """Save preferences, as a file that says of each what it does; complete or not at all.

    Parameters
    ----------
    wanted : Preferences
        What is at its default is a comment in the file, so that it follows the program.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        If the folder for temporary files is not there, or nothing can be written in it.
    OutputError
        If the file cannot be written.
    """
    folder = wanted.temporary_folder
    try:
        if folder:
            TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(
            f"The folder for temporary files cannot be {folder!r}: {error.strerror}. Name one that "
            "is there, and in which you may write."
        ) from error
    head = "# Preferences of hushpore on this machine. A line that begins with # has the default.\n"
    return keep(preferences_file(), head + explained(wanted))


def reset_preferences() -> None:
    """Have no preferences any more, nor what was measured of devices."""
    preferences_file().unlink(missing_ok=True)
    SPEEDS.forget()


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


def in_force() -> dict[str, dict[str, Any]]:
    """Return what holds where nothing is asked for.

    Returns: for each preference its ``value``, the ``reason`` in words, and the ``variable`` of the
    environment that wins over it.
    """
    found = {}
    for opt in Preferences.options():
        value, reason = preferred(opt.name)
        known = {"value": value, "reason": reason or "the default"}
        found[opt.name] = {**known, "variable": variable_of(opt.name)}
    return found


def memory_limit() -> int | None:
    """Return how many bytes jobs may count on; None where that is all that is free."""
    limit = preferred("memory").value
    return None if limit is None else int(1e9 * limit)


def memory_in_words() -> str:
    """Return the limit and its reason, for a record; empty where there is none."""
    limit, reason = preferred("memory")
    return "" if limit is None else f"at most {limit:g} GB ({reason})"
