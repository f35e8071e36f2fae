"""Reading from the disk itself: a DICOM folder, TIFF and OME-Zarr against the disk's own rate.

Before each reading the pages of its files are dropped from the cache of the operating system
(``posix_fadvise``; a virtual machine's host may still hold them, as it does for both sides). The
disk's rate is that of reading the same files into memory of its own, in calls of 256 KiB, with as
many threads as our reader has, and nothing done with them. Ours is opened, which reads the headers,
and then read slab by slab, as a job does with what is larger than memory; or opened and read whole.
Rates are of stored bytes, OME-Zarr's compressed, beside what its codec alone makes of chunks in
memory on all cores; those where the system holds all of the files tell what is not the disk's. All
in turn; the median of the rounds counts. Two scans of the same size: many small slices, as of a
medical scanner, of which the headers take time, and few large ones, as of a laboratory's.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

import hushpore
from benchmarks._missing import MissingError
from hushpore.base.volume import Volume
from hushpore.io import describe
from hushpore.io.dicom import write_series
from hushpore.io.planes import slabs
from hushpore.io.results import write_image
from hushpore.io.zarr.reader import ZarrStack

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROUNDS = 7
SHAPES = {"500 slices of 512 x 512": (500, 512, 512), "32 slices of 2048 x 2048": (32, 2048, 2048)}
# bytes that a thread takes of a file, and for which it asks at once: with more the disk rests while
# they are copied
_PIECE, _CALL = 4 << 20, 1 << 18
_THREADS = min(8, 2 * (os.cpu_count() or 1))


def measure() -> dict[str, object]:
    """Rates of each form, and ours as a share of the disk's."""
    if not hasattr(os, "posix_fadvise"):
        raise MissingError("an operating system whose cache can be dropped (posix_fadvise)")
    figures: dict[str, object] = {}
    for what, shape in SHAPES.items():
        # not in /tmp, which may be memory
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            forms = _written(Path(folder), shape)
            figures[what] = {name: _rates(path) for name, path in forms.items()}
    return figures


def _written(folder: Path, shape: tuple[int, int, int]) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 60, shape).astype(np.int16)
    noise += (np.sin(np.arange(shape[-1]) / 20) * 500).astype(np.int16)
    volume = Volume(noise, spacing=(0.5, 0.25, 0.25), unit="mm")
    forms = {
        "DICOM folder": write_series(volume, folder / "dicom", seed=0),
        "TIFF": write_image(folder / "scan.tif", volume),
        "OME-Zarr": write_image(folder / "scan.ome.zarr", volume),
    }
    for file in _files(folder):
        with file.open("rb") as opened:
            os.fsync(opened)  # what is not on disk yet cannot be dropped
    return forms


def _rates(path: Path) -> dict[str, float]:
    files = _files(path)
    data = describe(path)[0].data
    readings: dict[str, Callable[[], object]] = {
        "disk": lambda: _read_bytes(files),
        "slab by slab": lambda: deque(slabs(data), maxlen=0),
        "whole": lambda: hushpore.read(path),
        "opening": lambda: describe(path),
    }
    cold: dict[str, list[float]] = {name: [] for name in readings}
    held: dict[str, list[float]] = {name: [] for name in readings}
    for _ in range(ROUNDS):
        for name, read in readings.items():
            _drop(files)
            cold[name].append(_seconds(read))
            _read_bytes(files)
            held[name].append(_seconds(read))
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    floor = cold["disk"]
    return {
        "MB": round(megabytes),
        "opening, s": round(median(cold["opening"]), 3),
        "opening, s, files held": round(median(held["opening"]), 3),
        "disk, MB/s": round(megabytes / median(floor)),
        **_decoding(data, megabytes),
        **{
            figure: value
            for name in ("slab by slab", "whole")
            for figure, value in (
                (f"{name}, MB/s", round(megabytes / median(cold[name]))),
                (f"{name}, MB/s, files held", round(megabytes / median(held[name]))),
                (f"{name}, share of the disk's", round(_share(floor, cold[name]), 2)),
            )
        },
    }


def _decoding(data: Any, megabytes: float) -> dict[str, float]:
    """Return the rate of a codec by itself, of what is compressed."""
    if not isinstance(data, ZarrStack) or data.files is None:
        return {}
    files = data.files
    parts = files.parts([slice(0, length) for length in data.shape])
    stored = [files.stored(path, place) for path, place, *_ in parts if path is not None]

    def decode() -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            deque(pool.map(files.decode, stored), maxlen=0)

    seconds = median(_seconds(decode) for _ in range(ROUNDS))
    return {"codec alone, MB/s": round(megabytes / seconds)}


def _seconds(read: Callable[[], object]) -> float:
    start = time.perf_counter()
    read()
    return time.perf_counter() - start


def _share(floor: list[float], own: list[float]) -> float:
    return median(least / seconds for least, seconds in zip(floor, own, strict=True))


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def _drop(files: list[Path]) -> None:
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_bytes(files: list[Path]) -> None:
    """Read files and keep nothing; a large one is shared by the threads."""
    pieces = [(file, start) for file in files for start in range(0, file.stat().st_size, _PIECE)]

    def read(piece: tuple[Path, int]) -> None:
        file, start = piece
        with file.open("rb", buffering=0) as opened:
            opened.seek(start)
            left = min(_PIECE, file.stat().st_size - start)
            room = memoryview(bytearray(left))
            while left:
                left -= opened.readinto(room[-left:][:_CALL]) or 0

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(read, pieces))
