"""How fast devices were measured to be, kept beside the preferences for later processes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hushpore.base.errors import OutputError
from hushpore.base.partial import new_file
from hushpore.base.preferences import config_folder

if TYPE_CHECKING:
    from pathlib import Path


class Rates(NamedTuple):
    """What the same work has taken on a GPU and on the CPU."""

    # voxels a second
    gpu: float
    cpu: float
    is_same: bool  # whether both gave the same, bit for bit


def rates_file() -> Path:
    """Return the file in which they are kept, whether it exists or not."""
    return config_folder() / "rates.json"


def known_rates(key: str) -> Rates | None:
    """Return what was measured before.

    `key`: all that it depends on: devices, their driver, versions.
    """
    with suppress(KeyError, TypeError, ValueError):
        gpu, cpu, is_same = _all()[key]
        return Rates(float(gpu), float(cpu), bool(is_same))
    return None


def keep_rates(key: str, rates: Rates) -> None:
    """Keep what was measured; where nothing can be written it is measured again."""
    file = rates_file()
    with suppress(OSError, OutputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file, overwrite=True, lasting=False) as part:
            part.write_text(json.dumps({**_all(), key: rates}, indent=1), encoding="utf-8")


def forget_rates() -> None:
    """Have everything measured anew."""
    rates_file().unlink(missing_ok=True)


def _all() -> dict[str, list[float]]:
    try:
        found = json.loads(rates_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
