"""How fast jobs ran on this computer, to say beforehand how long the next one like it takes."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING

from hushpore.base.errors import OutputError
from hushpore.base.preferences import config_folder
from hushpore.runs.settings_file import keep

if TYPE_CHECKING:
    from pathlib import Path

#: Kinds that are kept; the oldest goes first.
_KEPT = 50


def pace_file() -> Path:
    """Return the file in which it is kept, whether it exists or not."""
    return config_folder() / "pace.json"


def remember_pace(kind: str, pace: dict[str, float]) -> None:
    """Keep what each unit of a kind of work took; does nothing where nothing can be written.

    `kind`: what the times depend on, in any words. `pace`: seconds by the name of the unit.
    """
    found = _paces()
    found.pop(kind, None)
    found[kind] = pace
    kept = dict(list(found.items())[-_KEPT:])
    # a run must not fail for it
    with contextlib.suppress(OutputError):
        keep(pace_file(), json.dumps(kept, indent=1))


def remembered_pace(kind: str) -> dict[str, float]:
    """Return the times of the last job of a kind; empty where there was none."""
    return _paces().get(kind, {})


def _paces() -> dict[str, dict[str, float]]:
    """Return what the file holds; nothing of it that is damaged."""
    try:
        found = json.loads(pace_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {kind: pace for kind, pace in found.items() if _is_pace(pace)}


def _is_pace(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, float) and math.isfinite(each) and each >= 0 for each in value.values()
    )
