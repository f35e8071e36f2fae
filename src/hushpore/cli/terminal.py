"""Terminal output of a command: text, the progress of a job, and timings."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hushpore.base.atomic import new_file
from hushpore.base.events import Driver, Note, StopEarly, Timing, mapped
from hushpore.base.events import Progress as Done
from hushpore.base.formatting import harmless
from hushpore.cli.flags import in_flags
from hushpore.device.timing import Trace, timing_table
from hushpore.io.output_target import check_target
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from hushpore.base.events import Event, Job


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, with control characters escaped."""
    click.echo(harmless(text), err=err, nl=nl)


def drive(job: Generator[Any, None, Any], title: str, quiet: bool = False) -> Any:
    """Run a job to its end with a progress bar on standard error, and return its result.

    Parameters
    ----------
    job : generator
        A job from `hushpore.start`, or any other generator of events. It is always closed, even
        after an interrupt.
    title : str
        Shown in front of the progress bar.
    quiet : bool, optional
        Show neither the bar nor the notes.

    Returns
    -------
    object
        The result of the job.

    Raises
    ------
    KeyboardInterrupt
        At the second Ctrl+C; at the first one if the job cannot end early with a result.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True, quiet=quiet))
    with Driver(job) as driver, bar, _Interrupts() as interrupts:
        task = bar.add_task(title, total=1.0, count="")
        is_ending = False
        try:
            for event in driver:
                if is_ending:
                    # a job that cannot end early has raised StopEarly by now
                    bar.console.print("Ending early; press Ctrl+C again to cancel.")
                if isinstance(event, Done):
                    # the bar shows the percentage already
                    is_count = event.total and event.unit != "%"
                    count = f"{event.done:,}/{event.total:,} {event.unit}" if is_count else ""
                    bar.update(
                        task,
                        completed=event.fraction,
                        description=harmless(f"{title}: {event.stage}").replace("[", r"\["),
                        count=count,
                    )
                elif isinstance(event, Note) and event.subject != "result":
                    # remarks on the result follow its headline
                    message = ("Warning: " if event.warning else "") + in_flags(event.message)
                    # brackets in a message are not colour markup
                    bar.console.print(harmless(message), markup=False)
                is_ending = interrupts.taken()
                driver.answer = StopEarly() if is_ending else None
        except StopEarly:
            raise KeyboardInterrupt from None
        bar.update(task, completed=1.0, description=title)
    return driver.result


def echo_result(headline: str, remarks: Iterable[Note]) -> None:
    """Print the headline of a result, and below it a list of the remarks on it."""
    echo(headline)
    for remark in remarks:
        # those on the scan and the run were printed when they were found
        if remark.subject == "result":
            echo(f"  - {in_flags(remark.with_flags)}")


class _Interrupts:
    """Holds the first Ctrl+C back until the job's next event; the second one is raised."""

    def __init__(self) -> None:
        self._waiting = False
        self._before: Any = None

    def __enter__(self) -> _Interrupts:
        # Python lets only the main thread handle signals
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def taken(self) -> bool:
        """Return whether Ctrl+C was pressed since the last call."""
        waiting, self._waiting = self._waiting, False
        return waiting

    def _keep(self, *_: object) -> None:
        self._waiting = True
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


class TimingRecorder:
    """Records the time that a command takes to read files and to run its jobs.

    Parameters
    ----------
    timings : bool
        Print a table for each job at the end.
    trace : str or None
        Timeline file to write; its name ends in ``.json``.
    overwrite : bool
        Replace an existing timeline file.

    Attributes
    ----------
    files : list of pathlib.Path
        Files to be written: the timeline, if requested.

    Raises
    ------
    OutputError
        If the timeline file cannot be written.
    """

    def __init__(self, timings: bool, trace: str | None, overwrite: bool) -> None:
        self._timings = timings
        self.files: list[Path] = []
        if trace is not None:
            self.files.append(check_target(trace, overwrite, suffixes=(".json",)))
        self._trace = Trace("hushpore")
        self._newest: dict[str, Timing] = {}

    def watch(self, job: str, work: Job) -> Job:
        """Return a job that records its times.

        `job`: its name, or ``"reading"``: the time of reading is shown with the first job.
        """

        def recorded(event: Event) -> Event:
            self._trace.add(event)
            if isinstance(event, Timing):
                self._newest[job] = event
            return event

        return mapped(work, recorded)

    def show(self) -> None:
        """Print the tables and write the timeline, if requested."""
        if self._timings:
            read = self._newest.pop("reading", Timing())
            for job, timing in self._newest.items():
                title = JOBS[job].title if job in JOBS else job
                elapsed = timing.elapsed + sum(stage.seconds for stage in read.stages.values())
                stages = {**read.stages, **timing.stages}
                whole = dataclasses.replace(timing, stages=stages, elapsed=elapsed)
                echo(f"\n{title}\n{timing_table(whole)}", err=True)
                read = Timing()
        for file in self.files:
            with new_file(file, overwrite=True) as part:
                part.write_text(json.dumps(self._trace.to_dict()), encoding="utf-8")
