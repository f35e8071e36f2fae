"""How fast work was measured to be on this computer, kept beside the preferences."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from hushpore.base.errors import OutputError
from hushpore.base.partial import new_file
from hushpore.base.preferences import config_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Kinds of work that are kept; the oldest goes first.
_KEPT = 100


def speeds_file() -> Path:
    """Return the file in which they are kept, whether it exists or not."""
    return config_folder() / "speeds.json"


def known_speeds(key: str) -> dict[str, float]:
    """Return what was measured last for a kind of work; empty where nothing was.

    `key`: all that it depends on: devices, versions, settings.
    """
    return _all().get(key, {})


def keep_speeds(key: str, measured: Mapping[str, float]) -> None:
    """Keep what was measured; where nothing can be written it is measured again."""
    found = _all()
    found.pop(key, None)
    kept = dict([*found.items(), (key, dict(measured))][-_KEPT:])
    file = speeds_file()
    with suppress(OSError, OutputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file, overwrite=True, lasting=False) as part:
            part.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def forget_speeds() -> None:
    """Have everything measured anew."""
    speeds_file().unlink(missing_ok=True)


def _all() -> dict[str, dict[str, float]]:
    """Return what the file holds; nothing of it that is damaged."""
    try:
        found = json.loads(speeds_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: each for key, each in found.items() if _are_numbers(each)}


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, float) and math.isfinite(each) and each >= 0 for each in value.values()
    )
