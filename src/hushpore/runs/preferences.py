"""Saving what the user prefers on this machine, and saying what holds and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from hushpore.base.errors import InputError
from hushpore.base.preferences import Preferences, preferences_file, preferred, variable_of
from hushpore.device.speeds import forget_speeds
from hushpore.device.switches import Switches
from hushpore.runs.settings_file import keep, setting_lines


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
        If the folder for temporary files is not there, or nothing can be written in it, or if there
        is no such switch.
    OutputError
        If the file cannot be written.
    """
    Switches.parse(wanted.switches)
    if wanted.temporary_folder:
        # programs are started in other folders, too
        folder = str(Path(wanted.temporary_folder).expanduser().absolute())
        wanted = dataclasses.replace(wanted, temporary_folder=folder)
    folder = wanted.temporary_folder
    try:
        if folder:
            TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(
            f"The folder for temporary files cannot be {folder!r}: {error.strerror}. Name one that "
            "is there, and in which you may write."
        ) from error
    lines = [setting_lines(opt, getattr(wanted, opt.name)) for opt in wanted.options()]
    head = "# Preferences of hushpore on this machine. A line that begins with # has the default.\n"
    return keep(preferences_file(), head + "".join(lines))


def reset_preferences() -> None:
    """Have no preferences any more, nor what was measured of devices."""
    preferences_file().unlink(missing_ok=True)
    forget_speeds()


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
