"""The one way to the terminal: what files of others say cannot command it."""

from __future__ import annotations

import click

from hushpore.base.text import harmless


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, without characters that a terminal would obey."""
    click.echo(harmless(text), err=err, nl=nl)
