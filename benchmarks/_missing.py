"""What a benchmark needs and not every machine has: said before any work, in one line."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class MissingError(Exception):
    """Something that a benchmark needs is not there; the message says what, and how to get it."""


def require_package(name: str, get: str = "") -> None:
    """Refuse to go on without a package; `get`: the command that installs it."""
    if (sys.modules[name] if name in sys.modules else find_spec(name)) is None:
        raise MissingError(f"It needs the package {name}: {get or f'pip install {name}'}")


def require_files(folder: Path, pattern: str, origin: str) -> list[Path]:
    """Return the files of a folder in order, of which there must be some."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise MissingError(f"It needs {pattern} in {folder}: {origin}")
    return found


def require_screen(*, virtual: bool = False) -> None:
    """Refuse to go on without a screen; `virtual`: where xvfb-run is there, it makes one."""
    without = sys.platform == "linux" and not (
        os.environ.get("DISPLAY")
        or os.environ.get("WAYLAND_DISPLAY")
        or os.environ.get("QT_QPA_PLATFORM") == "offscreen"
    )
    if without and not (virtual and shutil.which("xvfb-run")):
        raise MissingError(
            "It needs a screen: xvfb-run -a -s '-screen 0 1600x1000x24' python -m benchmarks NAME "
            "makes one (apt install xvfb)"
        )
    require_package("napari", "pip install 'napari[all]'")
