"""Settings, presets, preferences and checkpoints made to do harm.

Entered into the list of `_attack_uses`.
"""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._attack_uses import LEARN, USES, HarmError, put, scan, typed, use
from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks._attack_uses import Use

# ---- settings, presets, preferences


def _settings(name: str, text: bytes | None) -> None:
    def make(folder: Path) -> Use:
        scan(folder / "n.tif")
        put(folder / "s.toml", text)
        return lambda: typed(
            ["pores", f"{folder}/n.tif", "-o", f"{folder}/p", "--threshold", "70", "--device",
             "cpu", "--settings", f"{folder}/s.toml"]
        )  # fmt: skip

    USES[f"settings: {name}"] = make


_DEEP = b"a = " + b"[" * 100_000
_settings("100 MB", b"# " + bytes(10**8).replace(b"\0", b"x"))
_settings("nested 100,000 deep", _DEEP)
_settings("a pipe", None)
_settings("no UTF-8", b"[pores]\nthreshold = '\xff\xfe'\n")
_settings("a job that there is not", b"[os]\nsystem = 'touch RAN'\n")
_settings("a setting that there is not", b"[pores]\n__class__ = 'x'\n")
_settings("numbers of 5,000 digits", b"[pores]\nminimum_voxels = " + b"9" * 5000 + b"\n")
_settings("numbers that are none", b"[pores]\nh = nan\nminimum_voxels = inf\n")
_settings("10^18 voxels at least", b"[pores]\nminimum_voxels = 1000000000000000000\n")
_settings("a table for each setting", b"[pores.threshold]\nx = 1\n[pores.h]\ny = 2\n")
_settings("20,000 tables within one another", b"[" + b".".join([b"a"] * 20_000) + b"]\n")


def _preferences(name: str, text: bytes | None, files: tuple[str, ...] = ()) -> None:
    names = files or ("preferences.toml", "last.toml", "presets/mine.toml")

    def make(folder: Path) -> Use:
        (folder / "presets").mkdir()
        for each in names:
            put(folder / each, text)
        return partial(_prefer, folder)

    USES[f"preferences: {name}"] = make


def _prefer(folder: Path) -> None:
    """Read all that is kept for the user, and keep something else; none of it may be refused."""
    from hushpore.base.config import FOLDER
    from hushpore.base.preferences import Preferences, load_preferences
    from hushpore.jobs import JOBS
    from hushpore.runs.presets import (
        list_presets,
        names_to_choose,
        read_preset,
        remember,
        remembered,
    )

    os.environ[FOLDER] = str(folder)
    preferences = load_preferences()
    for job, kind in JOBS.items():
        remembered(job, kind.settings)
        names_to_choose(job)
        remember(job, kind.settings())
    for name in list_presets():
        with contextlib.suppress(InputError):
            read_preset(name)
    if preferences != Preferences() and not isinstance(preferences.memory, float | None):
        raise HarmError("a preference of another type")


_preferences("100 MB", b"# " + bytes(10**8).replace(b"\0", b"x"))
_preferences("nested 100,000 deep", _DEEP)
_preferences("of other types", b'device = [1]\nmemory = "much"\nswitches = {a = 1}\npores = 5\n')
_preferences("no UTF-8", b"\xff\xfe" * 99)
_preferences("pipes", None)
_preferences("as many as 1,000 presets", b"[pores]\nminimum_voxels = 8\n",
             tuple(f"presets/p{n}.toml" for n in range(1000)))  # fmt: skip
_preferences("presets whose names are lines", b"[pores]\n",
             ("presets/a\nb.toml", "presets/\u202egnp.toml", "presets/con.toml"))  # fmt: skip


@use("preferences: the zeros of the system")
def _endless(folder: Path) -> Use:
    for name in ("preferences.toml", "last.toml"):
        (folder / name).symlink_to("/dev/zero")
    return partial(_prefer, folder)


@use("preferences: folders in the place of files")
def _folders(folder: Path) -> Use:
    for name in ("preferences.toml", "last.toml", "presets/mine.toml"):
        (folder / name).mkdir(parents=True)
    return partial(_prefer, folder)


# ---- checkpoints


def _checkpoint(name: str, change: Callable[[Path], object], of: str = "n") -> None:
    def make(folder: Path) -> Use:
        scan(folder / "n.tif")
        other = np.random.default_rng(1).normal(100, 8, (6, 32, 32)).astype(np.float32)
        np.save(folder / "m.npy", other)
        source = folder / ("n.tif" if of == "n" else "m.npy")
        words = f"--steps 2 {LEARN} --overwrite --checkpoint {folder}/c.safetensors".split()
        typed(["denoise", str(source), "-o", f"{folder}/d.tif", *words])
        change(folder / "c.safetensors")
        return partial(_go_on, folder, words)

    USES[f"checkpoint: {name}"] = make


def _go_on(folder: Path, words: list[str]) -> None:
    from hushpore.io import read

    typed(["denoise", f"{folder}/n.tif", "-o", f"{folder}/d.tif", *words])
    if not np.isfinite(np.asarray(read(folder / "d.tif").data)).all():
        raise HarmError("no finite numbers came of it")


def _facts(change: Callable[[dict[str, Any]], object], *, keeps_sum: bool = False) -> Any:
    """Change what a checkpoint says of its training, as somebody who means it would."""

    def act(path: Path) -> None:
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        facts = json.loads(header["__metadata__"]["training"])
        change(facts)
        header["__metadata__"]["training"] = json.dumps(facts)
        if not keeps_sum:
            header["__metadata__"].pop("blake2b")
        told = json.dumps(header).encode()
        path.write_bytes(len(told).to_bytes(8, "little") + told + content[8 + size :])

    return act


def _weights(value: bytes, *, keeps_sum: bool) -> Callable[[Path], object]:
    def act(path: Path) -> None:
        if not keeps_sum:
            _facts(lambda facts: None)(path)
        content = bytearray(path.read_bytes())
        begin = 8 + int.from_bytes(content[:8], "little")
        middle = begin + (len(content) - begin) // 2 // 4 * 4
        content[middle : middle + len(value)] = value
        path.write_bytes(content)

    return act


_checkpoint("of another scan", lambda path: None, of="m")
_checkpoint("cut off", lambda path: os.truncate(path, path.stat().st_size // 2))
_checkpoint("nothing", lambda path: os.truncate(path, 0))
_checkpoint("a bit of its weights is another", _weights(b"\x40", keeps_sum=True))
_checkpoint("weights that are no numbers", _weights(b"\xff\xff\xff\x7f" * 99, keeps_sum=False))
_checkpoint("10^18 steps", _facts(lambda facts: facts.update(step=10**18)))
_checkpoint("steps below zero", _facts(lambda facts: facts.update(step=-5)))
_checkpoint("seconds that are none", _facts(lambda facts: facts.update(spent=float("nan"))))
_checkpoint("curves that are none", _facts(lambda facts: facts.update(curves={"loss": [[1]]})))
_checkpoint("a header that was changed", _facts(lambda facts: facts.update(step=1), keeps_sum=True))


@use("checkpoint: a pipe")
def _pipe_checkpoint(folder: Path) -> Use:
    scan(folder / "n.tif")
    os.mkfifo(folder / "c.safetensors")
    words = f"--steps 2 {LEARN} --checkpoint {folder}/c.safetensors".split()
    return lambda: typed(["denoise", f"{folder}/n.tif", "-o", f"{folder}/d.tif", *words])


@use("checkpoint: 1 GB of steps in a text of a MB")
def _steps_bomb(folder: Path) -> Use:
    import base64
    import zlib

    from hushpore.n2v2.training.schedule import unpack

    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(1 << 10)]
    text = base64.b64encode(b"".join([*parts, packer.flush()])).decode()

    def use() -> None:
        try:
            unpack(text)
        except ValueError as error:
            raise InputError(str(error)) from error

    return use
