"""The command line, 500 runs in a row with faults brought about: what each says, what is left.

No file may grow beyond a random byte, changes to the disk are refused, one of them or all from a
random one on (disk or quota full, no right, read-only, an error of the hardware, a folder that is
gone), the scan is gone or cut, and workers of a batch are killed. A run must end with the new
result, or in words and with the old one, and leave nothing: where nothing can be removed any more,
what was left must go with the next run. Linux only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._forked import alone, before_changes, command, forked
from benchmarks.last_write import CASES, Case, before_and_after, contents, names, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable

    Fault = Callable[[Path, int, random.Random], None]

TIMES = 500
#: Shares of the runs; what takes a second is run less often than what takes a tenth of it.
SHARES = {"convert": 0.4, "denoise --checkpoint": 0.28, "pores --overwrite": 0.1, "run": 0.1,
          "batch": 0.1}  # fmt: skip
#: Runs of a batch in two processes, of which one is killed; these import all they need first.
KILLED_WORKERS = 10
#: Exit statuses: done, or told in words.
_DONE, _TOLD = 0, 1
_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO, errno.ENOENT)
#: What is written last, beside an image or results that are whole without it.
_BESIDE = {"d.json", "b/summary.csv", "b/summary.json"}


def measure() -> dict[str, Any]:
    """Count how the runs ended, and what should not have been."""
    return alone(_measure)


def _measure() -> dict[str, Any]:
    warm_up()
    moments = random.Random(0)
    figures: dict[str, Any] = {}
    for name, share in SHARES.items():
        figures[name] = runs(CASES[name], FAULTS, round(share * TIMES), moments)
        print(name, json.dumps(figures[name]), flush=True)
    batch = CASES["batch"]
    two = Case(f"{batch.words} --jobs 2", batch.before, batch.results)
    killed = {"a worker is killed": _worker_killed}
    figures["batch --jobs 2"] = runs(two, killed, KILLED_WORKERS, moments)
    rows = list(figures.values())
    figures["runs"] = sum(row["runs"] for row in rows)
    figures["faults"] = sum(len(row["faults"]) for row in rows)
    return figures


def runs(
    case: Case, faults: dict[str, Fault], times: int, moments: random.Random
) -> dict[str, Any]:
    """Run a command many times, each with a fault."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        begun, done, changes = before_and_after(case, Path(scratch))
        old, new = contents(begun, case), contents(done, case)
        for _ in range(times):
            place = Path(scratch, "place")
            shutil.copytree(begun, place)
            name = moments.choice(list(faults))
            number = moments.randint(1, changes)
            seed = moments.randrange(1 << 30)
            status, text = listened(partial(_run, faults[name], place, number, seed, case))
            problem = judge(place, case, status, text, old, new)
            left = names(place) - names(done)
            if left and name in _CANNOT_TIDY:
                found["left until the next run"] += 1
                problem += _run_again(case, place, new)
                left = names(place) - names(done)
            problem += [f"left over: {each}" for each in sorted(left)]
            outcome = {_DONE: "done", _TOLD: "told in words"}.get(status, f"status {status}")
            found[f"{name}: {outcome}"] += 1
            if problem:
                last = text.strip().splitlines()[-1:]
                wrong.append(f"{name}, change {number} of {changes}: {'; '.join(problem)} {last}")
            shutil.rmtree(place)
    return {"runs": times, **dict(sorted(found.items())), "faults": wrong}


def listened(work: Callable[[], None]) -> tuple[int, str]:
    """Run a function in a fork; returns its exit status, and what it has said."""
    ours, theirs = os.pipe()
    # of a size that all fits; not a file, which would count as the disk
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 1 << 20)
    status = forked(work, output=Path(f"/dev/fd/{theirs}"))
    os.close(theirs)
    with open(ours, encoding="utf-8", errors="replace") as pipe:
        return status, pipe.read()


def _run(fault: Fault, place: Path, number: int, seed: int, case: Case) -> None:
    fault(place, number, random.Random(seed))
    command(case.words, place)()


def _run_again(case: Case, place: Path, new: dict[str, Any]) -> list[str]:
    status, text = listened(command(case.words, place))
    if status != _DONE:
        return [f"does not run again: {text.strip().splitlines()[-1:]}"]
    return [] if contents(place, case) == new else ["another result when run again"]


def judge(
    place: Path, case: Case, status: int, text: str, old: dict[str, Any], new: dict[str, Any]
) -> list[str]:
    """Return what is wrong after a run."""
    problem = [] if status in (_DONE, _TOLD) else [f"ended with {status}"]
    if "Traceback" in text or "should not have happened" in text:
        problem.append("not told in words")
    there = contents(place, case)
    for name in case.results:
        told = status != _DONE
        if there[name] == new[name] or (told and there[name] == old[name]):
            continue
        if there[name] is None and told and name in _BESIDE:
            continue
        problem.append(f"{name} is {'gone' if there[name] is None else 'another'}")
    return problem


# ---- faults, at or from the n-th change to the disk


def _full(place: Path, number: int, moments: random.Random) -> None:
    most = moments.choice((moments.randrange(1, 2000), moments.randrange(1, 60_000)))
    # Python ignores the signal, and the write fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _refused(place: Path, number: int, moments: random.Random) -> None:
    _refuse(place, moments, lambda count: count >= number)


def _once(place: Path, number: int, moments: random.Random) -> None:
    _refuse(place, moments, lambda count: count == number)


def _refuse(place: Path, moments: random.Random, which: Callable[[int], bool]) -> None:
    reason = moments.choice(_ERRORS)

    def act(count: int) -> None:
        if which(count):
            raise OSError(reason, os.strerror(reason))

    before_changes(place, act)


def _gone(place: Path, number: int, moments: random.Random) -> None:
    (place / "n.tif").unlink()


def _cut(place: Path, number: int, moments: random.Random) -> None:
    content = (place / "n.tif").read_bytes()
    (place / "n.tif").write_bytes(content[: moments.randrange(len(content) // 2)])


def _worker_killed(place: Path, number: int, moments: random.Random) -> None:
    threading.Thread(target=_kill_a_child, args=(moments.uniform(0, 6),), daemon=True).start()


def _kill_a_child(seconds: float) -> None:
    import psutil

    while not psutil.Process().children():
        time.sleep(0.01)
    time.sleep(seconds)
    for child in psutil.Process().children()[-1:]:
        child.send_signal(signal.SIGKILL)


FAULTS: dict[str, Fault] = {
    "disk full at a byte": _full,
    "no change is possible any more": _refused,
    "one change is refused": _once,
    "the scan is gone": _gone,
    "the scan is cut": _cut,
}
#: Those with which something that is half-written cannot be removed, either.
_CANNOT_TIDY = {"no change is possible any more", "one change is refused"}
