"""Command line: the jobs of the napari plugin for terminals, scripts and servers."""

from __future__ import annotations

import atexit
import gc


def main() -> None:
    """Run the command ``hushpore``."""
    # at its end nothing is left to close, and looking for circles in numba takes a quarter second
    atexit.register(gc.freeze)
    from hushpore.cli.commands import hushpore

    hushpore(prog_name="hushpore")
