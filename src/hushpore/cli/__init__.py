"""The command line: the same jobs as in napari, for a terminal, a script or a server."""

from __future__ import annotations


def main() -> None:
    """Run the command line, as the command ``hushpore`` does."""
    from hushpore.cli.commands import hushpore

    hushpore(prog_name="hushpore")
