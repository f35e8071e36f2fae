"""The timeline of a job in the format of chrome://tracing and https://ui.perfetto.dev."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from hushpore._version import __version__
from hushpore.base.events import Metric, Note, Timing
from hushpore.device.breakdown import timing_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event

#: Maximum number of entries: some 15 MB of memory, and 10 MB of JSON.
LIMIT = 100_000


class Trace:
    """Collects the events of a job: runs of stages, curves and notes.

    `title`: of the job in the trace. `limit`: maximum number of entries; later ones are only
    counted. `clock`: seconds, as of `time.perf_counter`; for tests.
    `dropped`: number of entries beyond the limit, and of runs that were not timed.

    The format is described in "Trace Event Format", Google, 2016.

    >>> from hushpore.base.events import Metric
    >>> trace = Trace("Denoise")
    >>> trace.add(Metric("loss", 25, 0.5))
    >>> [entry["name"] for entry in trace.to_dict()["traceEvents"]]
    ['process_name', 'loss']
    """

    def __init__(
        self, title: str, limit: int = LIMIT, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock, self._limit = clock, limit
        self._start = clock()
        # name, phase, microseconds, value: small, since there may be very many
        self._entries: list[tuple[str, str, float, float]] = []
        self._title = title
        self._left_out = 0
        self._timing = Timing()

    @property
    def dropped(self) -> int:
        """Number of entries beyond the limit, and of runs that were not timed."""
        return self._timing.dropped + self._left_out

    def add(self, event: Event) -> None:
        """Add an event; events without a time are ignored."""
        match event:
            case Timing():
                self._timing = dataclasses.replace(event, spans=())
                for span in event.spans:
                    at = self._microseconds(span.start)
                    self._keep(span.stage, "X", at, 1e6 * span.seconds)
            case Metric():
                self._keep(event.name, "C", self._now(), event.value)
            case Note():
                self._keep(event.message, "i", self._now(), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON values, with times in microseconds since its start.

        The summary of the stages is under ``otherData``.
        """
        name = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": self._title}}
        return {
            "traceEvents": [name, *map(_entry, list(self._entries))],
            "displayTimeUnit": "ms",
            "otherData": {
                "hushpore": __version__,
                "dropped": self.dropped,
                "timings": timing_record(self._timing),
            },
        }

    def _keep(self, name: str, phase: str, at: float, value: float) -> None:
        if len(self._entries) < self._limit:
            self._entries.append((name, phase, at, value))
        else:
            self._left_out += 1

    def _now(self) -> float:
        return self._microseconds(self._clock())

    def _microseconds(self, seconds: float) -> float:
        return 1e6 * (seconds - self._start)


def _entry(kept: tuple[str, str, float, float]) -> dict[str, Any]:
    name, phase, at, value = kept
    entry = {"name": name, "ph": phase, "ts": at, "pid": 1, "tid": 1}
    match phase:
        case "X":
            return {**entry, "dur": value}
        case "C":
            return {**entry, "args": {name: value}}
    # a note is global to the process
    return {**entry, "s": "p"}
