"""Zeiss volumes, written by a writer of OLE files of the tests and read by olefile, too."""

from __future__ import annotations

import struct
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.io import describe, kind_of, read

olefile = pytest.importorskip("olefile")

sys.path.insert(0, str(Path(__file__).parent))
ole_files = import_module("ole_files")

KINDS = {"u1": 3, "u2": 5, "f4": 10}


def streams_of(values, **more):
    depth, rows, columns = values.shape
    found = {
        "ImageInfo/ImageWidth": struct.pack("<i", columns),
        "ImageInfo/ImageHeight": struct.pack("<i", rows),
        "ImageInfo/NoOfImages": struct.pack("<i", depth),
        "ImageInfo/DataType": struct.pack("<i", KINDS[values.dtype.str[1:]]),
        "ImageInfo/pixelsize": struct.pack("<f", 2.3),
    }
    for number, plane in enumerate(values, start=1):
        found[f"ImageData{(number + 99) // 100}/Image{number}"] = plane.tobytes()
    return found | more


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("rows", "scattered"), [(9, False), (70, False), (70, True)])
def test_slices_are_those_that_olefile_reads(tmp_path, rng, dtype, rows, scattered):
    values = rng.integers(0, 200, (120 if rows == 9 else 7, rows, 67)).astype(dtype)
    path = tmp_path / "bread.txm"
    path.write_bytes(ole_files.ole_bytes(streams_of(values), scattered))
    assert kind_of(path) == "txm"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, values)
    assert (volume.dtype, volume.unit, volume.spacing) == (np.dtype(dtype), "um", (2.3,) * 3)
    with olefile.OleFileIO(path) as ole:
        last = f"ImageData{(len(values) + 99) // 100}/Image{len(values)}"
        assert ole.openstream(last).read() == np.asarray(volume.data)[-1].tobytes()


def test_the_settings_of_the_scanner_are_metadata(tmp_path):
    more = {
        "ImageInfo/Voltage": struct.pack("<f", 80), "ImageInfo/Current": struct.pack("<f", 87.5),
        "ImageInfo/ExpTimes": struct.pack("<2f", 1.5, 1.5),
        "AcquisitionSettings/SourceFilterName": b"LE2".ljust(260, b"\0"),
    }  # fmt: skip
    path = tmp_path / "a.txm"
    path.write_bytes(ole_files.ole_bytes(streams_of(np.zeros((2, 8, 8), "u1"), **more)))
    (volume,) = describe(path)
    assert volume.metadata["scanner"] == {
        "voltage_kv": 80, "current_ua": 87.5, "exposure_ms": 1500, "filter": "LE2",
    }  # fmt: skip


@pytest.mark.parametrize("ending", ["txrm", "xrm"])
def test_projections_are_refused_in_words(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(ole_files.ole_bytes(streams_of(np.zeros((2, 8, 8), "u1"))))
    with pytest.raises(InputError, match="projections, which are no slices"):
        read(path)


def test_a_slice_that_is_missing_is_named(tmp_path):
    streams = streams_of(np.zeros((3, 8, 8), "u1"))
    del streams["ImageData1/Image2"]
    path = tmp_path / "a.txm"
    path.write_bytes(ole_files.ole_bytes(streams))
    with pytest.raises(InputError, match="slice 2 of 3 is missing"):
        read(path)


def test_without_olefile_the_command_that_installs_it_is_given(tmp_path, monkeypatch):
    path = tmp_path / "a.txm"
    path.write_bytes(ole_files.ole_bytes(streams_of(np.zeros((3, 8, 8), "u1"))))
    monkeypatch.setitem(sys.modules, "olefile", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[formats\]'"):
        read(path)


def test_damaged_files_give_an_image_or_a_clear_error(tmp_path, rng):
    path = tmp_path / "a.txm"
    content = ole_files.ole_bytes(streams_of(rng.integers(0, 99, (3, 70, 70)).astype("u1")))
    for number in range(120):
        broken = bytearray(content)
        for at in rng.integers(0, len(content), 4):
            broken[at] ^= int(rng.integers(1, 255))
        path.write_bytes(bytes(broken)[: None if number % 3 else rng.integers(1, len(content))])
        try:
            read(path)
        except HushporeError:
            continue


def test_half_a_copy_is_said_with_the_remedy(tmp_path):
    path = tmp_path / "a.txm"
    whole = ole_files.ole_bytes(streams_of(np.zeros((5, 64, 70), "u2")))
    path.write_bytes(whole[:9000])
    with pytest.raises(InputError, match=r"a\.txm .*Copy or export it again"):
        read(path)
