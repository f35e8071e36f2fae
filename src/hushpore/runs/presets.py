"""Settings files: the user's own, presets, and the settings of the last run.

All are TOML with one table per job. Presets lie in the user's configuration folder, for the window
and the command line alike.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError
from hushpore.base.preferences import Tables, config_folder, explained, read_toml, save_file
from hushpore.base.settings import Settings
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from hushpore.base.settings import Option

T = TypeVar("T", bound=Settings)

#: Name of the default settings in a form.
DEFAULT = "Default"

#: Name of the settings of the last run in napari.
LAST = "Last used"

#: Name of settings that are not a preset.
CUSTOM = "Custom"

#: Folder of the presets that come with hushpore; the file names are those of the form.
SHIPPED = Path(__file__).parent / "shipped"

#: Suffix of settings files.
_SUFFIX = ".toml"
_NAME = re.compile(r"\w[\w .+-]{0,58}[\w+-]|\w")
# names of devices in Windows, and our own; case-insensitive, as file systems may be
_RESERVED = re.compile(rf"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|{DEFAULT}|{LAST}|{CUSTOM}")

#: Settings of the last run of each job or widget, with which the next one starts.
LAST_USED = Tables("last.toml", "Settings of the last run of hushpore.", roaming=True)


def read_settings(path: str | os.PathLike[str]) -> dict[str, Settings]:
    r"""Read the settings of jobs from a TOML file.

    Parameters
    ----------
    path : str or path-like
        One table per job, ``[denoise]``, ``[pores]``; ``"none"`` means None. Settings that are not
        listed have their defaults.

    Returns
    -------
    dict of str to Settings
        Settings of the jobs in the file.

    Raises
    ------
    InputError
        If the file cannot be read, or a job, a setting or a value is unknown; lists the valid
        ones.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "settings.toml"
    ...     _ = file.write_text("[pores]\nmerge_height = 0.5\n")
    ...     read_settings(file)["pores"].merge_height
    0.5
    """
    file = Path(path).expanduser()
    try:
        tables = read_toml(file)
    except OSError as error:
        raise InputError(f"The settings file {file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"The settings file {file} is not valid TOML: {error}.") from error
    return {job: _settings(file, job, table) for job, table in tables.items()}


def _settings(file: Path, job: str, table: Any) -> Settings:
    if job not in JOBS or not isinstance(table, dict):
        tables = ", ".join(f"[{name}]" for name in JOBS)
        raise InputError(f"{file.name}: {job!r} is not a job. Available tables: {tables}.")
    try:
        return JOBS[job].settings.of(table)
    except InputError as error:
        raise InputError(f"{file.name}, [{job}]: {error}") from error


def write_settings(
    path: str | os.PathLike[str],
    settings: Mapping[str, Settings] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write settings as a TOML file that explains each setting and its valid values.

    Parameters
    ----------
    path : str or path-like
        A name that ends in ``.toml``.
    settings : mapping of str to Settings, optional
        Settings by job; by default the default settings of all jobs.
    overwrite : bool, optional
        Replace an existing file.

    Returns
    -------
    pathlib.Path
        The file. Default values are comments in it, so that they follow updates of hushpore.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    # imported here: reading settings does not need the image formats
    from hushpore.io.output_target import check_target

    target = check_target(path, overwrite, suffixes=(_SUFFIX,))
    given = settings or read_preset(DEFAULT)
    with new_file(target, overwrite) as part:
        part.write_text(settings_text(given), encoding="utf-8")
    return target


def settings_text(settings: Mapping[str, Settings]) -> str:
    """Return settings as `write_settings` writes them."""
    parts = ["# Settings of hushpore. Lines that start with # show defaults.\n"]
    for job, values in settings.items():
        parts.append(f"\n[{job}]  # {JOBS[job].title}\n{explained(values)}")
    return "".join(parts)


def presets_folder() -> Path:
    """Return the folder of the presets, which may not exist."""
    return config_folder(roaming=True) / "presets"


def list_presets(job: str = "") -> list[str]:
    """Return the names of the user's presets, sorted case-insensitively.

    Parameters
    ----------
    job : str, optional
        Only presets with settings for this job; damaged files are skipped.
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

    A preset of the user with the same name replaces one of these.

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
    """Return the choices of a form: the defaults, the last used settings, and presets of a job."""
    last = [LAST] if LAST_USED.get(job) is not None else []
    return [DEFAULT, *last, *shipped_presets(job), *list_presets(job)]


def load_preset(name: str, job: str) -> Settings:
    """Return the settings of a job in a preset.

    Raises
    ------
    InputError
        If there is no such preset, or it has no settings for the job.
    """
    found = read_preset(name)
    if job not in found:
        raise InputError(
            f"The preset {name!r} has no settings for {JOBS[job].title.lower()!r}, only for "
            f"{', '.join(found)}."
        )
    return found[job]


def read_preset(name: str) -> dict[str, Settings]:
    """Return the settings of a preset by job.

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
    """Save the settings of a job in a preset; settings of other jobs in that preset stay.

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
        The file, which is replaced atomically.

    Raises
    ------
    InputError
        If the name is not valid.
    OutputError
        If it cannot be written.
    """
    file = preset_file(name)
    others = read_preset(name) if file.is_file() or name in shipped_presets() else {}
    return save_file(file, settings_text({**others, job: settings}))


def delete_preset(name: str) -> None:
    """Delete a preset for all jobs, if it exists."""
    preset_file(name).unlink(missing_ok=True)


def preset_file(name: str) -> Path:
    """Return the file of a preset, which may not exist.

    Raises InputError if the name is not valid.
    """
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise InputError(
            f"{name!r} is not a valid name of a preset. Use up to 60 letters, digits, spaces and "
            f". _ + -; {DEFAULT!r}, {LAST!r} and {CUSTOM!r} are reserved."
        )
    return presets_folder() / f"{name}{_SUFFIX}"


def remember(name: str, settings: Settings) -> None:
    """Save the settings of the last run of a job or widget; ignores errors of the file system.

    Only numbers, choices and switches are saved. Free text may name files or layers of one scan, or
    a patient; grey values belong to one scan, too, and training steps and time limit to one run.
    Defaults are not saved, so that they follow updates of hushpore.

    `name`: of the job or widget. `settings`: those of the run.
    """
    kept = {
        opt.name: value
        for opt in settings.options()
        if _can_be_kept(opt, value := getattr(settings, opt.name)) and value != opt.default
    }
    LAST_USED.put(name, kept)


def remembered(name: str, kind: type[T]) -> T | None:
    """Return the settings of the last run of a job or widget; None if there are none.

    `name`: as for `remember`. `kind`: the class of the settings. Unknown or invalid values are
    replaced by defaults.
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
    if opt.of_run or opt.auxiliary or (opt.grey_value and value is not None and not is_word):
        return False
    return str not in opt.types or bool(opt.choices)
