"""Further files made to do harm: circles, numbers that are none, links, depth, and lies about size.

Entered into the same list as those of `_attack_files`.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

from benchmarks._attack_files import (
    FILES,
    _meta,
    _npy,
    _ome,
    attack,
    dicom,
    nifti,
    plain,
    tiff,
    zarr2,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FILES"]

# ---- TIFF


def _retyped(path: Path, tag: int, kind: int, value: bytes) -> Path:
    """Give an entry of a directory another type and value."""
    data = bytearray(path.read_bytes())
    for at in range(10, 10 + 12 * int.from_bytes(data[8:10], "little"), 12):
        if int.from_bytes(data[at : at + 2], "little") == tag:
            data[at + 2 : at + 4] = kind.to_bytes(2, "little")
            data[at + 8 : at + 12] = value
    path.write_bytes(data)
    return path


def _small(folder: Path) -> Path:
    return tiff(folder / "a.tif", plain(8, 1, bytes(64)), bytes(64))


@attack("TIFF: strips that begin at byte 1.5")
def _float_offset(folder: Path) -> Path:
    return _retyped(_small(folder), 273, 11, struct.pack("<f", 150.5))


@attack("TIFF: a width of 0.5")
def _float_width(folder: Path) -> Path:
    return _retyped(_small(folder), 256, 11, struct.pack("<f", 0.5))


@attack("TIFF: a width below zero")
def _negative_width(folder: Path) -> Path:
    return _retyped(_small(folder), 256, 9, struct.pack("<i", -8))


@attack("TIFF: an image within itself")
def _inside_itself(folder: Path) -> Path:
    return tiff(folder / "a.tif", {**plain(8, 1, bytes(64)), 330: (4, 8)}, bytes(64))


@attack("TIFF: two pages that follow each other")
def _two_in_a_circle(folder: Path) -> Path:
    path = _small(folder)
    data = bytearray(path.read_bytes())
    end = 10 + 12 * int.from_bytes(data[8:10], "little")
    second = len(data)
    data[end : end + 4] = second.to_bytes(4, "little")
    data += data[8:end] + (8).to_bytes(4, "little")
    path.write_bytes(data)
    return path


@attack("BigTIFF: a directory at byte 2^63")
def _far_directory(folder: Path) -> Path:
    (folder / "a.tif").write_bytes(b"II+\0\x08\0\0\0" + struct.pack("<Q", 2**63 - 1) + bytes(64))
    return folder / "a.tif"


@attack("BigTIFF: 2^60 entries in a directory")
def _many_entries(folder: Path) -> Path:
    data = b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 2**60) + bytes(200)
    (folder / "a.tif").write_bytes(data)
    return folder / "a.tif"


def _told(name: str, text: str) -> None:
    def write(folder: Path) -> Path:
        tags = {**plain(8, 1, bytes(64)), 270: (2, text.encode() + b"\0")}
        return tiff(folder / "a.tif", tags, bytes(64))

    FILES[name] = write


_told("ImageJ: 10^9 images in one page", "ImageJ=1.54\nimages=1000000000\nslices=1000000000\n")
_told("ImageJ: a number of images below zero", "ImageJ=1.54\nimages=-5\nslices=-5\n")
_told("ImageJ: a unit that commands a terminal", "ImageJ=1.54\nunit=\x1b]0;x\x07\nspacing=nan\n")
_told("TIFF: a shape of 10^18 in the description", '{"shape": [1000000, 1000000, 1000000]}')
_told("TIFF: a description nested 100,000 deep", '{"shape": ' + "[" * 100_000)
_told("OME-TIFF: entities of entities", '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "'
      + "ha" * 500 + '">' + "".join(f'<!ENTITY {chr(98 + n)} "' + f"&{chr(97 + n)};" * 50 + '">'
      for n in range(8)) + ']><OME xmlns="x">&i;</OME>')  # fmt: skip
_told("OME-TIFF: a file of the system as an entity", '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a '
      'SYSTEM "file:///etc/hostname">]><OME xmlns="x" UUID="&a;">&a;</OME>')  # fmt: skip
_told(
    "OME-TIFF: 100,000 elements, one in another",
    '<?xml version="1.0"?>'
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">' + "<a>" * 100_000,
)


@attack("OME-TIFF: itself by another name, in a circle")
def _each_other(folder: Path) -> Path:
    def inside(name: str) -> str:
        told = f'<UUID FileName="{name}">urn:uuid:2</UUID>'
        return f'<TiffData IFD="0" FirstZ="0" PlaneCount="1">{told}</TiffData>'

    _ome(folder, inside("a.ome.tif")).rename(folder / "b.ome.tif")
    return _ome(folder, inside("b.ome.tif"))


# ---- DICOM


@attack("DICOM: sequences, 3,000 one in another")
def _deep(folder: Path) -> Path:
    whole = dicom(folder / "a.dcm").read_bytes()
    at = whole.rindex(b"\xe0\x7f\x10\0")
    begin = struct.pack("<HH2sHI", 0x0040, 0xA730, b"SQ", 0, 0xFFFFFFFF)
    begin += struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
    (folder / "a.dcm").write_bytes(whole[:at] + begin * 3000 + whole[at:])
    return folder / "a.dcm"


def _dicom_attack(name: str, **known: Any) -> None:
    FILES[name] = lambda folder: dicom(folder / "a.dcm", **known)


_dicom_attack("DICOM: a frame number of 5,000 digits", NumberOfFrames=None)
_dicom_attack("DICOM: a pixel spacing of nothing", PixelSpacing=[0, 0])
_dicom_attack("DICOM: a million windows", WindowCenter=["1"] * 5000, WindowWidth=["2"] * 5000)
_dicom_attack("DICOM: a slope beyond all numbers", RescaleSlope="1e308", RescaleIntercept="-1e308")
_dicom_attack("DICOM: names that command a terminal", SeriesDescription="\x1b]0;x\x07\x1b[2J")


@attack("DICOM: rows that are no whole number")
def _half_rows(folder: Path) -> Path:
    whole = dicom(folder / "a.dcm").read_bytes()
    rows = struct.pack("<HH2sHH", 0x0028, 0x0010, b"US", 2, 16)
    half = struct.pack("<HH2sHd", 0x0028, 0x0010, b"FD", 8, 15.5)
    (folder / "a.dcm").write_bytes(whole.replace(rows, half))
    return folder / "a.dcm"


@attack("DICOM: an element that is longer than the file")
def _long_element(folder: Path) -> Path:
    whole = dicom(folder / "a.dcm").read_bytes()
    at = whole.rindex(b"\xe0\x7f\x10\0")
    element = struct.pack("<HH2sHI", 0x0011, 0x0010, b"OB", 0, 2**31)
    (folder / "a.dcm").write_bytes(whole[:at] + element + whole[at:])
    return folder / "a.dcm"


# ---- Zarr


@attack("Zarr 2: shards of no bytes, and a type of a gigabyte")
def _wide_type(folder: Path) -> Path:
    return zarr2(folder, bytes(64), None, dtype="|V1000000000")


@attack("Zarr 2: a fill value that is no number")
def _odd_fill(folder: Path) -> Path:
    return zarr2(folder, b"", None, fill_value={"a": [1]})


@attack("Zarr 2: a shape below zero")
def _negative_shape(folder: Path) -> Path:
    return zarr2(folder, bytes(4096), None, shape=[-16, 16, 16])


@attack("Zarr 2: metadata of 100,000 brackets")
def _deep_metadata(folder: Path) -> Path:
    place = zarr2(folder, bytes(4096), None)
    (place / ".zattrs").write_text('{"multiscales": ' + "[" * 100_000)
    return place


@attack("Zarr 2: a group whose image lies above it")
def _above(folder: Path) -> Path:
    zarr2(folder.parent, bytes(4096), None)
    place = folder / "g.zarr"
    place.mkdir()
    (place / ".zgroup").write_text('{"zarr_format": 2}')
    scales = [{"datasets": [{"path": "../../a.zarr"}], "version": "0.4"}]
    (place / ".zattrs").write_text(json.dumps({"multiscales": scales}))
    return place


@attack("Zarr: a folder that contains itself")
def _own_folder(folder: Path) -> Path:
    place = folder / "a.zarr"
    place.mkdir()
    (place / ".zgroup").write_text('{"zarr_format": 2}')
    (place / "0").symlink_to(place, target_is_directory=True)
    scales = [{"datasets": [{"path": "/".join(["0"] * 30)}], "version": "0.4"}]
    (place / ".zattrs").write_text(json.dumps({"multiscales": scales}))
    return place


def _sharded(folder: Path, depth: int) -> Path:
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    codecs: list[Any] = plain
    for _ in range(depth):
        inside = {"chunk_shape": [16] * 3, "codecs": codecs, "index_codecs": plain}
        codecs = [{"name": "sharding_indexed", "configuration": inside}]
    place = folder / "a.zarr"
    (place / "c" / "0" / "0").mkdir(parents=True)
    (place / "c" / "0" / "0" / "0").write_bytes(bytes(5000))
    told = {"zarr_format": 3, "node_type": "array", "shape": [16] * 3, "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [16] * 3}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": codecs,
            "attributes": {}}  # fmt: skip
    (place / "zarr.json").write_text(json.dumps(told))
    return place


FILES["Zarr 3: shards in shards, 30 deep"] = lambda folder: _sharded(folder, 30)
FILES["Zarr 3: a shard whose index is zeros"] = lambda folder: _sharded(folder, 1)

# ---- other formats


def _file(name: str, file: str, make: Callable[[], bytes]) -> None:
    def write(folder: Path) -> Path:
        (folder / file).write_bytes(make())
        return folder / file

    FILES[name] = write


def _with_offset(offset: float) -> bytes:
    header = bytearray(nifti((4, 4, 4)))
    struct.pack_into("<f", header, 108, offset)
    return bytes(header) + bytes(64)


_file("NIfTI: voxels that begin at 10^30", "a.nii", lambda: _with_offset(1e30))
_file("NIfTI: voxels that begin nowhere", "a.nii", lambda: _with_offset(float("nan")))
_tiny = nifti((4, 4, 4)) + bytes(64)
_file("NIfTI: 10,000 streams of nothing", "a.nii.gz",
      lambda: gzip.compress(b"") * 10_000 + gzip.compress(_tiny))  # fmt: skip
_file("NIfTI: a stream within a stream", "a.nii.gz",
      lambda: gzip.compress(gzip.compress(_tiny)))  # fmt: skip
_file("MetaImage: the zeros of the system", "a.mhd",
      lambda: _meta(64).replace(b"LOCAL", b"/dev/zero"))  # fmt: skip
_file("MetaImage: itself as its voxels", "a.mhd", lambda: _meta(4).replace(b"LOCAL", b"a.mhd"))
_packed = _meta(4, CompressedData="True", HeaderSize="-1") + zlib.compress(bytes(64))
_file("MetaImage: compressed, before its own header", "a.mha", lambda: _packed)
_file("MetaImage: one line of 10 MB", "a.mha", lambda: _meta(4, Comment="x" * 10_000_000))
_file("NumPy: a header of 4 GB", "a.npy",
      lambda: b"\x93NUMPY\3\0" + struct.pack("<I", 2**32 - 16) + b"{" * 1000)  # fmt: skip
_file(
    "NumPy: fields within fields",
    "a.npy",
    lambda: _npy("{'descr': [('a', [('b', '<u2')])], 'fortran_order': False, 'shape': (4, 4)}"),
)
_file("an empty file that is named like a scan", "a.tif", lambda: b"")
_file("one byte that is named like a scan", "a.dcm", lambda: b"I")


@attack("MetaImage: a link as its voxels")
def _linked_voxels(folder: Path) -> Path:
    (folder.parent / "outside.raw").write_bytes(bytes(64))
    (folder / "a.raw").symlink_to(folder.parent / "outside.raw")
    (folder / "a.mhd").write_bytes(_meta(4).replace(b"LOCAL", b"a.raw"))
    return folder / "a.mhd"


@attack("raw: a shape of yes and no")
def _boolean_shape(folder: Path) -> Path:
    (folder / "a.json").write_text('{"shape": [true, 4, 4], "dtype": "u1", "spacing": [NaN, 1, 1]}')
    (folder / "a.raw").write_bytes(bytes(64))
    return folder / "a.raw"


@attack("a link to itself that is named like a scan")
def _loop(folder: Path) -> Path:
    (folder / "a.tif").symlink_to(folder / "a.tif")
    return folder / "a.tif"


@attack("the zeros of the system, by a link that is named like a scan")
def _zeros(folder: Path) -> Path:
    (folder / "a.raw").symlink_to("/dev/zero")
    (folder / "a.json").write_text('{"shape": [4, 4, 4], "dtype": "u1"}')
    return folder / "a.raw"


@attack("a folder of folders, 200 deep, with a scan at its end")
def _deep_folder(folder: Path) -> Path:
    place = folder / "/".join(["d"] * 200)
    os.makedirs(place)
    _small(place)
    return folder


@attack("a folder of 20,000 empty files")
def _many_files(folder: Path) -> Path:
    for number in range(20_000):
        (folder / f"{number}.dcm").touch()
    return folder
