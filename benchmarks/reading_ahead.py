"""Reading ahead of the work: slices that take 10 ms each to read, against the floor of that.

And whether it always comes to an end: reading that dies, work that stops, and a cancel from another
thread, each at a random moment.
"""

from __future__ import annotations

import random
import threading
import time
from statistics import median

from hushpore.device.prefetch import ReadAhead

READ = 0.01
SLICES = 100
REPEATS = 3
TRIALS, PATIENCE = 1000, 10
ENDS = "came to the end", "cancelled", "died", "stopped"
WORK = (0.002, 0.01, 0.02)  # seconds a slice


def measure() -> dict[str, object]:
    """Time one after the other and reading ahead, for several lengths of work; end it at random."""
    compared = {f"{work * 1000:g} ms of work a slice": _compare(work) for work in WORK}
    return {**compared, "random ends": _random_ends()}


def _random_ends() -> dict[str, object]:
    """Count how each trial ended, those that hang, and threads that are left."""
    draw = random.Random(0)
    ends = dict.fromkeys(ENDS, 0)
    seconds, wrong, hang = [], 0, 0
    for _ in range(TRIALS):
        trial = _Trial(draw)
        start = time.perf_counter()
        trial.start()
        trial.join(PATIENCE)
        seconds.append(time.perf_counter() - start)
        hang += trial.is_alive()
        wrong += trial.seen != list(range(len(trial.seen)))
        ends[trial.end] += 1
    left = [each.name for each in threading.enumerate() if each.name == "hushpore reads ahead"]
    return {
        "trials": TRIALS,
        **ends,
        "hung": hang,
        "pieces lost or out of order": wrong,
        "threads left": len(left),
        "longest, s": round(max(seconds), 3),
    }


class _Trial(threading.Thread):
    """Reads some pieces until the end, an error, a stop, or a cancel by another thread."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(daemon=True)
        self._count = draw.randrange(12)
        self._dies, self._stops = draw.randrange(16), draw.randrange(16)
        self._pauses = [draw.choice((0, 0, 0.0005, 0.002)) for _ in range(2)]
        self._cancelled_after = draw.choice((None, draw.random() * 0.01))
        self.seen: list[int] = []
        self.end = ENDS[0]

    def run(self) -> None:
        ahead = ReadAhead(self._read, range(self._count))
        cancel = threading.Timer(self._cancelled_after or 0, self._cancel, [ahead])
        if self._cancelled_after is not None:
            cancel.start()
        try:
            with ahead as pieces:
                for piece in pieces:
                    self.seen.append(piece)
                    time.sleep(self._pauses[0])
                    if piece == self._stops:
                        self.end = "stopped"
                        break
        except OSError:
            self.end = "died"
        cancel.cancel()

    def _read(self, number: int) -> int:
        time.sleep(self._pauses[1])
        if number == self._dies:
            raise OSError("the disk is gone")
        return number

    def _cancel(self, ahead: ReadAhead[int]) -> None:
        self.end = "cancelled"
        ahead.close()


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
