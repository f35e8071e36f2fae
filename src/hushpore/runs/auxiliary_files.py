"""Files that a setting names, laid beside the volume: masks, labels, images, points."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume


def attach_files(volume: Volume, settings: Settings) -> Volume:
    """Read the files that settings name, and return the volume with them beside it.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    paths = {getattr(settings, opt.name) for opt in settings.options() if opt.auxiliary} - {""}
    missing = {path: _read(path) for path in sorted(paths - set(volume.auxiliary))}
    return (
        dataclasses.replace(volume, auxiliary={**volume.auxiliary, **missing})
        if missing
        else volume
    )


def _read(path: str) -> Any:
    from hushpore.io import read
    from hushpore.io.points import read_points

    if Path(path).suffix.lower() == ".csv":
        return read_points(path)
    return read(path).data
