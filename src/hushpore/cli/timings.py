"""What ``--timings`` and ``--trace`` show: where the time of a command went."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from hushpore.base.events import Timing
from hushpore.base.partial import new_file
from hushpore.cli.echo import echo
from hushpore.device.breakdown import timing_table
from hushpore.device.timing import StageTimer
from hushpore.device.trace import Trace
from hushpore.io.target import check_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hushpore.base.events import Event
    from hushpore.base.volume import Volume


class Measured:
    """Times the reading of files and listens to the jobs of a command.

    `timings`: print a table for each job at the end. `trace`: file for the time line, whose name
    ends in ``.json``. `overwrite`: whether that file may be replaced.
    Raises OutputError if the file cannot be written.

    Attributes
    ----------
    files : list of pathlib.Path
        What it will write: that of the time line, where there is one.
    """

    def __init__(self, timings: bool, trace: str | None, overwrite: bool) -> None:
        self._timings = timings
        self.files: list[Path] = []
        if trace is not None:
            self.files.append(check_target(trace, overwrite, suffixes=(".json",)))
        self._trace = Trace("hushpore")
        self._newest: dict[str, Timing] = {}
        self._timer = StageTimer()
        self._read = Timing()

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
        for file in self.files:
            with new_file(file, overwrite=True) as part:
                part.write_text(json.dumps(self._trace.to_dict()), encoding="utf-8")
