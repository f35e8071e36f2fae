"""Driving a job in a terminal: a progress bar with the time left, and its notes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hushpore.base.events import Note
from hushpore.base.events import Progress as Done

if TYPE_CHECKING:
    from hushpore.base.events import Job


def drive(job: Job, title: str, quiet: bool = False) -> Any:
    """Run a job to its end with a progress bar on standard error, and return its result.

    Parameters
    ----------
    job : generator
        As `hushpore.start` makes it; closed whatever happens, an interrupt included.
    title : str
        What stands before the bar.
    quiet : bool, optional
        Draw nothing.
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
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, disable=quiet, transient=False)
    with contextlib.closing(job), bar:
        task = bar.add_task(title, total=1.0, count="")
        while True:
            try:
                event = next(job)
            except StopIteration as end:
                bar.update(task, completed=1.0, description=title)
                return end.value
            if isinstance(event, Done):
                count = f"{event.done:,}/{event.total:,} {event.unit}" if event.total else ""
                bar.update(
                    task,
                    completed=event.fraction,
                    description=f"{title}: {event.stage}",
                    count=count,
                )
            elif isinstance(event, Note) and not quiet:
                bar.console.print(("Warning: " if event.warning else "") + event.message)
