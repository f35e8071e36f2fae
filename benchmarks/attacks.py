"""Files and folders that were made to do harm: what becomes of each, and at what cost.

The files are made anew (`_attack_files`), each is opened in a process of its own with limits of
time and memory: refused with a clear error, read and unharmed, or harmed by it (a raw error, a
crash, a process that hangs, more than `MOST_SECONDS` or `MOST_MEMORY`, code of the file that ran).
Seconds are of the processor, on all its cores: those of a clock tell of what else a computer does.
Folders are attacked through links, names that can be guessed, and records that list what is not
ours; what lay there must be there afterwards. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._attack_oddities import FILES
from benchmarks._attack_uses import USES, HarmError
from benchmarks._forked import alone
from hushpore.base.errors import HushporeError, OutputError
from hushpore.io import describe, read

if TYPE_CHECKING:
    from collections.abc import Callable

# which enter what they make
for _part in ("results", "settings", "places"):
    import_module(f"benchmarks._attack_{_part}")

#: Beyond these a file does harm: for saying what is in it, for reading it, and for commands on it.
MOST_SECONDS = {"info": 1.0, "read": 10.0, "use": 20.0}
MOST_MEMORY = {"info": 300e6, "read": 1e9, "use": 1e9}
_MACHINE = 8 << 30  # bytes that a process may have at all
_HANGS = 120.0  # seconds of the clock


def measure() -> dict[str, Any]:
    """How each ended, seconds of the processor, and memory beyond that of the program (MB)."""
    return alone(_measure)


def _measure() -> dict[str, Any]:
    for library in ("pydicom", "tifffile", "zarr"):
        # each file has a process of its own: what the program takes to start is not of the file
        import_module(library)
    files = {}
    for name, make in FILES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "in"
            folder.mkdir()
            path = make(folder)
            row: dict[str, Any] = {"kB": round(_size(path) / 1e3, 1)}
            for mode, work in (("info", describe), ("read", _read)):
                row |= outcome(mode, partial(work, path))
            if (Path(scratch) / "RAN").exists():
                row["read"] = "harmed: its code ran"
            files[name] = row
            print(f"{name:58s} {row['info']:10s} {row['read']}", flush=True)
    folders = {name: _unharmed(attack) for name, attack in FOLDERS.items()}
    for name, came in folders.items():
        print(f"{name:58s} {came}", flush=True)
    uses = {}
    for name, attack in USES.items():
        uses[name] = _used(attack)
        print(f"{name:58s} {uses[name]['info']:10s} {uses[name]['use']}", flush=True)
    outcomes = [row[mode] for row in files.values() for mode in ("info", "read")]
    outcomes += folders.values()
    outcomes += [row[mode] for row in uses.values() for mode in ("info", "use")]
    return {
        "outcomes": {
            "refused": sum(each == "refused" for each in outcomes),
            "unharmed": sum(each == "unharmed" for each in outcomes),
            "harmed": sum(each.startswith("harmed") for each in outcomes),
        },
        "files": files,
        "uses": uses,
        "folders": {name: {"outcome": came} for name, came in folders.items()},
    }


def _used(make: Callable[[Path], Callable[[], None]]) -> dict[str, Any]:
    """Make what is used beside scans, look at its folder, and use it; as `_attack_uses` says."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "in"
        folder.mkdir()
        use = make(folder)
        row = {**outcome("info", partial(describe, folder)), **outcome("use", use)}
        if any("RAN" in names for _, names, _ in os.walk(scratch)):
            row["use"] = "harmed: its code ran"
        return row


def _read(path: Path) -> None:
    np.asarray(read(path).data)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


# ---- files


def outcome(mode: str, work: Callable[[], object]) -> dict[str, Any]:
    """Do something in a process of its own, and say what came of it."""
    # of a server that has imported what is needed: neither counts for the file
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(work, theirs))
    process.start()
    theirs.close()
    told = None
    if mine.poll(_HANGS):
        with contextlib.suppress(EOFError):
            told = mine.recv()
    if told is None and process.is_alive():
        process.kill()
    process.join()
    if told is None:
        how = "hung" if process.exitcode == -9 else f"ended by signal {-(process.exitcode or 0)}"
        return {mode: f"harmed: {how}"}
    came, seconds, memory = told
    if came in ("refused", "unharmed"):
        if seconds > MOST_SECONDS[mode]:
            came = f"harmed: took {seconds:.0f} s"
        elif memory > MOST_MEMORY[mode]:
            came = f"harmed: took {memory / 1e6:.0f} MB"
    return {
        mode: came,
        f"{mode}, s": round(seconds, 2),
        f"{mode}, MB": round(memory / 1e6, 1),
    }


def _work(work: Callable[[], object], pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MACHINE, _MACHINE))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, start = _peak(), _worked()
    try:
        work()
        came = "unharmed"
    except HushporeError:
        came = "refused"
    except HarmError as error:
        came = f"harmed: {error}"
    except BaseException as error:
        came = f"harmed: {type(error).__name__}: {str(error)[:100]}"
    pipe.send((came, _worked() - start, _peak() - before))
    pipe.close()
    os._exit(0)


def _worked() -> float:
    """Return seconds of the processor that this process took, and those that it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


# ---- folders

FOLDERS: dict[str, Callable[[Path], None]] = {}


def _unharmed(attack: Callable[[Path], None]) -> str:
    """Run an attack beside somebody's work, and say whether that is still there."""
    with tempfile.TemporaryDirectory() as scratch:
        victim = Path(scratch) / "victim"
        (victim / "precious").mkdir(parents=True)
        for file in (victim / "thesis.txt", victim / "precious" / "data.csv"):
            file.write_text("years of work", encoding="utf-8")
        try:
            attack(victim)
            outcome = "unharmed"
        except OutputError:
            outcome = "refused"
        except Exception as error:
            outcome = f"harmed: {type(error).__name__}"
        for file in (victim / "thesis.txt", victim / "precious" / "data.csv"):
            if not file.is_file() or file.read_text(encoding="utf-8") != "years of work":
                outcome = f"harmed: {file.name} is lost"
        return outcome


def _on_folder(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def enter(attack: Callable[[Path], None]) -> Callable[[Path], None]:
        FOLDERS[name] = attack
        return attack

    return enter


@_on_folder("convert: its unfinished folder is a link to another")
def _unfinished_link(victim: Path) -> None:
    import hushpore
    from hushpore.base.partial import partial_path

    target = victim.parent / "scan.ome.zarr"
    partial_path(target, ".unfinished", owned=False).symlink_to(victim)
    hushpore.convert(hushpore.Volume(np.zeros((4, 64, 64), np.uint8)), target)


@_on_folder("convert: its unfinished folder is somebody else's work")
def _unfinished_work(victim: Path) -> None:
    import hushpore
    from hushpore.base.partial import partial_path

    target = victim.parent / "scan.ome.zarr"
    unfinished = victim.rename(partial_path(target, ".unfinished", owned=False))
    try:
        hushpore.convert(hushpore.Volume(np.zeros((4, 64, 64), np.uint8)), target)
    finally:
        if unfinished.is_dir():
            unfinished.rename(victim)


@_on_folder("model: the name of its part file is a link")
def _part_link(victim: Path) -> None:
    import torch

    from hushpore.n2v2.tensor_file import write_tensors

    (victim.parent / ".m.safetensors.part").symlink_to(victim / "thesis.txt")
    write_tensors(victim.parent / "m.safetensors", {"a": torch.ones(2)}, {"entry": {}})


def _overwrite(victim: Path, listed: Any) -> None:
    from hushpore.io.target import check_target

    (victim / "result.json").write_text(json.dumps({"files": listed}), encoding="utf-8")
    check_target(victim, overwrite=True)


for _name, _listed in {
    "overwrite: a record that lists a folder": ["precious", "thesis.txt", "result.json"],
    "overwrite: a record that lists a path": ["../victim/thesis.txt", "precious/data.csv"],
    "overwrite: a record whose list is a text": "thesis.txt precious",
    "overwrite: a record without a list": None,
}.items():
    FOLDERS[_name] = lambda victim, listed=_listed: _overwrite(victim, listed)


@_on_folder("output: the folder that the input lies in")
def _own_input(victim: Path) -> None:
    from hushpore.io.target import require_apart

    require_apart([victim], [victim / "precious" / "data.csv"])


@_on_folder("output: within the folder that is read")
def _inside_input(victim: Path) -> None:
    from hushpore.io.target import require_apart

    require_apart([victim / "precious" / "new"], [victim])


@_on_folder("output: the input by another name")
def _by_a_link(victim: Path) -> None:
    from hushpore.io.target import require_apart

    os.link(victim / "thesis.txt", victim / "other.txt")
    require_apart([victim / "other.txt"], [victim / "thesis.txt"])
