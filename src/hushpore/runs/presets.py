"""Settings that are kept under a name, the same for forms and command line.

A preset is a settings file (`hushpore.runs.settings_file`) in the user's configuration folder, with
a table for each job that it was saved for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError
from hushpore.base.preferences import config_folder
from hushpore.jobs import JOBS
from hushpore.runs.last_used import remembered
from hushpore.runs.settings_file import SUFFIX, keep, read_settings, settings_text

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.settings import Settings

#: The names under which the defaults of a job are found, and what it was last run with in napari;
#: under neither can anything be saved.
DEFAULT, LAST = "Default", "Last used"
_NAME = re.compile(r"\w[\w .+-]{0,58}[\w+-]|\w")
# names that Windows keeps for devices
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


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
    names = sorted((path.stem for path in presets_folder().glob(f"*{SUFFIX}")), key=str.casefold)
    return [name for name in names if not job or job in _known(name)]


def names_to_choose(job: str) -> list[str]:
    """Return what a form offers: the defaults, what was last used, and the presets of a job."""
    last = [LAST] if remembered(job, JOBS[job].settings) is not None else []
    return [DEFAULT, *last, *list_presets(job)]


def load_preset(name: str, job: str) -> Settings:
    """Return the settings of a job that were saved under a name.

    Raises
    ------
    InputError
        If there are none; says which there are.
    """
    if name == DEFAULT:
        return JOBS[job].settings()
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
    if name == LAST:
        last = {job: remembered(job, kind.settings) for job, kind in JOBS.items()}
        return {job: settings for job, settings in last.items() if settings is not None}
    file = preset_file(name)
    if not file.is_file():
        listed = ", ".join(repr(each) for each in list_presets()) or "none"
        raise InputError(f"There is no preset {name!r}. Saved are: {listed}.")
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
    before = read_settings(file) if file.is_file() else {}
    return keep(file, settings_text({**before, job: settings}))


def delete_preset(name: str) -> None:
    """Delete a preset, for all jobs; does nothing where there is none."""
    preset_file(name).unlink(missing_ok=True)


def preset_file(name: str) -> Path:
    """Return the file of a preset, whether it exists or not.

    Raises InputError if the name cannot be a file's.
    """
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name) or name in (DEFAULT, LAST):
        raise InputError(
            f"{name!r} cannot be the name of a preset: letters, digits, spaces and . _ + - are "
            f"accepted, at most 60, and not {DEFAULT!r} or {LAST!r}."
        )
    return presets_folder() / f"{name}{SUFFIX}"


def _known(name: str) -> dict[str, Settings]:
    try:
        return read_preset(name)
    except InputError:
        return {}
