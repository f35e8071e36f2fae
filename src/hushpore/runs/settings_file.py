"""Settings in a TOML file: one table a job, the same names as everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError, OutputError
from hushpore.base.partial import new_file
from hushpore.base.text import LONGEST_SETTINGS, read_text
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from hushpore.base.settings import Option, Settings

#: How the name of a settings file ends.
SUFFIX = ".toml"
_WIDTH = 88


def read_settings(path: str | os.PathLike[str]) -> dict[str, Settings]:
    """Read the settings of jobs from a TOML file.

    Parameters
    ----------
    path : str or path-like
        A table a job, ``[denoise]``, ``[pores]``; ``"none"`` stands for None. What is left out has
        its default.

    Returns
    -------
    dict of str to Settings
        Of the jobs that the file has a table for.

    Raises
    ------
    InputError
        If it cannot be read, or names a job or a setting that there is not, or a value is not
        accepted; says what there is.

    Examples
    --------
    >>> read_settings("s.toml")["pores"].h  # doctest: +SKIP
    0.5
    """
    file = Path(path).expanduser()
    try:
        tables = tomllib.loads(read_text(file, LONGEST_SETTINGS))
    except OSError as error:
        raise InputError(f"The settings {file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"The settings {file} are not TOML: {error}.") from error
    return {job: _settings(file, job, table) for job, table in tables.items()}


def write_settings(
    path: str | os.PathLike[str],
    settings: Mapping[str, Settings] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write settings as a TOML file that says of each what it does and what is accepted.

    Parameters
    ----------
    path : str or path-like
        Ends in ``.toml``.
    settings : mapping of str to Settings, optional
        By job; by default the defaults of all jobs.
    overwrite : bool, optional
        Replace an existing file.

    Returns
    -------
    pathlib.Path
        The file; what is at its default is a comment in it, so that it follows the program.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    # what only reads settings does so without all formats of images
    from hushpore.io.target import check_target

    target = check_target(path, overwrite, suffixes=(SUFFIX,))
    given = settings or {job: kind.settings() for job, kind in JOBS.items()}
    with new_file(target, overwrite) as part:
        part.write_text(settings_text(given), encoding="utf-8")
    return target


def settings_text(settings: Mapping[str, Settings]) -> str:
    """Return settings as `write_settings` writes them."""
    parts = ["# Settings of hushpore. A line that begins with # has the default.\n"]
    for job, values in settings.items():
        parts.append(f"\n[{job}]  # {JOBS[job].title}\n")
        parts += [setting_lines(opt, getattr(values, opt.name)) for opt in values.options()]
    return "".join(parts)


def _settings(file: Path, job: str, table: Any) -> Settings:
    if job not in JOBS or not isinstance(table, dict):
        tables = ", ".join(f"[{name}]" for name in JOBS)
        raise InputError(f"{file.name}: {job!r} is not a table of settings. Available: {tables}.")
    kind = JOBS[job].settings
    optional = {opt.name for opt in kind.options() if opt.optional}
    values = {
        name: None if value == "none" and name in optional else value
        for name, value in table.items()
    }
    try:
        return kind.of(values)
    except InputError as error:
        raise InputError(f"{file.name}, [{job}]: {error}") from error


def setting_lines(opt: Option, value: Any) -> str:
    """Return a setting with what it does and what is accepted, commented out at its default."""
    from textwrap import wrap

    expected = opt.expected or "text"
    unit = f", in {opt.unit}" if opt.unit else ""
    told = [*wrap(opt.help, _WIDTH), *wrap(f"{expected}{unit}", _WIDTH)]
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
    return repr(value)


def keep(file: Path, text: str, *, lasting: bool = True) -> Path:
    """Write a file of the user's configuration, complete or not at all; returns it.

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
