"""Records, names and places made to do harm, and two commands at once.

Entered into the list of `_attack_uses`.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from benchmarks._attack_uses import USES, HarmError, scan, typed, use
from hushpore.base.errors import InputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks._attack_uses import Use

# ---- records


def _record(name: str, change: Callable[[dict[str, Any], Path], object]) -> None:
    def make(folder: Path) -> Use:
        scan(folder / "n.tif")
        words = ["pores", f"{folder}/n.tif", "-o", f"{folder}/r", "--threshold", "70"]
        typed([*words, "--device", "cpu"])
        record = folder / "r" / "result.json"
        known = json.loads(record.read_text())
        change(known, folder)
        record.write_text(json.dumps(known))
        victim = folder / "thesis.txt"
        victim.write_text("years of work")

        def use() -> None:
            refused = False
            for more in (["rerun", f"{folder}/r", "-o", f"{folder}/again"],
                         [*words, "--overwrite", "--device", "cpu"]):  # fmt: skip
                try:
                    typed(more)
                except InputError:
                    refused = True
            if not victim.is_file() or victim.read_text() != "years of work":
                raise HarmError("thesis.txt is lost")
            if refused:
                raise InputError("refused")

        return use

    USES[f"result.json: {name}"] = make


def _pipe_as_scan(known: dict[str, Any], folder: Path) -> None:
    os.mkfifo(folder / "pipe.tif")
    known["source"]["path"] = str(folder / "pipe.tif")


def _checkpoint_outside(known: dict[str, Any], folder: Path) -> None:
    known["jobs"][0] |= {"job": "denoise", "settings": {"checkpoint": str(folder / "thesis.txt")}}


_record("its scan is a pipe", _pipe_as_scan)
_record("its scan are the zeros of the system", lambda known, _: known["source"].update(
    path="/dev/zero"))  # fmt: skip
_record("its scan is a file of the system", lambda known, _: known["source"].update(
    path="/etc/passwd"))  # fmt: skip
_record("it lists files outside", lambda known, _: known.update(
    files=["../thesis.txt", "/etc/passwd", "labels.tif"]))  # fmt: skip
_record("it lists everything", lambda known, _: known.update(files=["*", ".", "..", "~"]))
_record("a checkpoint in the place of another file", _checkpoint_outside)
_record("markers of another user", lambda known, _: known["jobs"][0]["settings"].update(
    markers="/etc/passwd"))  # fmt: skip
_record("5,000 jobs", lambda known, _: known.update(jobs=known["jobs"] * 5000))
_record("a name that commands a terminal", lambda known, _: known["jobs"][0].update(
    job="\x1b]0;x\x07\u202e"))  # fmt: skip


@use("result.json: a pipe")
def _pipe_record(folder: Path) -> Use:
    (folder / "r").mkdir()
    os.mkfifo(folder / "r" / "result.json")
    return lambda: typed(["rerun", f"{folder}/r", "-o", f"{folder}/again"])


# ---- names, places, two at once

#: Names of scans.
NAMES = {
    "a line break": "a\nb.tif",
    "turned round": "a\u202efit.tif",
    "255 bytes": "n" * 251 + ".tif",
    "a dash at its beginning": "--overwrite.tif",
    "a space at its end": "n.tif ",
    "a dot at its end": "n..tif",
    "a device of Windows": "CON.tif",
    "a formula": "=cmd|' C calc'!A0.tif",
    "a command": "$(touch RAN);`touch RAN`.tif",
    "what commands a terminal": "\x1b]0;x\x07n.tif",
    "braces and signs": "{name}%s%n{0}.tif",
    "no UTF-8": os.fsdecode(b"\xff\xfen.tif"),
    "dots alone": "....tif",
    "a name of ours": ".n.part.tif",
}


def _named(what: str, name: str) -> None:
    def make(folder: Path) -> Use:
        (folder / "in").mkdir()
        path = os.fsencode(folder / "in" / name)
        os.rename(scan(folder / "n.tif"), path)
        before = set(os.listdir(os.fsencode(folder / "in")))

        def use() -> None:
            words = ["--threshold", "70", "--device", "cpu"]
            refused = False
            os.chdir(folder / "in")
            for more in (["pores", name, "-o", f"{folder}/p", *words],
                         ["batch", name, "-o", f"{folder}/b", "--no-denoise", *words],
                         ["convert", name, f"{folder}/c.ome.zarr"]):  # fmt: skip
                try:
                    typed(more)
                except InputError:
                    refused = True
            if set(os.listdir(os.fsencode(folder / "in"))) != before:
                raise HarmError("something else lies beside the scan")
            if set(os.listdir(folder)) - {"in", "p", "b", "c.ome.zarr"}:
                raise HarmError("something lies elsewhere")
            for table in folder.rglob("*.csv"):
                text = table.read_text(encoding="utf-8")
                if "\x1b" in text or "\u202e" in text or "\n=cmd" in text or ",=cmd" in text:
                    raise HarmError(f"{table.name} commands something")
            if refused:
                raise InputError("refused")

        return use

    USES[f"a scan's name: {what}"] = make


for _what, _name in NAMES.items():
    _named(_what, _name)


@use("two runs at once into one result")
def _two(folder: Path) -> Use:
    scan(folder / "n.tif")

    def use() -> None:
        from benchmarks._forked import command

        own = []
        for threshold in (60, 70):
            process = os.fork()
            if not process:
                words = f"pores n.tif -o r --threshold {threshold} --device cpu --overwrite"
                try:
                    command(words, folder)()
                finally:
                    os._exit(0)
            own.append(process)
        for process in own:
            os.waitpid(process, 0)
        known = json.loads((folder / "r" / "result.json").read_text())
        if sorted(known["files"]) != sorted(os.listdir(folder / "r")):
            raise HarmError("the result is not whole")
        if set(os.listdir(folder)) != {"n.tif", "r"}:
            raise HarmError(f"left over: {sorted(os.listdir(folder))}")

    return use


@use("two batches at once into one folder")
def _two_batches(folder: Path) -> Use:
    scan(folder / "n.tif")

    def use() -> None:
        words = ["batch", f"{folder}/n.tif", "-o", f"{folder}/b", "--no-denoise", "--threshold",
                 "70", "--device", "cpu"]  # fmt: skip
        (folder / "b").mkdir()
        # the first is at work still
        import psutil

        theirs = psutil.Process(os.getppid())
        lock = {"process": theirs.pid, "started": theirs.create_time()}
        (folder / "b" / ".batch.lock").write_text(json.dumps(lock))
        typed(words)
        raise HarmError("both are at work")

    return use


@use("a batch: its lock is a pipe")
def _lock_pipe(folder: Path) -> Use:
    scan(folder / "n.tif")
    (folder / "b").mkdir()
    os.mkfifo(folder / "b" / ".batch.lock")
    return lambda: typed(
        ["batch", f"{folder}/n.tif", "-o", f"{folder}/b", "--no-denoise", "--threshold", "70",
         "--device", "cpu"]
    )  # fmt: skip


def _place(name: str, target: str) -> None:
    def make(folder: Path) -> Use:
        scan(folder / "n.tif")

        def use() -> None:
            words = ["--threshold", "70", "--device", "cpu", "--overwrite"]
            typed(["pores", f"{folder}/n.tif", "-o", target.format(folder=folder), *words])
            raise HarmError("written where nothing can be")

        return use

    USES[f"output: {name}"] = make


_place("the full disk of the system", "/dev/full")
_place("a folder that takes no files", "/proc/hushpore")
_place("a folder in which nothing may be written", "/sys/hushpore")
_place("the folder of all", "/")
_place("the zeros of the system", "/dev/zero")
_place("a name of 300 bytes", "{folder}/" + "r" * 300)
_place("below a file", "{folder}/n.tif/r")


@use("output: a disk of 200 kB")
def _small_disk(folder: Path) -> Use:
    import resource

    scan(folder / "n.tif")

    def use() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            typed(["pores", f"{folder}/n.tif", "-o", f"{folder}/r", "--threshold", "70",
                   "--device", "cpu"])  # fmt: skip
        except InputError as error:
            if os.listdir(folder) != ["n.tif"]:
                raise HarmError("something is left over") from error
            raise OutputError(str(error)) from error

    return use
