"""Settings in files: those that a user writes, presets, and what was last run.

All are TOML with one table a job, and the same names as everywhere. Presets, the same for forms and
command line, are such files in the user's configuration folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hushpore.base.atomic import new_file
from hushpore.base.config import Tables, config_folder, explained, read_toml, save_file
from hushpore.base.errors import InputError
from hushpore.base.settings import Settings
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from hushpore.base.settings import Option

T = TypeVar("T", bound=Settings)

#: The name under which a form has the defaults of a job.
DEFAULT = "Default"

#: The name of the settings that a job was last run with in napari.
LAST = "Last used"

#: What a form calls settings that are no preset.
CUSTOM = "Custom"

#: The folder of presets that come with hushpore: settings files, named as a form shows them.
SHIPPED = Path(__file__).parent / "shipped"

#: How the name of a settings file ends.
_SUFFIX = ".toml"
_NAME = re.compile(r"\w[\w .+-]{0,58}[\w+-]|\w")
# names that Windows keeps for devices, and those of ours; in any case, as a file may be found by it
_RESERVED = re.compile(rf"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|{DEFAULT}|{LAST}|{CUSTOM}")

#: The settings that each kind of work was last run with, so that the next one begins with them.
LAST_USED = Tables("last.toml", "What hushpore was last run with.", roaming=True)


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
    >>> read_settings("s.toml")["pores"].merge_height  # doctest: +SKIP
    0.5
    """
    file = Path(path).expanduser()
    try:
        tables = read_toml(file)
    except OSError as error:
        raise InputError(f"The settings {file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"The settings {file} are not TOML: {error}.") from error
    return {job: _settings(file, job, table) for job, table in tables.items()}


def _settings(file: Path, job: str, table: Any) -> Settings:
    if job not in JOBS or not isinstance(table, dict):
        tables = ", ".join(f"[{name}]" for name in JOBS)
        raise InputError(f"{file.name}: {job!r} is not a table of settings. Available: {tables}.")
    try:
        return JOBS[job].settings.of(table)
    except InputError as error:
        raise InputError(f"{file.name}, [{job}]: {error}") from error


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
    from hushpore.io.output_target import check_target

    target = check_target(path, overwrite, suffixes=(_SUFFIX,))
    given = settings or read_preset(DEFAULT)
    with new_file(target, overwrite) as part:
        part.write_text(settings_text(given), encoding="utf-8")
    return target


def settings_text(settings: Mapping[str, Settings]) -> str:
    """Return settings as `write_settings` writes them."""
    parts = ["# Settings of hushpore. A line that begins with # has the default.\n"]
    for job, values in settings.items():
        parts.append(f"\n[{job}]  # {JOBS[job].title}\n{explained(values)}")
    return "".join(parts)


def presets_folder() -> Path:
    """Return the folder that holds the presets, whether it exists or not."""
    return config_folder(roaming=True) / "presets"


def list_presets(job: str = "") -> list[str]:
    """Return the names of presets, sorted without regard to case.

    Parameters
    ----------
    job : str, optional
        Only presets that were saved for this job. Files that are damaged are left out.
    """
    names = sorted((path.stem for path in presets_folder().glob(f"*{_SUFFIX}")), key=str.casefold)
    return [name for name in names if not job or _holds(name, job)]


def _holds(name: str, job: str) -> bool:
    try:
        return job in read_preset(name)
    except InputError:
        return False


def shipped_presets(job: str = "") -> list[str]:
    """Return the names of the presets that come with hushpore, sorted.

    One of the user's by the same name takes its place.

    Parameters
    ----------
    job : str, optional
        Only presets with settings for this job.
    """
    own = {name.casefold() for name in list_presets()}
    names = sorted(path.stem for path in SHIPPED.glob(f"*{_SUFFIX}"))
    names = [name for name in names if name.casefold() not in own]
    return [name for name in names if not job or _holds(name, job)]


def names_to_choose(job: str) -> list[str]:
    """Return what a form offers: the defaults, what was last used, and the presets of a job."""
    last = [LAST] if LAST_USED.get(job) is not None else []
    return [DEFAULT, *last, *shipped_presets(job), *list_presets(job)]


def load_preset(name: str, job: str) -> Settings:
    """Return the settings of a job that were saved under a name.

    Raises
    ------
    InputError
        If there are none; says which there are.
    """
    found = read_preset(name)
    if job not in found:
        raise InputError(
            f"The preset {name!r} holds no settings for {JOBS[job].title.lower()!r}, but for "
            f"{', '.join(found)}."
        )
    return found[job]


def read_preset(name: str) -> dict[str, Settings]:
    """Return all settings that were saved under a name, by job.

    Raises InputError if there is no such preset, or its file is damaged.
    """
    if name.casefold() == DEFAULT.casefold():
        return {job: kind.settings() for job, kind in JOBS.items()}
    if name.casefold() == LAST.casefold():
        last = {job: remembered(job, kind.settings) for job, kind in JOBS.items()}
        return {job: settings for job, settings in last.items() if settings is not None}
    file = preset_file(name)
    if not file.is_file():
        file = SHIPPED / file.name
    if not file.is_file():
        listed = ", ".join(map(repr, [*shipped_presets(), *list_presets()]))
        raise InputError(f"There is no preset {name!r}. Available: {listed}.")
    return read_settings(file)


def save_preset(name: str, job: str, settings: Settings) -> Path:
    """Keep the settings of a job under a name; those of other jobs under that name stay.

    Parameters
    ----------
    name : str
        Letters, digits, spaces and ``. _ + -``, at most 60.
    job : str
        A key of `hushpore.jobs.JOBS`.
    settings : Settings
        Its settings.

    Returns
    -------
    pathlib.Path
        The file; replaced whole or not at all.

    Raises
    ------
    InputError
        If the name cannot be used.
    OutputError
        If it cannot be written.
    """
    file = preset_file(name)
    others = read_preset(name) if file.is_file() or name in shipped_presets() else {}
    return save_file(file, settings_text({**others, job: settings}))


def delete_preset(name: str) -> None:
    """Delete a preset, for all jobs; does nothing where there is none."""
    preset_file(name).unlink(missing_ok=True)


def preset_file(name: str) -> Path:
    """Return the file of a preset, whether it exists or not.

    Raises InputError if the name cannot be a file's.
    """
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a preset: letters, digits, spaces and . _ + - are "
            f"accepted, at most 60, and not {DEFAULT!r}, {LAST!r} or {CUSTOM!r}."
        )
    return presets_folder() / f"{name}{_SUFFIX}"


def remember(name: str, settings: Settings) -> None:
    """Keep the settings of a kind of work; does nothing where nothing can be written.

    Numbers, choices, and yes or no are kept, and nothing else: what is free text names files,
    layers or places, which are of that one scan, and may be of a patient. Grey values are of one
    scan too. What is at its default is not kept, and so follows the program.

    `name`: of the job or the widget. `settings`: those that it was started with.
    """
    kept = {
        opt.name: value
        for opt in settings.options()
        if _can_be_kept(opt, value := getattr(settings, opt.name)) and value != opt.default
    }
    LAST_USED.put(name, kept)


def remembered(name: str, kind: type[T]) -> T | None:
    """Return what a kind of work was last run with; None where that is not known.

    `name`: as given to `remember`. `kind`: its settings. What is not known or not accepted by now
    has its default.
    """
    table = LAST_USED.get(name)
    if table is None:
        return None
    options = [opt for opt in kind.options() if opt.name in table]
    return kind.of_valid(
        {opt.name: table[opt.name] for opt in options if _can_be_kept(opt, table[opt.name])}
    )


def _can_be_kept(opt: Option, value: Any) -> bool:
    is_word = isinstance(value, str)
    if opt.auxiliary or (opt.grey_value and value is not None and not is_word):
        return False
    return str not in opt.types or bool(opt.choices)
