"""Reading damaged files of every kind that is read: what comes of each.

What is done to them says `_mutations`; HUSHPORE_MUTATIONS sets how many of each kind are tried.
Each is read in a forked process that may take `MOST_SECONDS` and `MOST_MEMORY`, some after one
another in the same: a signal, a process that hangs or takes more, and any error but one of
hushpore's, is a fault; so it is counted where the pixels were whole and others were read without a
note. Linux only.

Some kinds alone, beside what the same commit has already of the others::

    python -m benchmarks damaged --only TIFF
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._forked import alone
from benchmarks._mutations import KINDS, Mutants

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = int(os.environ.get("HUSHPORE_MUTATIONS", "3000"))
MOST_SECONDS = 10.0
MOST_MEMORY = 300e6  # bytes beyond what reading undamaged files took
_AT_ONCE = 250  # mutants that one process reads
_MACHINE = 8 << 30  # bytes of address space that a process may have at all


def measure(only: str = "", kept: dict[str, Any] | None = None) -> dict[str, Any]:
    """Count what came of the mutants of each kind.

    `only`: part of the names of the kinds that are read. `kept`: figures that there are already.
    """
    return alone(partial(_measure, only, kept or {}))


def _measure(only: str, kept: dict[str, Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {kind: kept[kind] for kind in KINDS if kind in kept}
    warnings.simplefilter("ignore")
    for kind in KINDS:
        if only not in kind:
            continue
        with tempfile.TemporaryDirectory() as name:
            mutants = Mutants(kind, Path(name))
            figures[kind] = count(mutants, COUNT)
        print(f"{kind:25s} {figures[kind]}", flush=True)
    rows = list(figures.values())
    figures["other pixels without a note"] = sum(
        row.get("other pixels without a note", 0) for row in rows
    )
    figures["mutants"] = sum(row["mutants"] for row in rows)
    figures["faults"] = sum(len(row["faults"]) for row in rows)
    return figures


def count(mutants: Mutants, number: int) -> dict[str, Any]:
    """Read so many mutants of a kind; returns what came of them, and what was a fault."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    longest, largest = 0.0, 0
    for seed, outcome, seconds, memory in _read(mutants, number):
        longest, largest = max(longest, seconds), max(largest, memory)
        if outcome.startswith("fault"):
            faults.append(f"{outcome}, number {seed}")
        elif memory > MOST_MEMORY:
            faults.append(f"fault: took {memory / 1e6:.0f} MB, number {seed}")
        outcomes[outcome.partition(":")[0]] += 1
    return {
        "mutants": number,
        **dict(sorted(outcomes.items())),
        "longest, s": round(longest, 3),
        "largest, MB": round(largest / 1e6, 1),
        "faults": faults,
    }


def _read(mutants: Mutants, number: int) -> Iterator[tuple[int, str, float, int]]:
    """Yield of each mutant its number, what came of it, seconds, and bytes of memory."""
    begin = 0
    while begin < number:
        end = min(begin + _AT_ONCE, number)
        ours, theirs = os.pipe()
        process = os.fork()
        if not process:
            os.close(ours)
            _be_reader(mutants, range(begin, end), theirs)
        os.close(theirs)
        with open(ours, "rb", buffering=0) as pipe:
            while begin < end:
                ready, _, _ = select.select([pipe], [], [], MOST_SECONDS)
                head = pipe.read(4) if ready else b""
                if not head:
                    break
                yield begin, *pickle.loads(pipe.read(int.from_bytes(head, "little")))
                begin += 1
        if begin < end:
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if begin < end:
            code = os.waitstatus_to_exitcode(status)
            how = "hung" if not ready else f"ended the process ({code})"
            yield begin, f"fault: {how}", MOST_SECONDS if not ready else 0.0, 0
            begin += 1


def _be_reader(mutants: Mutants, seeds: range, pipe: int) -> None:
    """Read mutants in this process, which ends then."""
    resource.setrlimit(resource.RLIMIT_AS, (_MACHINE, _MACHINE))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for seed in seeds:
        mutant = mutants.make(seed)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before, start = _peak(), time.perf_counter()
        try:
            outcome = mutants.outcome(mutant)
        except BaseException as error:
            outcome = f"fault: {type(error).__name__}: {str(error)[:80]}; {mutant.what}"
        told = pickle.dumps((outcome, time.perf_counter() - start, _peak() - before))
        os.write(pipe, len(told).to_bytes(4, "little") + told)
    os._exit(0)


def _peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
