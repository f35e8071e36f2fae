"""Command line: the jobs of the napari plugin for terminals, scripts and servers."""

from __future__ import annotations


def main() -> None:
    """Run the command ``hushpore``."""
    from hushpore.cli.commands import hushpore

    hushpore(prog_name="hushpore")
