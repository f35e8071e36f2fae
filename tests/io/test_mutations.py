"""Damaged files of every kind: an image or a clear error, in few steps, and in little memory.

HUSHPORE_MUTATIONS sets how many of each kind are tried, 300 by default; the benchmark ``damaged``
tries 10,000 and keeps the figures.
"""

import contextlib
import os
import random
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tifffile
from pydicom.data.data_manager import DATA_ROOT

from hushpore.base.errors import HushporeError
from hushpore.base.volume import Volume
from hushpore.io import read_all
from hushpore.io.dicom import write_series

COUNT = int(os.environ.get("HUSHPORE_MUTATIONS", "300"))
MOST_STEPS = 10  # times the calls of functions that an undamaged file takes
MOST_MEMORY = 150e6  # bytes beyond what reading an undamaged file took
HEADER = 4096  # where most of what can be broken stands

NUMBERS = [b"\xff" * 2, b"\xff" * 4, bytes(4), b"\0\x80", b"\xff\xff\xff\x7f", b"\1\0\0\0"]
REPRESENTATIONS = [b"SQ", b"UN", b"US", b"OB", b"DS", b"UL", b"AT", b"PN", b"XX", b"OW", b"IS"]
OF_PYDICOM = [
    "CT_small", "MR_small", "MR_small_RLE", "MR_small_jp2klossless", "MR_small_bigendian",
    "MR_small_implicit", "MR_small_jpeg_ls_lossless", "JPGExtended", "rtdose", "rtdose_rle",
    "image_dfl", "liver_1frame",
]  # fmt: skip


def mutated(content, rng):
    """Return a file with one kind of damage: bits, a cut, numbers, types, bytes lost or moved."""
    data = bytearray(content)
    end = min(len(data), HEADER) if rng.random() < 0.8 else len(data)
    kind = rng.randrange(7)
    at = rng.randrange(end)
    if kind == 0:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(end)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(len(data)) :]
    elif kind == 2:
        for _ in range(rng.randint(1, 4)):
            number = rng.choice(NUMBERS)
            at = rng.randrange(end)
            data[at : at + len(number)] = number
    elif kind == 3:
        for _ in range(3):
            at = rng.randrange(end)
            data[at : at + 2] = rng.choice(REPRESENTATIONS)
    elif kind == 4:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 5:
        data[at:at] = rng.randbytes(rng.randrange(1, 64))
    else:
        other, length = rng.randrange(end), rng.randrange(1, 200)
        data[at : at + length] = data[other : other + length]
    return bytes(data)


def dicom_files(folder):
    """Contents of a slice written here, and of small files of pydicom in many encodings."""
    values = np.arange(-100, 110).reshape(5, 6, 7).astype(np.int16)
    series = write_series(Volume(values, spacing=(3, 1, 1), unit="mm"), folder / "s", seed=1)
    test_files = Path(DATA_ROOT) / "test_files"
    files = [next(iter(series.iterdir())), *(test_files / f"{name}.dcm" for name in OF_PYDICOM)]
    return [path.read_bytes() for path in files if path.is_file()]


def tiff_files(folder):
    """Contents of TIFF files of every kind and compression."""
    values = np.random.default_rng(0).integers(0, 4000, (5, 40, 48), dtype=np.uint16)
    kinds = {
        "plain": {}, "imagej": {"imagej": True}, "ome": {"ome": True}, "big": {"bigtiff": True},
        "zlib": {"compression": "zlib", "predictor": True}, "lzw": {"compression": "lzw"},
        "tiles": {"tile": (16, 16)}, "jpeg 2000": {"compression": "jpeg2000"},
        "other": {"byteorder": ">"}, "zstd": {"compression": "zstd"},
    }  # fmt: skip
    for name, options in kinds.items():
        tifffile.imwrite(folder / f"{name}.tif", values, photometric="minisblack", **options)
    return [(folder / f"{name}.tif").read_bytes() for name in kinds]


KINDS = {"dicom": dicom_files, "tiff": tiff_files}


def peak():
    """The most memory that this process ever had, as far as the system says so."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])


def originals(kind, folder):
    """Yield a path that holds one undamaged file after the other."""
    path = folder / "whole" / "scan"
    path.parent.mkdir()
    for content in KINDS[kind](folder):
        path.write_bytes(content)
        yield path


def damaged(kind, folder, count):
    """Yield a path that holds one damaged file after the other."""
    contents = [path.read_bytes() for path in originals(kind, folder)]
    path, rng = folder / "damaged" / "scan", random.Random(0)
    path.parent.mkdir()
    for _ in range(count):
        path.write_bytes(mutated(rng.choice(contents), rng))
        yield path


def is_read(path):
    """Whether there is an image in a file; anything but an error of ours is raised."""
    with contextlib.suppress(HushporeError):
        read_all(path)
        return True
    return False


@pytest.fixture
def counted():
    """Read a file; return how many calls of functions and returns from them it took."""

    def read(path):
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += 1

        threading.setprofile(count)
        sys.setprofile(count)
        try:
            is_read(path)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return calls

    return read


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_gives_an_image_or_a_clear_error_at_once(tmp_path, counted, kind):
    (tmp_path / "a").mkdir()
    # twice: what is imported for the first is no step of the second
    whole = [counted(path) for path in originals(kind, tmp_path / "a") for _ in range(2)][1::2]
    before = peak()
    found = [counted(path) for path in damaged(kind, tmp_path, COUNT)]
    assert len(found) == COUNT
    assert max(found) < MOST_STEPS * max(whole)
    assert peak() - before < MOST_MEMORY
