"""The settings with which each kind of work was last run, so that the next one begins with them.

Numbers, choices, and yes or no are kept, and nothing else: what is free text names files, layers or
places, which are of that one scan, and may be of a patient. Grey values are of one scan too.
"""

from __future__ import annotations

import contextlib
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

from hushpore.base.errors import OutputError
from hushpore.base.preferences import config_folder
from hushpore.base.settings import Settings
from hushpore.base.text import LONGEST_SETTINGS, read_text
from hushpore.runs.settings_file import keep, toml_value

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.settings import Option

T = TypeVar("T", bound=Settings)


def remembered_file() -> Path:
    """Return the file in which they are kept, whether it exists or not."""
    return config_folder(roaming=True) / "last.toml"


def remember(name: str, settings: Settings) -> None:
    """Keep the settings of a kind of work; does nothing where nothing can be written.

    `name`: of the job or the widget. `settings`: those that it was started with. What is at its
    default is not kept, and so follows the program.
    """
    kept = _tables()
    kept[name] = {
        opt.name: "none" if value is None else value
        for opt in settings.options()
        if _can_be_kept(opt, value := getattr(settings, opt.name)) and value != opt.default
    }
    lines = ["# What hushpore was last run with; it may be deleted at any time.\n"]
    for table, values in kept.items():
        lines.append(f"\n[{table}]\n")
        lines += [f"{key} = {toml_value(value)}\n" for key, value in values.items()]
    # to remember is a courtesy: a run must not fail for it, nor the window wait for the disk
    with contextlib.suppress(OutputError):
        keep(remembered_file(), "".join(lines), lasting=False)


def remembered(name: str, kind: type[T]) -> T | None:
    """Return what a kind of work was last run with; None where that is not known.

    `name`: as given to `remember`. `kind`: its settings. What is not known or not accepted by now
    has its default.
    """
    table = _tables().get(name)
    if table is None:
        return None
    options = {opt.name: opt for opt in kind.options()}
    return kind.of_what_fits(
        {
            key: None if value == "none" and options[key].optional else value
            for key, value in table.items()
            if key in options and _can_be_kept(options[key], value)
        }
    )


def forget() -> None:
    """Forget all of it."""
    remembered_file().unlink(missing_ok=True)


def _tables() -> dict[str, dict[str, Any]]:
    """Return what the file holds; nothing where it is damaged."""
    try:
        found = tomllib.loads(read_text(remembered_file(), LONGEST_SETTINGS))
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def _can_be_kept(opt: Option, value: Any) -> bool:
    is_word = isinstance(value, str)
    if opt.auxiliary or (opt.grey_value and value is not None and not is_word):
        return False
    return str not in opt.types or bool(opt.choices)
