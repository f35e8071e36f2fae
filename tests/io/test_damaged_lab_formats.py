"""Damaged scans of lab formats: a sentence at once, and no slice lost without a note."""

from __future__ import annotations

import re
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hushpore.base.errors import HushporeError
from hushpore.base.rescaled import held
from hushpore.io import describe, read

sys.path.insert(0, str(Path(__file__).parent))
lab_formats = import_module("lab_formats")
FORMATS = lab_formats.FORMATS
VALUES = np.arange(np.prod(lab_formats.SHAPE), dtype=np.uint16).reshape(lab_formats.SHAPE)

#: Seconds that a refusal may take; it takes milliseconds.
LONGEST = 20


def written(folder, name, factor=1):
    """Write a scan, and return what is opened and the file of its voxels."""
    if name == "NRRD":
        pytest.importorskip("nrrd")
    if name == "Zeiss TXM":
        pytest.importorskip("olefile")
    kind = FORMATS[name]
    kind.write(folder, VALUES, factor)
    return folder / kind.opened, folder / kind.voxels


def sentence(path):
    """Return why a scan cannot be read, after checking that it is one sentence or two."""
    start = time.monotonic()
    with pytest.raises(HushporeError) as caught:
        read(path)
    with pytest.raises(HushporeError):
        _ = [volume.data[...] for volume in describe(path)]
    assert time.monotonic() - start < LONGEST
    said = str(caught.value)
    assert re.fullmatch(r"[^\n]{20,400}\.", said), said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_scan_has_its_values(tmp_path, name):
    path, _ = written(tmp_path, name)
    volume = read(path)
    np.testing.assert_array_equal(held(volume.data), VALUES)
    assert volume.unit in (("pixel",) if name == "HDF5" else ("um", "mm"))


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "SkyScan"])
def test_an_empty_file_is_refused(tmp_path, name):
    path, voxels = written(tmp_path, name)
    voxels.write_bytes(b"")
    said = sentence(path)
    assert voxels.name in said
    assert "0 bytes" in said or "has only 0" in said


@pytest.mark.parametrize("name", [name for name in FORMATS if not FORMATS[name].beside])
def test_junk_is_refused_or_skipped_by_name(tmp_path, rng, name):
    path, voxels = written(tmp_path, name)
    voxels.write_bytes(rng.bytes(voxels.stat().st_size))
    if name == "SkyScan":
        volume = read(path)
        assert f"1 slice skipped (empty or damaged): {voxels.name}." in volume.notes[0]
        np.testing.assert_array_equal(volume.data, VALUES[1:])
    else:
        assert voxels.name in sentence(path)


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].beside])
def test_a_header_of_junk_or_of_nothing_is_refused(tmp_path, rng, name):
    path, _ = written(tmp_path, name)
    size = path.stat().st_size
    for content in (b"", rng.bytes(size), path.read_bytes()[: size // 4]):
        path.write_bytes(content)
        assert path.name in sentence(path)


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("name", FORMATS)
def test_a_part_of_a_copy_is_refused(tmp_path, name, share):
    path, voxels = written(tmp_path, name)
    content = voxels.read_bytes()
    voxels.write_bytes(content[: int(share * len(content))])
    # of PyHST, half as many bytes are also the size of 16 bits, which the header does not rule out
    assert voxels.name in sentence(path)


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].beside])
def test_a_header_without_its_voxels_names_them(tmp_path, name):
    path, voxels = written(tmp_path, name)
    voxels.unlink()
    said = sentence(path)
    assert voxels.name in said
    assert "Copy both" in said


@pytest.mark.parametrize("name", FORMATS)
def test_sizes_that_the_file_does_not_have_are_refused(tmp_path, name):
    path, voxels = written(tmp_path, name, factor=10_000)
    assert voxels.name in sentence(path)


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("ending", ["bmp", "tif"])
def test_a_slice_of_no_bytes_is_named_wherever_it_is(tmp_path, number, ending):
    path, _ = written(tmp_path, "SkyScan")
    if ending == "tif":
        tifffile = pytest.importorskip("tifffile")
        for file in sorted(path.glob("*.bmp")):
            plane = VALUES[int(file.stem[-8:])]
            tifffile.imwrite(file.with_suffix(".tif"), plane)
            file.unlink()
    file = sorted(path.glob(f"*.{ending}"))[number]
    file.write_bytes(b"")
    volume = read(path)
    np.testing.assert_array_equal(volume.data, np.delete(VALUES, number, 0))
    assert volume.notes[0] == (
        f"1 slice skipped (empty or damaged): {file.name}. Copy or export it again."
    )
