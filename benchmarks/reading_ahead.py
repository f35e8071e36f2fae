"""Reading ahead of the work: slices that take 10 ms each to read, against the floor of that."""

from __future__ import annotations

import time
from statistics import median

from hushpore.device.prefetch import ReadAhead

READ = 0.01
SLICES = 100
REPEATS = 3


def measure() -> dict[str, object]:
    """Time one after the other and reading ahead, for several lengths of work a slice."""
    return {f"{work * 1000:g} ms of work a slice": _compare(work) for work in (0.002, 0.01, 0.02)}


def _compare(work: float) -> dict[str, float]:
    times: dict[str, list[float]] = {"after": [], "ahead": []}
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in map(_read, range(SLICES)):
            time.sleep(work)
        times["after"].append(time.perf_counter() - start)
        start = time.perf_counter()
        with ReadAhead(_read, range(SLICES)) as pieces:
            for _ in pieces:
                time.sleep(work)
        times["ahead"].append(time.perf_counter() - start)
    floor = SLICES * max(READ, work)
    return {
        "one after the other, s": round(median(times["after"]), 3),
        "reading ahead, s": round(median(times["ahead"]), 3),
        "floor, s": round(floor, 3),
        "ratio to the floor": round(median(times["ahead"]) / floor, 3),
    }


def _read(number: int) -> int:
    time.sleep(READ)
    return number
