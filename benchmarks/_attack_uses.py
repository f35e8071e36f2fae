"""What is used beside scans, and was made to do harm: the list of it, and how it is used.

Each is made in a folder that is empty, and then used as a user would. A use ends without an error
(unharmed) or with one of hushpore's, or a status of the command line that is not zero (refused); it
raises `HarmError` where what came of it is wrong.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Use = Callable[[], None]

#: Makes something in a folder that is empty, and returns what uses it.
USES: dict[str, Callable[[Path], Use]] = {}

#: How little the denoisings learn.
LEARN = "--device cpu --patch-size 16 --batch-size 2 --method n2v2 --context 0"


class HarmError(Exception):
    """Something came of it that should not have; the message says what."""


def use(name: str) -> Callable[[Callable[[Path], Use]], Callable[[Path], Use]]:
    """Enter a function in the list."""

    def enter(make: Callable[[Path], Use]) -> Callable[[Path], Use]:
        USES[name] = make
        return make

    return enter


def scan(path: Path) -> Path:
    """Write a small scan with a few pores."""
    from hushpore import Volume
    from hushpore.io.results import write_image

    values = np.random.default_rng(0).normal(100, 8, (6, 32, 32))
    values[2:4, 8:14, 8:14] = values[1:5, 8:12, 20:26] = 40
    return write_image(path, Volume(values.astype(np.uint8), 1.0, "um"))


def typed(words: list[str]) -> None:
    """Type a command; raises `InputError` where it ends with a status, `HarmError` where it fails.

    What it says must command no terminal, and be no mistake of hushpore.
    """
    from hushpore.cli.commands import hushpore

    said = io.StringIO()
    status: int | str | None = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            hushpore(words, prog_name="hushpore")
        except SystemExit as end:
            status = end.code
    text = said.getvalue()
    if "Traceback" in text or "should not have happened" in text or "mistake of hushpore" in text:
        raise HarmError(f"not told in words: {text.strip().splitlines()[-1][:200]}")
    if any(each in text for each in "\x07\u202e") or "\x1b]" in text:
        raise HarmError("commands the terminal")
    if status:
        raise InputError(text)


def put(path: Path, content: bytes | None) -> None:
    """Put a file in the place of another; None: a pipe."""
    path.unlink(missing_ok=True)
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
