"""Driving a job in a terminal: a progress bar with the time left, and its notes."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hushpore.base.events import Driver, Note, StopEarly
from hushpore.base.events import Progress as Done
from hushpore.base.text import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hushpore.base.events import Event


def drive(
    job: Generator[Any, None, Any],
    title: str,
    quiet: bool = False,
    listen: Callable[[Event], None] | None = None,
) -> Any:
    """Run a job to its end with a progress bar on standard error, and return its result.

    `job`: as `hushpore.start` makes it, or another that yields events; closed whatever happens, an
    interrupt included.
    Raises KeyboardInterrupt: at the second interrupt; at the first where the job cannot end early
    with what it has.
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
                    # a job that cannot end early has raised
                    bar.console.print("Ending early; press Ctrl+C again to cancel.")
                if listen is not None:
                    listen(event)
                if isinstance(event, Done):
                    # per cent are said already
                    is_count = event.total and event.unit != "%"
                    count = f"{event.done:,}/{event.total:,} {event.unit}" if is_count else ""
                    bar.update(
                        task,
                        completed=event.fraction,
                        description=harmless(f"{title}: {event.stage}").replace("[", r"\["),
                        count=count,
                    )
                elif isinstance(event, Note):
                    told = harmless(("Warning: " if event.warning else "") + event.message)
                    # a bracket is a bracket here, and no colour
                    bar.console.print(told, markup=False)
                is_ending = interrupts.taken()
                driver.answer = StopEarly() if is_ending else None
        except StopEarly:
            raise KeyboardInterrupt from None
        bar.update(task, completed=1.0, description=title)
    return driver.result


class _Interrupts:
    """Keeps the first Ctrl+C for the job to be told of between two events; the second is raised."""

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
        """Whether there was an interrupt that has not been answered yet."""
        waiting, self._waiting = self._waiting, False
        return waiting

    def _keep(self, *_: object) -> None:
        self._waiting = True
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
