"""Damaged files of every kind: an image or a clear error, at once, and in little memory.

HUSHPORE_MUTATIONS sets how many of each kind are tried: 300 by default, 10000 for a long search.
"""

import contextlib
import os
import random
import re
import time
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
LONGEST = 5.0  # seconds
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


@pytest.fixture
def dicom(tmp_path, ramp):
    series = write_series(Volume(ramp, spacing=(3, 1, 1), unit="mm"), tmp_path / "s", seed=1)
    folder = Path(DATA_ROOT) / "test_files"
    files = [next(iter(series.iterdir())), *(folder / f"{name}.dcm" for name in OF_PYDICOM)]
    return [path.read_bytes() for path in files if path.is_file()]


@pytest.fixture
def tiff(tmp_path, rng):
    pytest.importorskip("imagecodecs")
    values = rng.integers(0, 4000, (5, 40, 48), dtype=np.uint16)
    kinds = {
        "plain": {}, "imagej": {"imagej": True}, "ome": {"ome": True}, "big": {"bigtiff": True},
        "zlib": {"compression": "zlib", "predictor": True}, "lzw": {"compression": "lzw"},
        "tiles": {"tile": (16, 16)}, "jpeg 2000": {"compression": "jpeg2000"},
        "other": {"byteorder": ">"}, "zstd": {"compression": "zstd"},
    }  # fmt: skip
    for name, options in kinds.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", values, photometric="minisblack", **options)
    return [(tmp_path / f"{name}.tif").read_bytes() for name in kinds]


def peak():
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0.0
    return 1024.0 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])


@pytest.mark.parametrize("kind", ["dicom", "tiff"])
def test_a_damaged_file_gives_an_image_or_a_clear_error_at_once(request, tmp_path, kind):
    originals = request.getfixturevalue(kind)
    path = tmp_path / "damaged" / "scan"
    path.parent.mkdir()
    for content in originals:
        path.write_bytes(content)
        read_all(path)
    before, rng = peak(), random.Random(0)
    for number in range(COUNT):
        path.write_bytes(mutated(rng.choice(originals), rng))
        start = time.perf_counter()
        with contextlib.suppress(HushporeError):
            read_all(path)
        assert time.perf_counter() - start < LONGEST, number
    assert peak() - before < MOST_MEMORY
