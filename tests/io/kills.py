"""Work that is killed while it writes: what is there then, and what is left over.

SIGKILL comes before one of the last changes to the disk, or up to `LATER` seconds after it, in a
process that is forked from this one, which must have begun no threads. The results that lay there
must be there, whole, or the new ones, whole; and when the work is done again, the new ones and
nothing else. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Runs = Callable[[str, Path], Callable[[], None]]

#: At so many of the last changes, where these are more than the last tenth.
LEAST = 12
#: Seconds after a change within which half of them come.
LATER = 0.003
_UUID = re.compile(rb"urn:uuid:[0-9a-f-]{36}")
# of files that are another each time
_ENDS = {".png": b"IEND\xaeB`\x82", ".html": b"</html>", ".safetensors": b""}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}


@dataclass(frozen=True)
class Case:
    """A command whose results replace earlier ones."""

    words: str  # the command
    before: str  # the one that has made what is replaced
    results: tuple[str, ...]  # files and folders that it writes
    share: float = 0.1  # of its changes to the disk, the last ones, that kills come at


def before_and_after(case: Case, scratch: Path, runs: Runs) -> tuple[Path, Path, int]:
    """Make a folder as it is before a command and one as it is after it, in a folder.

    `runs`: makes of a command and a folder what runs it there.
    Returns: both, and how often the command changes something on the disk.
    """
    begun, done = scratch / "begun", scratch / "done"
    begun.mkdir()
    write_scans(begun)
    require(forked(runs(case.before, begun)) == 0, case.before)
    shutil.copytree(begun, done)
    return begun, done, count_changes(runs(case.words, done), done)


def kills(case: Case, times: int, moments: random.Random, runs: Runs) -> dict[str, Any]:
    """Kill a command many times.

    `runs`: makes of a command and a folder what runs it there.
    Returns: how often it was killed, what was there afterwards, and what should not have been.
    """
    found: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        begun, done, changes = before_and_after(case, Path(scratch), runs)
        old, new = contents(begun, case), contents(done, case)
        least = max(1, min(int((1 - case.share) * changes), changes - LEAST))
        while found["killed"] < times:
            place = Path(scratch, "killed")
            shutil.copytree(begun, place)
            number = moments.randint(least, changes)
            later = moments.choice((0, moments.uniform(0, LATER)))
            status = forked(killed(runs(case.words, place), place, number, later))
            found["killed"] += status == -9
            found["ended before the kill"] += status != -9
            fault = judge(place, case, old, new, found)
            if forked(runs(case.words, place)) != 0:
                fault.append("does not run again")
            elif contents(place, case) != new:
                fault.append("another result when run again")
            fault += [f"left over: {name}" for name in names(place) - names(done)]
            if fault:
                faults.append(f"before change {number} of {changes}: {'; '.join(fault)}")
            shutil.rmtree(place)
    return {"changes to the disk": changes, "killed": 0, **found, "faults": faults}


def judge(
    place: Path, case: Case, old: dict[str, Any], new: dict[str, Any], found: Counter[str]
) -> list[str]:
    """Return what is wrong with the results after a kill; counts which are there."""
    fault = []
    there = contents(place, case)
    for name in case.results:
        if there[name] == new[name]:
            found["new"] += 1
        elif there[name] == old[name]:
            found["old"] += 1
        elif there[name] is None and any(place.glob(f".{name}.*.old")):
            found["old, put back by the next run"] += 1
        elif there[name] is None and name == "d.json":
            found["image without its record"] += 1
        else:
            fault.append(f"{name} is neither the old nor the new one")
    image, record = case.results[0], "d.json"
    if there.get(record) is not None:
        pairs = [(each[image], each[record]) for each in (there, old, new)]
        if pairs[0] not in pairs[1:]:
            fault.append("a record beside the image of another")
    return fault


def killed(work: Callable[[], None], place: Path, number: int, later: float) -> Callable[[], None]:
    """Return work that is killed before its n-th change, or a little later."""

    def run() -> None:
        kill_before(place, number, later)
        work()

    return run


def count_changes(work: Callable[[], None], place: Path) -> int:
    """Run a command to its end; returns how often it changed the disk."""
    counted = place.with_name("count")

    def run() -> None:
        last = os.open(counted, os.O_CREAT | os.O_WRONLY)
        before_changes(place, lambda count: os.pwrite(last, b"%d" % count, 0) and None)
        work()

    require(forked(run) == 0, "counting the changes to the disk")
    return int(counted.read_text())


def write_scans(folder: Path) -> None:
    """Write two small scans with a pore."""
    from hushpore import Volume
    from hushpore.io.results import write_image

    rng = np.random.default_rng(0)
    for name in ("n", "m"):
        values = rng.normal(100, 8, (6, 32, 32))
        values[2:4, 8:14, 8:14] = 40
        write_image(folder / f"{name}.tif", Volume(values.astype(np.uint8), 1.0, "um"))


def contents(place: Path, case: Case) -> dict[str, Any]:
    """Return what the results are, without what is another each time: times and versions."""
    return {name: _content(place / name) for name in case.results}


def _content(path: Path) -> Any:
    if path.is_dir():
        return {each.name: _content(each) for each in sorted(path.iterdir())}
    return _of_file(path) if path.is_file() else None


def _of_file(path: Path) -> Any:
    data, end = path.read_bytes(), _ENDS.get(path.suffix)
    if path.suffix == ".json":
        with contextlib.suppress(ValueError):
            return _settled(json.loads(data))
        return "damaged"
    if path.name == "summary.csv":
        return [line.partition(",")[0] for line in data.decode().splitlines()]
    if end is not None:
        return "whole" if data.rstrip().endswith(end) and data else "damaged"
    # which tifffile makes anew for each file
    return _UUID.sub(b"", data)


def _settled(known: Any) -> Any:
    """Return the settings and the fingerprints of a record."""
    if "scans" in known:
        return [known["settings"], [each["name"] for each in known["scans"]]]
    if "jobs" in known:
        return [known["fingerprints"], known["files"], [job["settings"] for job in known["jobs"]]]
    return [known.get("fingerprints"), known.get("settings")] if "job" in known else known


def names(place: Path) -> set[str]:
    """Return all that lies below a folder."""
    return {str(each.relative_to(place)) for each in place.rglob("*")}


def require(holds: bool, what: str) -> None:
    """Raise RuntimeError where something else went wrong."""
    if not holds:
        raise RuntimeError(f"Without any fault this failed: {what}")


def forked(work: Callable[[], Any], seconds: float = 120, output: Path | None = None) -> int:
    """Run a function in a fork; returns its exit status, below zero the signal that ended it.

    `work`: what it returns is the status (None: 0). `seconds`: after which it is killed: -9.
    `output`: of both streams; nowhere if None.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if not process:
        _be_child(work, output)
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.002)


def _be_child(work: Callable[[], Any], output: Path | None) -> None:
    status = 70
    try:
        place = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(place, 1)
        os.dup2(place, 2)
        status = int(work() or 0)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def before_changes(folder: Path, act: Callable[[int], None]) -> None:
    """Have a function called before each change below a folder, with its number from 1 on.

    For the rest of the process: files opened to be written, renamed or removed, folders made or
    removed.
    """
    inside, count, busy = os.path.realpath(folder), 0, False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count, busy
        if busy or not (event in _CHANGES or (event == "open" and _writes(args))):
            return
        busy = True
        try:
            path = os.fspath(args[0])
            path = os.fsdecode(path) if isinstance(path, bytes) else path
            if os.path.join(os.getcwd(), path).startswith(inside):
                count += 1
                act(count)
        except TypeError:
            pass  # a number of a file that is open
        finally:
            busy = False

    sys.addaudithook(hook)


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool((flags or 0) & _WRITING)


def kill_before(folder: Path, number: int, later: float) -> None:
    """Have this process killed before its n-th change below a folder, or some seconds later."""

    def act(count: int) -> None:
        if count != number:
            return
        if later:
            threading.Timer(later, os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    before_changes(folder, act)
