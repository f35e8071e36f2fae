from __future__ import annotations

import json

from hushpore.base.events import Metric, Note, Progress, Span, Timing
from hushpore.device.breakdown import Trace
from hushpore.device.timing import StageTimer


def entries(trace: Trace, phase: str) -> list[dict[str, object]]:
    found = json.loads(json.dumps(trace.to_dict()))["traceEvents"]
    return [entry for entry in found if entry["ph"] == phase]


def test_runs_of_stages_lie_where_they_were_on_the_time_line() -> None:
    trace = Trace("Denoise", clock=lambda: 100.0)
    trace.add(Timing(spans=(Span("upload", 100.5, 0.25), Span("training", 101.0, 2.0))))
    assert [(e["name"], e["ts"], e["dur"]) for e in entries(trace, "X")] == [
        ("upload", 0.5e6, 0.25e6),
        ("training", 1e6, 2e6),
    ]


def test_curves_and_notes_are_in_it_and_the_process_has_its_name() -> None:
    trace = Trace("Denoise", clock=lambda: 0.0)
    trace.add(Metric("loss", 25, 0.5))
    trace.add(Note("Memory ran out."))
    trace.add(Progress("training", 1, 2, "steps", 0.5))
    assert entries(trace, "C")[0]["args"] == {"loss": 0.5}
    assert entries(trace, "i")[0]["name"] == "Memory ran out."
    assert entries(trace, "M")[0]["args"] == {"name": "Denoise"}
    assert len(trace.to_dict()["traceEvents"]) == 3


def test_every_run_of_a_real_timer_is_in_it_once() -> None:
    timer, trace = StageTimer(), Trace("job")
    for _ in range(3):
        for _ in range(5):
            with timer.stage("a"):
                pass
        trace.add(timer.timing())
    runs = entries(trace, "X")
    assert len(runs) == 15
    starts = [run["ts"] for run in runs]
    assert starts == sorted(starts, key=float)


def test_a_long_job_does_not_fill_the_memory() -> None:
    trace = Trace("job", limit=10)
    trace.add(Timing(spans=tuple(Span("a", float(n), 1.0) for n in range(25)), dropped=3))
    assert len(entries(trace, "X")) == 10
    assert trace.dropped == 18
