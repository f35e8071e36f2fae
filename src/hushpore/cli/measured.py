"""What ``--timings`` and ``--trace`` show: where the time of a command went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hushpore.base.errors import OutputError
from hushpore.base.events import Timing
from hushpore.device.breakdown import timing_table
from hushpore.device.trace import Trace

if TYPE_CHECKING:
    from hushpore.base.events import Event


class Measured:
    """Listens to the jobs of a command.

    Parameters
    ----------
    timings : bool
        Print a table for each job at the end.
    trace : str or None
        File for the time line.
    overwrite : bool
        Whether that file may be replaced.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """

    def __init__(self, timings: bool, trace: str | None, overwrite: bool) -> None:
        self._timings = timings
        self._path = None if trace is None else Path(trace).expanduser()
        self._trace = Trace("hushpore")
        self._newest: dict[str, Timing] = {}
        if self._path is not None:
            if self._path.exists() and not overwrite:
                raise OutputError(f"{self._path} is there already; choose another name.")
            if not self._path.parent.is_dir():
                raise OutputError(f"Cannot write {self._path}: there is no folder for it.")

    def listen(self, title: str, event: Event) -> None:
        """Take in an event of the job of that title."""
        self._trace.add(event)
        if isinstance(event, Timing):
            self._newest[title] = event

    def show(self) -> None:
        """Print the tables and write the time line, where they were asked for."""
        if self._timings:
            for title, timing in self._newest.items():
                click.echo(f"\n{title}\n{timing_table(timing)}", err=True)
        if self._path is not None:
            try:
                self._path.write_text(json.dumps(self._trace.to_dict()), encoding="utf-8")
            except OSError as error:
                raise OutputError(f"Cannot write {self._path}: {error.strerror}.") from error
