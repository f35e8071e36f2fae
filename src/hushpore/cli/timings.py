"""What ``--timings`` and ``--trace`` show: where the time of a command went."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from hushpore.base.errors import OutputError
from hushpore.base.events import Timing
from hushpore.base.partial import new_file
from hushpore.cli.echo import echo
from hushpore.device.breakdown import timing_table
from hushpore.device.timing import StageTimer
from hushpore.device.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event
    from hushpore.base.volume import Volume


class Measured:
    """Times the reading of files and listens to the jobs of a command.

    `timings`: print a table for each job at the end. `overwrite`: whether that file may be
    replaced.
    Raises OutputError if the file cannot be written.
    """

    def __init__(self, timings: bool, trace: str | None, overwrite: bool) -> None:
        self._timings = timings
        self._path = None if trace is None else Path(trace).expanduser()
        self._trace = Trace("hushpore")
        self._newest: dict[str, Timing] = {}
        self._timer = StageTimer()
        self._read = Timing()
        if self._path is not None:
            if self._path.exists() and not overwrite:
                raise OutputError(f"{self._path} is there already; choose another name.")
            if not self._path.parent.is_dir():
                raise OutputError(f"Cannot write {self._path}: there is no folder for it.")

    def read(self, reads: Callable[[], Volume]) -> Volume:
        """Return what a function reads from files; the job that comes first counts its time."""
        with self._timer.stage("reading files") as run:
            volume = reads()
            run.nbytes = volume.nbytes
        self._read = self._timer.timing()
        self._trace.add(self._read)
        return volume

    def listen(self, title: str, event: Event) -> None:
        """Take in an event of the job of that title."""
        self._trace.add(event)
        if isinstance(event, Timing):
            self._newest[title] = event

    def show(self) -> None:
        """Print the tables and write the time line, where they were asked for."""
        if self._timings:
            read = self._read
            for title, timing in self._newest.items():
                elapsed = timing.elapsed + sum(stage.seconds for stage in read.stages.values())
                stages = {**read.stages, **timing.stages}
                whole = dataclasses.replace(timing, stages=stages, elapsed=elapsed)
                echo(f"\n{title}\n{timing_table(whole)}", err=True)
                read = Timing()
        if self._path is not None:
            with new_file(self._path, overwrite=True) as part:
                part.write_text(json.dumps(self._trace.to_dict()), encoding="utf-8")
