"""Damaged files of every kind that is read: whole ones, what is done to them, what comes of it.

Bytes are flipped, cut off, replaced, lost, inserted and moved; and what a format is made of is
removed, doubled, exchanged and given other values: entries of TIFF directories, elements of DICOM,
keys and values of JSON, lines of text. What is read must be an image or a clear error; where the
bytes of the pixels are whole, the same pixels or a note.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import shutil
import struct
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tifffile
from pydicom.data.data_manager import DATA_ROOT

from hushpore.base.errors import HushporeError
from hushpore.base.volume import Volume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Where most of what can be broken stands.
_HEADER = 4096
_NUMBERS = [b"\xff" * 2, b"\xff" * 4, bytes(4), b"\0\x80", b"\xff\xff\xff\x7f", b"\1\0\0\0"]
_REPRESENTATIONS = [b"SQ", b"UN", b"US", b"OB", b"DS", b"UL", b"AT", b"PN", b"XX", b"OW", b"IS"]
_OF_PYDICOM = [
    "CT_small", "MR_small", "MR_small_RLE", "MR_small_jp2klossless", "MR_small_bigendian",
    "MR_small_implicit", "MR_small_jpeg_ls_lossless", "JPGExtended", "rtdose", "rtdose_rle",
    "image_dfl", "liver_1frame",
]  # fmt: skip
_ODD_VALUES = [
    None, True, -1, 0, 2**63, 1e300, float("inf"), float("nan"), "", "x", "\ud800", "\x1b[2J", [],
    {}, [[]], [1, "a"], {"a": 1}, "9" * 400, 0.5, "uint8", "<f8", "|O",
]  # fmt: skip
_ODD_WORDS = [
    "nan", "inf", "-1", "0", "9" * 400, "true", '"x"', "[]", "[[1]]", "{a=1}", "", "1e300", "x y",
    "1979-05-27", "0x10", '"\\u0000"',
]  # fmt: skip
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8}


@dataclass(frozen=True)
class Original:
    """A whole scan, model, record or settings file."""

    files: dict[str, bytes]  # by their names within a folder
    opened: str  # the one that is opened; empty: the folder
    damaged: tuple[str, ...]  # those that something is done to


@dataclass(frozen=True)
class Mutant:
    """What became of an original."""

    path: Path  # what is opened
    what: str  # was done, for the report
    whole: bool  # whether no byte of the pixels was touched
    original: int  # its number


@dataclass(frozen=True)
class Image:
    """What is compared of an image that was read."""

    values: bytes
    shape: tuple[int, ...]
    dtype: str
    spacing: tuple[float, ...]
    notes: tuple[str, ...]


def read_images(path: Path) -> list[Image]:
    """Read all images of a file or folder."""
    from hushpore.io import read_all

    return [
        Image(
            np.ascontiguousarray(each.data).tobytes(),
            tuple(each.shape),
            str(each.dtype),
            tuple(each.spacing or ()),
            tuple(each.notes),
        )
        for each in read_all(path)
    ]


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    originals: Callable[[Path], list[Original]]  # made in a folder that is empty
    # does something to what the format is made of, never to pixels; may raise ValueError
    structure: Callable[[bytes, random.Random], bytes]
    read: Callable[[Path], list[Image]] = read_images


# ---- what is done to bytes


def of_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return a file with one kind of damage: bits, a cut, numbers, types, bytes lost or moved."""
    data = bytearray(content)
    end = min(len(data), _HEADER) if rng.random() < 0.8 else len(data)
    kind = rng.randrange(7)
    at = rng.randrange(end)
    if kind == 0:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(end)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(len(data)) :]
    elif kind == 2:
        for _ in range(rng.randint(1, 4)):
            number = rng.choice(_NUMBERS)
            at = rng.randrange(end)
            data[at : at + len(number)] = number
    elif kind == 3:
        for _ in range(3):
            at = rng.randrange(end)
            data[at : at + 2] = rng.choice(_REPRESENTATIONS)
    elif kind == 4:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 5:
        data[at:at] = rng.randbytes(rng.randrange(1, 64))
    else:
        other, length = rng.randrange(end), rng.randrange(1, 200)
        data[at : at + length] = data[other : other + length]
    return bytes(data)


# ---- what is done to structures


def of_json(content: bytes, rng: random.Random) -> bytes:
    """Remove, double, exchange or replace something of JSON."""
    known = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2))):
        places = list(_places(known))
        holder, key = rng.choice(places)
        act = rng.randrange(5)
        if act == 0:
            del holder[key]
        elif act == 1 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), holder[key])
        elif act == 2:
            other, name = rng.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                holder[key], other[name] = other[name], holder[key]
        elif act == 3 and isinstance(holder, dict):
            holder[f"{key}{rng.choice('_x2')}"] = holder.pop(key)
        else:
            holder[key] = rng.choice(_ODD_VALUES)
    try:
        return json.dumps(known).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        return content


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def of_safetensors(content: bytes, rng: random.Random) -> bytes:
    """Do to its header what is done to JSON, or to the JSON texts in it."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    texts = header["__metadata__"]
    # without the sum, which would tell of all that follows
    texts.pop("blake2b", None)
    if rng.random() < 0.7:
        name = rng.choice(list(texts))
        texts[name] = of_json(texts[name].encode(), rng).decode("utf-8", "surrogatepass")
        told = json.dumps(header).encode()
    else:
        told = of_json(json.dumps(header).encode(), rng)
    return len(told).to_bytes(8, "little") + told + content[8 + size :]


def of_lines(content: bytes, rng: random.Random) -> bytes:
    """Remove, double, exchange or move lines of text, or replace what is stated in one."""
    text = content.decode("latin1")
    # of MetaImage, what follows is pixels
    begin, mark, rest = text.partition("ElementDataFile")
    lines = begin.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    act = rng.randrange(5)
    if act == 0:
        del lines[at]
    elif act == 1:
        lines.insert(other, lines[at])
    elif act == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        name, sign, _ = lines[at].lstrip("# ").partition("=")
        lines[at] = f"{name}{sign} {rng.choice(_ODD_WORDS)}\n"
    return ("".join(lines) + mark + rest).encode("latin1")


def of_bytes_alone(content: bytes, rng: random.Random) -> bytes:
    """Change bytes of the first 200, in which these headers state shape and type."""
    return of_bytes(content[:200], rng) + content[200:]


def of_words(content: bytes, rng: random.Random) -> bytes:
    """Do something to the header of a NumPy file, whose length stays right."""
    size = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + size].decode("latin1").rstrip()
    words = ["descr", "fortran_order", "shape", "<u2", "False", "5", "6", ",", "("]
    words = [word for word in words if word in header]
    odd = ["|O", "<f8", ">u2", "True", "-5", "2**40", "(1,)*60", "None", "", "1e3", "<U9", "'"]
    changed = header.replace(rng.choice(words), rng.choice([*words, *odd]), 1).encode() + b"\n"
    return content[:8] + len(changed).to_bytes(2, "little") + changed + content[10 + size :]


def of_fields(content: bytes, rng: random.Random) -> bytes:
    """Exchange or replace numbers of a binary header (NIfTI)."""
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(of_fields(gzip.decompress(content), rng), mtime=0)
    data, size = bytearray(content), rng.choice((2, 4))
    one, other = (size * rng.randrange(348 // size) for _ in range(2))
    if rng.random() < 0.5:
        data[one : one + size], data[other : other + size] = (
            data[other : other + size], data[one : one + size],
        )  # fmt: skip
    else:
        odd = struct.pack("<f", rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e30]))
        data[one : one + size] = rng.choice([*_NUMBERS, odd])[:size].ljust(size, b"\0")
    return bytes(data)


def of_tiff(content: bytes, rng: random.Random) -> bytes:
    """Remove, double, exchange or change entries of a directory, or the order of directories."""
    data = bytearray(content)
    order = "<" if data[:2] == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == 43
    count_kind, word, step, first = ("Q", "Q", 20, 8) if is_big else ("H", "I", 12, 4)
    width, head = struct.calcsize("=" + word), struct.calcsize("=" + count_kind)
    places, at = [], struct.unpack_from(order + word, data, first)[0]
    while at and len(places) < 99:
        places.append(at)
        count = struct.unpack_from(order + count_kind, data, at)[0]
        at = struct.unpack_from(order + word, data, at + head + step * count)[0]
    place = rng.choice(places[:2] if rng.random() < 0.7 else places)
    count = struct.unpack_from(order + count_kind, data, place)[0]
    one, other = (place + head + step * rng.randrange(count) for _ in range(2))
    value = 4 + width  # where a value, or its place, stands in an entry
    act = rng.randrange(8)
    if act == 0:  # removed
        end = place + head + step * count
        rest = bytes(data[one + step : end + width])
        data[one : one + len(rest)] = rest
        struct.pack_into(order + count_kind, data, place, count - 1)
    elif act == 1:  # doubled
        data[other : other + step] = data[one : one + step]
    elif act == 2:  # in another order
        data[one : one + step], data[other : other + step] = (
            data[other : other + step], data[one : one + step],
        )  # fmt: skip
    elif act == 3:  # values exchanged
        data[one + value : one + step], data[other + value : other + step] = (
            data[other + value : other + step], data[one + value : one + step],
        )  # fmt: skip
    elif act == 4:  # another type
        struct.pack_into(order + "H", data, one + 2, rng.choice(list(_TYPE_SIZES)))
    elif act == 5:  # another number of values
        struct.pack_into(order + word, data, one + 4, rng.choice((0, 1, 2, 3, 100, 2**31 - 1)))
    elif act == 6:  # another value
        odd = rng.choice((0, 1, 2, 3, 4, 8, 16, 24, 32, 64, 5, 8, 32773, 2**16 - 1, 2**31 - 1))
        struct.pack_into(order + word, data, one + value, odd)
    else:  # directories
        target = rng.choice([first, place + head + step * count])
        struct.pack_into(order + word, data, target, rng.choice([*places, 0, len(data)]))
    return bytes(data)


def of_dicom(content: bytes, rng: random.Random) -> bytes:
    """Remove, exchange, rename or change elements, also those of sequences."""
    import pydicom

    dataset = pydicom.dcmread(BytesIO(content), force=True)
    holder, out = dataset, BytesIO()
    inner = [each for each in dataset if each.VR == "SQ" and each.value]
    while inner and rng.random() < 0.6:
        holder = rng.choice(rng.choice(inner).value)
        inner = [each for each in holder if each.VR == "SQ" and each.value]
    names = [each.tag for each in holder if each.tag.group != 0x7FE0]
    if not names:
        raise ValueError("nothing to change")
    one, other = rng.choice(names), rng.choice(names)
    act = rng.randrange(5)
    if act == 0:
        del holder[one]
    elif act == 1:
        holder[one]._value, holder[other]._value = holder[other]._value, holder[one]._value
    elif act == 2 and holder[one].VR == "SQ":
        holder[one].value.append(holder[one].value[0])
    elif act == 3:
        holder[one].VR = rng.choice(["US", "DS", "IS", "UN", "LO", "SQ", "FD", "OB"])
    else:
        holder[one]._value = rng.choice(["", "x", "0", "-1", "1e300", "nan", 0, 65535, "1\\2\\3"])
    dataset.save_as(out, enforce_file_format=False)
    return out.getvalue()


# ---- whole files


def _of_folder(folder: Path, opened: str = "", *damaged: str) -> Original:
    files = {
        str(each.relative_to(folder)): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    }
    return Original(files, opened, damaged or tuple(files))


def _scan(shape: tuple[int, ...] = (5, 6, 7)) -> Volume:
    values = np.arange(np.prod(shape)).reshape(shape) * 3 + 7
    return Volume(values.astype(np.uint16), spacing=(3.0, 1.5, 1.5), unit="um", name="scan")


def _dicom(folder: Path) -> list[Original]:
    from hushpore.io.dicom import write_series

    values = np.arange(-100, 110).reshape(5, 6, 7).astype(np.int16)
    series = write_series(Volume(values, spacing=(3, 1, 1), unit="mm"), folder / "s", seed=1)
    test_files = Path(DATA_ROOT) / "test_files"
    files = [next(iter(series.iterdir())), *(test_files / f"{name}.dcm" for name in _OF_PYDICOM)]
    return [Original({"scan": each.read_bytes()}, "scan", ("scan",)) for each in files
            if each.is_file()]  # fmt: skip


def _series(folder: Path) -> list[Original]:
    from hushpore.io.dicom import write_series

    write_series(_scan((4, 6, 7)), folder / "s", seed=1)
    return [_of_folder(folder / "s")]


def _frames(folder: Path) -> list[Original]:
    test_files = Path(DATA_ROOT) / "test_files"
    found = [test_files / f"{name}.dcm" for name in ("emri_small", "rtdose", "liver_1frame")]
    return [Original({"scan": each.read_bytes()}, "scan", ("scan",)) for each in found
            if each.is_file()]  # fmt: skip


def _dicomdir(folder: Path) -> list[Original]:
    from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, MediaStorageDirectoryStorage

    from hushpore.io.dicom import write_series

    place = write_series(_scan((4, 6, 7)), folder / "s", seed=1)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    meta.MediaStorageSOPInstanceUID, meta.TransferSyntaxUID = "1.2.3", ExplicitVRLittleEndian
    whole = FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
    records = []
    for number, file in enumerate(sorted(place.iterdir())):
        file.rename(place / f"IM{number}")
        record = Dataset()
        record.DirectoryRecordType, record.ReferencedFileID = "IMAGE", [f"IM{number}"]
        records.append(record)
    whole.DirectoryRecordSequence = records
    whole.save_as(place / "DICOMDIR", enforce_file_format=True)
    return [_of_folder(place, "DICOMDIR", "DICOMDIR")]


def _tiff(folder: Path) -> list[Original]:
    values = np.random.default_rng(0).integers(0, 4000, (5, 40, 48), dtype=np.uint16)
    kinds = {
        "plain": {}, "imagej": {"imagej": True}, "big": {"bigtiff": True},
        "zlib": {"compression": "zlib", "predictor": True}, "lzw": {"compression": "lzw"},
        "tiles": {"tile": (16, 16)}, "jpeg 2000": {"compression": "jpeg2000"},
        "other": {"byteorder": ">"}, "zstd": {"compression": "zstd"},
    }  # fmt: skip
    for name, options in kinds.items():
        tifffile.imwrite(folder / f"{name}.tif", values, photometric="minisblack", **options)
    return [
        Original({"a.tif": (folder / f"{name}.tif").read_bytes()}, "a.tif", ("a.tif",))
        for name in kinds
    ]


def _ome_tiff(folder: Path) -> list[Original]:
    from hushpore.io.results import write_image

    write_image(folder / "a.tif", _scan((5, 20, 24)))
    write_image(folder / "l.tif", Volume(np.arange(480, dtype=np.uint32).reshape(2, 12, 20)))
    return [
        Original({"a.tif": (folder / name).read_bytes()}, "a.tif", ("a.tif",))
        for name in ("a.tif", "l.tif")
    ]


def _zarr(folder: Path, version: int) -> list[Original]:
    import zarr

    from hushpore.io.results import write_image

    scan = _scan()
    place = folder / "a.zarr"
    array = zarr.create_array(
        str(place), shape=scan.shape, chunks=(2, 4, 4), dtype="uint16", zarr_format=version
    )
    array[:] = scan.data
    found = [_of_folder(place)]
    if version == 3:
        write_image(folder / "b.ome.zarr", scan)
        whole = _of_folder(folder / "b.ome.zarr")
        found.append(Original(whole.files, "", tuple(name for name in whole.files
                                                     if name.endswith(".json"))))  # fmt: skip
    return found


def _nifti(folder: Path) -> list[Original]:
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, 7, 6, 5, 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, 512, 16)
    struct.pack_into("<8f", header, 76, 1, 1.5, 1.5, 3, 1, 1, 1, 1)
    struct.pack_into("<3f", header, 108, 352, 1, 0)
    header[123], header[344:348] = 3, b"n+1\0"
    content = bytes(header) + np.asarray(_scan().data).tobytes()
    return [
        Original({"a.nii": content}, "a.nii", ("a.nii",)),
        Original({"a.nii.gz": gzip.compress(content, mtime=0)}, "a.nii.gz", ("a.nii.gz",)),
    ]


def _meta_image(folder: Path) -> list[Original]:
    values = np.asarray(_scan().data).tobytes()
    told = {"ObjectType": "Image", "NDims": "3", "BinaryData": "True", "DimSize": "7 6 5",
            "ElementSpacing": "1.5 1.5 3", "ElementType": "MET_USHORT"}  # fmt: skip
    begin = "".join(f"{key} = {value}\n" for key, value in told.items())
    local = f"{begin}ElementDataFile = LOCAL\n".encode() + values
    beside = f"{begin}ElementDataFile = a.raw\n".encode()
    return [
        Original({"a.mha": local}, "a.mha", ("a.mha",)),
        Original({"a.mhd": beside, "a.raw": values}, "a.mhd", ("a.mhd",)),
    ]


def _nrrd(folder: Path) -> list[Original]:
    values = np.asarray(_scan().data).tobytes()
    told = {"type": "uint16", "dimension": "3", "sizes": "7 6 5", "endian": "little",
            "encoding": "raw", "spacings": "1.5 1.5 3"}  # fmt: skip
    begin = "NRRD0004\n" + "".join(f"{key}: {value}\n" for key, value in told.items())
    beside = f"{begin}data file: a.raw\n\n".encode()
    return [
        Original({"a.nrrd": f"{begin}\n".encode() + values}, "a.nrrd", ("a.nrrd",)),
        Original({"a.nhdr": beside, "a.raw": values}, "a.nhdr", ("a.nhdr",)),
    ]


def _isq(folder: Path) -> list[Original]:
    header = bytearray(512)
    header[:16] = b"CTDATA-HEADER_V1"
    struct.pack_into("<6i", header, 44, 7, 6, 5, 70, 60, 50)
    struct.pack_into("<i", header, 88, 4096)
    values = np.asarray(_scan().data).astype("<i2").tobytes()
    return [Original({"a.isq": bytes(header) + values}, "a.isq", ("a.isq",))]


def _volume_graphics(folder: Path) -> list[Original]:
    told = {"size": "7 6 5", "datatype": "unsigned integer", "bitsperelement": "16"}
    begin = "".join(f"{key} = {value}\n" for key, value in told.items())
    header = (
        f"{{volume1}}\n[representation]\n{begin}[file1]\nSkipHeader = 0\nFileFormat = raw\n"
        "Size = 7 6 5\nName = a.vol\nDatatype = unsigned integer\nBitsPerElement = 16\n"
        "[geometry]\nresolution = 0.011 0.012 0.013\nunit = mm\n"
    )
    files = {"a.vgi": header.encode(), "a.vol": np.asarray(_scan().data).tobytes()}
    return [Original(files, "a.vgi", ("a.vgi",))]


def _raw(folder: Path) -> list[Original]:
    told = {"shape": [5, 6, 7], "dtype": "<u2", "axes": "zyx", "spacing": [3, 1.5, 1.5],
            "unit": "um", "offset": 0}  # fmt: skip
    files = {"a.json": json.dumps(told).encode(), "a.raw": np.asarray(_scan().data).tobytes()}
    return [Original(files, "a.raw", ("a.json",))]


def _numpy(folder: Path) -> list[Original]:
    content = BytesIO()
    np.save(content, np.asarray(_scan().data))
    return [Original({"a.npy": content.getvalue()}, "a.npy", ("a.npy",))]


def _model(folder: Path) -> list[Original]:
    import hushpore

    values = np.random.default_rng(0).normal(100, 20, (3, 16, 16)).astype(np.float32)
    settings: dict[str, Any] = {"steps": 1, "patch_size": 16, "batch_size": 1, "context": 0,
                                "precision": "float32", "method": "n2v2"}  # fmt: skip
    hushpore.denoise(Volume(values), device="cpu", **settings).model.save(folder / "m.safetensors")
    return [_of_folder(folder, "m.safetensors")]


def _read_model(path: Path) -> list[Image]:
    from hushpore.denoising.trained_model import load_model

    load_model(path)
    return []


#: A record as `hushpore pores` writes it, in little.
_RECORD = {
    "headline": "Porosity 1 %", "remarks": [],
    "source": {"path": "scan.tif", "series": "", "at": []},
    "jobs": [{"job": "pores", "settings": {"threshold": 30, "minimum_voxels": 1},
              "hushpore": "0.1.0", "versions": {"numpy": "2.0"}, "device": "CPU",
              "input": {"name": "scan", "source": "scan.tif", "shape": [5, 6, 7], "axes": "zyx",
                        "dtype": "uint16", "spacing": [3, 1, 1], "unit": "um", "blake2b": "00"},
              "auxiliary": {}, "timings": {"reading": 0.1}, "notes": [], "remarks": [],
              "result": {"porosity": 0.01, "pores": 1}}],
    "fingerprints": {"labels": "00"}, "files": ["labels.tif", "pores.csv", "result.json"],
}  # fmt: skip


def _record(folder: Path) -> list[Original]:
    files = {"result.json": json.dumps(_RECORD).encode(), "labels.tif": b"x", "pores.csv": b"x"}
    return [Original(files, "", ("result.json",))]


def _read_record(path: Path) -> list[Image]:
    """Do with a record what is done before any work: of a scan that is not there."""
    from hushpore.base.events import result_of
    from hushpore.io.output_target import check_target
    from hushpore.runs.rerun import rerun

    for use in (
        lambda: check_target(path, overwrite=True),
        lambda: result_of(rerun(path, path.with_name("again"))),
    ):
        with contextlib.suppress(HushporeError):
            use()
    return []


def _settings(folder: Path) -> list[Original]:
    from hushpore.jobs import JOBS
    from hushpore.runs.presets import settings_text

    text = settings_text({job: each.settings() for job, each in JOBS.items()})
    # without what is at its default there would be nothing to read
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    told = "\n".join(each for each in lines if not each.startswith("#")) + "\n"
    return [Original({"s.toml": told.encode()}, "s.toml", ("s.toml",))]


def _read_settings(path: Path) -> list[Image]:
    from hushpore.runs.presets import read_settings

    read_settings(path)
    return []


def _preferences(folder: Path) -> list[Original]:
    told = b'device = "cpu"\nmemory = 4.0\nnotifications = true\nunknown = [1, 2]\n'
    last = b'[pores]\nthreshold = "li"\nminimum_voxels = 8\n[denoise]\nsteps = 20\n'
    files = {"preferences.toml": told, "last.toml": last, "presets/mine.toml": last}
    return [Original(files, "", ("preferences.toml", "last.toml", "presets/mine.toml"))]


def _read_preferences(path: Path) -> list[Image]:
    """Read preferences, what was last used, and presets; of which only the last may be refused."""
    from hushpore.base.preferences import FOLDER, load_preferences
    from hushpore.jobs import JOBS
    from hushpore.runs.presets import list_presets, names_to_choose, read_preset, remembered

    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(path)
    try:
        load_preferences()
        for job, known in JOBS.items():
            remembered(job, known.settings)
            names_to_choose(job)
        for name in list_presets():
            read_preset(name)
    finally:
        os.environ.pop(FOLDER)
        if before is not None:
            os.environ[FOLDER] = before
    return []


#: All kinds, by name.
KINDS: dict[str, Kind] = {
    "DICOM": Kind(_dicom, of_dicom),
    "DICOM series": Kind(_series, of_dicom),
    "DICOM, multi-frame": Kind(_frames, of_dicom),
    "DICOMDIR": Kind(_dicomdir, of_dicom),
    "TIFF": Kind(_tiff, of_tiff),
    "OME-TIFF": Kind(_ome_tiff, of_tiff),
    "Zarr 2": Kind(partial(_zarr, version=2), of_json),
    "Zarr 3": Kind(partial(_zarr, version=3), of_json),
    "NIfTI": Kind(_nifti, of_fields),
    "MetaImage": Kind(_meta_image, of_lines),
    "NRRD": Kind(_nrrd, of_bytes_alone),
    "Scanco ISQ": Kind(_isq, of_bytes_alone),
    "Volume Graphics": Kind(_volume_graphics, of_lines),
    "raw": Kind(_raw, of_json),
    "NumPy": Kind(_numpy, of_words),
    "model": Kind(_model, of_safetensors, _read_model),
    "record": Kind(_record, of_json, _read_record),
    "settings": Kind(_settings, of_lines, _read_settings),
    "preferences and presets": Kind(_preferences, of_lines, _read_preferences),
}


# ---- mutants


class Mutants:
    """The mutants of one kind.

    `folder`: where they are made, one after the other; empty.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._folder = KINDS[kind], folder
        (folder / "made").mkdir()
        self.originals = self.kind.originals(folder / "made")
        self.expected = [self.kind.read(self.written(each, each.files)) for each in self.originals]

    def make(self, seed: int) -> Mutant:
        """Make the mutant of a number in place of the one before."""
        rng = random.Random(seed)
        number = rng.randrange(len(self.originals))
        original = self.originals[number]
        name = rng.choice(original.damaged)
        content, what = original.files[name], "bytes"
        changed = content
        if rng.random() < 0.5:
            # not every file has a structure (a chunk), and pydicom does not write all that is odd
            with contextlib.suppress(Exception):
                changed, what = self.kind.structure(content, rng), "structure"
        if changed == content and content:
            changed, what = of_bytes(content, rng), "bytes"
        whole = what == "structure" or self._holds_pixels(number, name, changed)
        path = self.written(original, {**original.files, name: changed})
        return Mutant(path, f"{what} of {name}", whole, number)

    def _holds_pixels(self, number: int, name: str, changed: bytes) -> bool:
        """Whether the pixels of an image, as they lie there uncompressed, are still there."""
        images = self.expected[number]
        if len(images) != 1 or images[0].values not in self.originals[number].files[name]:
            return False
        return images[0].values in changed

    def written(self, original: Original, files: dict[str, bytes]) -> Path:
        """Write files in place of those of an original; returns what is opened."""
        place = self._folder / "scan"
        shutil.rmtree(place, ignore_errors=True)
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        return place / original.opened if original.opened else place

    def outcome(self, mutant: Mutant) -> str:
        """Read a mutant, and say what came of it; any error but one of hushpore's is raised."""
        try:
            images = self.kind.read(mutant.path)
        except HushporeError:
            return "refused"
        expected = self.expected[mutant.original]
        if not mutant.whole or not expected:
            return "read"
        known = {note for each in expected for note in each.notes}
        if any(note not in known for each in images for note in each.notes):
            return "read, with a note"
        return _difference(images, expected)


def _difference(images: list[Image], expected: list[Image]) -> str:
    """Say in what images are others than they should be, of which no note tells."""
    if len(images) != len(expected):
        # which is listed, and said where one of them is taken
        return "read, as another number of images"
    pairs = list(zip(images, expected, strict=True))
    if any(one.values != other.values for one, other in pairs):
        return "other pixels without a note"
    if any((one.shape, one.dtype) != (other.shape, other.dtype) for one, other in pairs):
        return "another shape or type without a note"
    if any(one.spacing != other.spacing for one, other in pairs):
        return "another spacing without a note"
    return "read, the same"
