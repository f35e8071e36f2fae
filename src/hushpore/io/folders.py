"""The files of a folder: all of them in natural order, or the first few."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Files and folders that are looked at to tell what a folder holds.
PEEK = 24


def files_below(folder: Path) -> list[Path]:
    """Return all files of a folder and its folders, hidden ones left out, in natural order."""
    found = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in names
            if not (name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini"))
        ]
    return sorted((path for path in found if path.is_file()), key=natural_key)


def first_files(folder: Path) -> Iterator[Path]:
    """Yield some files breadth first, lazily: a folder of a million files is not listed."""
    queue = [folder]
    for _ in range(PEEK):
        if not queue:
            return
        with os.scandir(queue.pop(0)) as entries:
            for entry in itertools.islice(entries, 2 * PEEK):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    queue.append(Path(entry.path))
                elif entry.is_file():
                    yield Path(entry.path)


def natural_key(path: Path) -> tuple[tuple[tuple[int, int | str], ...], ...]:
    """Key that sorts img2 before img10.

    >>> sorted(map(Path, ["img10.tif", "img2.tif"]), key=natural_key)[0].name
    'img2.tif'
    """
    return tuple(
        tuple(
            (0, int(piece)) if piece.isdecimal() else (1, piece.lower())
            for piece in re.split(r"(\d+)", part)
            if piece
        )
        for part in path.parts
    )


def shortened(names: Sequence[str], limit: int = 3) -> str:
    """Return the first of some names, and how many more there are.

    >>> shortened(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _raise(error: OSError) -> None:
    raise error
