"""Files that ask for too much: small to send, made to fill memory, take hours or lead elsewhere.

Each is written with as little as its format needs. What they expand to is zeros.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Bytes that most of them expand to.
LARGE = 1 << 30
_PIECE = bytes(1 << 20)
_KINDS = {1: "B", 2: "s", 3: "H", 4: "I"}

#: Writes a file into a folder that is empty, and returns what is to be opened.
Attack = "Callable[[Path], Path]"

FILES: dict[str, Callable[[Path], Path]] = {}


def attack(name: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Enter a function in the list."""

    def enter(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        FILES[name] = make
        return make

    return enter


def deflated(size: int = 0, begin: bytes = b"", bits: int = zlib.MAX_WBITS) -> bytes:
    """Zeros after a beginning, compressed as far as zlib does."""
    stream = zlib.compressobj(9, zlib.DEFLATED, bits)
    parts = [stream.compress(begin)]
    parts += [stream.compress(_PIECE) for _ in range((size or LARGE) >> 20)]
    return b"".join([*parts, stream.flush()])


def zstd(size: int = 0) -> bytes:
    """Zeros in frames of Zstandard, each of blocks that repeat one byte; no frame says its size."""
    block = struct.pack("<I", 1 << 1 | (1 << 17) << 3)[:3] + b"\0"
    last = struct.pack("<I", 1 | 1 << 1 | (1 << 17) << 3)[:3] + b"\0"
    frame = struct.pack("<IBB", 0xFD2FB528, 0, 0x58) + 1023 * block + last
    return frame * max((size or LARGE) >> 27, 1)


# ---- TIFF


def tiff(path: Path, tags: dict[int, tuple[int, Any]], data: bytes, after: bytes = b"") -> Path:
    """Write a little-endian TIFF of one directory; offsets of strips and tiles are filled in."""
    entries, extra = b"", b""
    place = 8 + 2 + 12 * len(tags) + 4
    values = {}
    for tag, (kind, value) in tags.items():
        many = value if isinstance(value, bytes | list) else [value]
        raw = many if isinstance(many, bytes) else struct.pack(f"<{len(many)}{_KINDS[kind]}", *many)
        values[tag] = (kind, len(many), raw)
    total = place + sum(len(raw) for _, _, raw in values.values() if len(raw) > 4)
    for tag, (kind, count, raw) in sorted(values.items()):
        shown = struct.pack("<I", total) if tag in (273, 324) else raw
        if len(shown) > 4:
            extra, shown = extra + shown, struct.pack("<I", place + len(extra))
        entries += struct.pack("<HHI", tag, kind, count) + shown.ljust(4, b"\0")
    begin = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0)
    path.write_bytes((begin + extra).ljust(total, b"\0") + data + after)
    return path


def plain(size: int, compression: int, data: bytes, tile: int = 0) -> dict[int, tuple[int, Any]]:
    """Tags of a grey image of 8 bits."""
    tags = {256: (4, size), 257: (4, size), 258: (3, 8), 259: (3, compression), 262: (3, 1),
            277: (3, 1)}  # fmt: skip
    if tile:
        return {**tags, 322: (4, tile), 323: (4, tile), 324: (4, 0), 325: (4, len(data))}
    return {**tags, 273: (4, 0), 278: (4, size), 279: (4, len(data))}


def _tiff_attack(name: str, size: int, compression: int, make: Any, tile: int = 0) -> None:
    def write(folder: Path) -> Path:
        data = make()
        return tiff(folder / "a.tif", plain(size, compression, data, tile), data)

    FILES[name] = write


_tiff_attack("TIFF: a tile of 1 GB for 64 x 64 pixels", 64, 8, deflated, tile=1 << 15)
_tiff_attack("TIFF: a tile of 10^12 bytes", 64, 1, lambda: bytes(100), tile=1 << 20)
_tiff_attack("TIFF: deflate, a stream of 1 GB", 64, 8, deflated)
_tiff_attack("TIFF: LZMA, a stream of 256 MB", 64, 34925, lambda: lzma.compress(bytes(LARGE >> 2)))
_tiff_attack("TIFF: Zstandard, a stream of 1 GB", 64, 50000, zstd)
_tiff_attack("TIFF: 1 GB out of some kB", 1 << 15, 50000, zstd)
_tiff_attack("TIFF: 10^18 pixels", 10**9, 1, lambda: bytes(100))
_tiff_attack("TIFF: a compression that nobody knows", 64, 50123, lambda: bytes(100))
_png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 60000, 60000, 8, 0, 0, 0, 0)
_tiff_attack("TIFF: PNG of 60,000 x 60,000", 64, 34933, lambda: _png + bytes(100))
_j2k = b"\xff\x4f\xff\x51" + struct.pack(">HHIIIIIIIIH", 41, 0, 60000, 60000, 0, 0, 60000, 60000, 0,
                                         0, 1)  # fmt: skip
_tiff_attack("TIFF: JPEG 2000 of 60,000 x 60,000", 64, 34712, lambda: _j2k + bytes(100))
_jpeg = b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 11, 8, 60000, 60000, 1) + b"\1\x11\0"
_tiff_attack("TIFF: JPEG of 60,000 x 60,000", 64, 7, lambda: _jpeg + b"\xff\xd9")


@attack("TIFF: 50,000 images within an image")
def _sub_images(folder: Path) -> Path:
    tags = {**plain(8, 1, bytes(64)), 330: (4, [8] * 50_000)}
    return tiff(folder / "a.tif", tags, bytes(64))


@attack("TIFF: 100,000 pages of 4 x 4 pixels")
def _many_pages(folder: Path) -> Path:
    one = struct.pack("<H", 8)
    for tag, value in ((256, 4), (257, 4), (258, 8), (259, 1), (262, 1), (273, 8), (278, 4),
                       (279, 16)):  # fmt: skip
        one += struct.pack("<HHII", tag, 4, 1, value)
    begin = b"II*\0" + struct.pack("<I", 24) + bytes(16)
    nexts = (24 + (n + 1) * (len(one) + 4) for n in range(99_999))
    (folder / "a.tif").write_bytes(
        begin + b"".join(one + struct.pack("<I", each) for each in nexts) + one + bytes(4)
    )
    return folder / "a.tif"


@attack("TIFF: a page that is followed by itself")
def _cycle(folder: Path) -> Path:
    path = tiff(folder / "a.tif", plain(8, 1, bytes(64)), bytes(64))
    raw = bytearray(path.read_bytes())
    raw[8 + 2 + 12 * 9 : 8 + 2 + 12 * 9 + 4] = struct.pack("<I", 8)
    path.write_bytes(raw)
    return path


def _ome(folder: Path, inside: str, size_z: int = 1) -> Path:
    text = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" '
        'UUID="urn:uuid:1"><Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" '
        f'Type="uint8" SizeX="8" SizeY="8" SizeZ="{size_z}" SizeC="1" SizeT="1">{inside}</Pixels>'
        "</Image></OME>"
    )
    tags = {**plain(8, 1, bytes(64)), 270: (2, text.encode() + b"\0")}
    return tiff(folder / "a.ome.tif", tags, bytes(64))


@attack("OME-TIFF: 10^9 slices")
def _ome_slices(folder: Path) -> Path:
    return _ome(folder, "<TiffData/>", 10**9)


def _ome_other(name: str, where: str) -> None:
    def write(folder: Path) -> Path:
        tiff(folder.parent / "outside.tif", plain(8, 1, bytes(64)), bytes(64))
        if hasattr(os, "mkfifo"):
            os.mkfifo(folder / "pipe.tif")
        named = where.format(folder=folder.parent)
        told = f'<UUID FileName="{named}">urn:uuid:2</UUID>'
        return _ome(folder, f'<TiffData IFD="0" FirstZ="0" PlaneCount="1">{told}</TiffData>')

    FILES[name] = write


_ome_other("OME-TIFF: another file above its folder", "../outside.tif")
_ome_other("OME-TIFF: another file by its whole path", "{folder}/outside.tif")
_ome_other("OME-TIFF: a pipe as its other file", "pipe.tif")

# ---- DICOM


def dicom(path: Path, **known: Any) -> Path:
    """Write a DICOM file of 16 x 16 pixels, of which `known` is otherwise."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, "1.2.3"
    meta.TransferSyntaxUID = known.pop("syntax", ExplicitVRLittleEndian)
    whole = FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
    own = {"SOPClassUID": CTImageStorage, "SOPInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.4",
           "Modality": "CT", "Rows": 16, "Columns": 16, "BitsAllocated": 8, "BitsStored": 8,
           "HighBit": 7, "PixelRepresentation": 0, "SamplesPerPixel": 1,
           "PhotometricInterpretation": "MONOCHROME2", "PixelData": bytes(256)}  # fmt: skip
    for name, value in {**own, **known}.items():
        setattr(whole, name, value)
    if meta.TransferSyntaxUID.is_compressed:
        whole["PixelData"].is_undefined_length = True
    whole.save_as(path, enforce_file_format=True)
    return path


@attack("DICOM: 2 x 10^7 frames in 600 bytes")
def _frames(folder: Path) -> Path:
    return dicom(folder / "a.dcm", Rows=1, Columns=1, NumberOfFrames=20_000_000)


@attack("DICOM: 2 x 10^7 compressed frames in 600 bytes")
def _compressed_frames(folder: Path) -> Path:
    from pydicom.encaps import encapsulate
    from pydicom.uid import RLELossless

    known = {"syntax": RLELossless, "PixelData": encapsulate([bytes(64)])}
    return dicom(folder / "a.dcm", Rows=1, Columns=1, NumberOfFrames=20_000_000, **known)


@attack("DICOM: 10^12 pixels")
def _pixels(folder: Path) -> Path:
    return dicom(folder / "a.dcm", Rows=65535, Columns=65535, NumberOfFrames=250)


@attack("DICOM: JPEG 2000 of 60,000 x 60,000 for 16 x 16")
def _dicom_jpeg(folder: Path) -> Path:
    from pydicom.encaps import encapsulate
    from pydicom.uid import JPEG2000Lossless

    known = {"syntax": JPEG2000Lossless, "PixelData": encapsulate([_j2k + bytes(100)])}
    return dicom(folder / "a.dcm", **known)


@attack("DICOM: deflated, 1 GB before the pixels")
def _deflated(folder: Path) -> Path:
    return _deflated_file(folder, b"\x11\0\x10\0LO\4\0ABCD\x11\0\1\x10OB\0\0", b"")


@attack("DICOM: deflated, 1 GB after the pixels")
def _deflated_after(folder: Path) -> Path:
    return _deflated_file(folder, b"", b"\xe1\x7f\1\x10OB\0\0")


def _deflated_file(folder: Path, before: bytes, after: bytes) -> Path:
    whole = dicom(folder / "a.dcm").read_bytes()
    begin = 144 + int.from_bytes(whole[140:144], "little")
    uid = b"1.2.840.10008.1.2.1\0"
    meta = whole[:begin].replace(
        struct.pack("<H", 20) + uid, struct.pack("<H", 22) + b"1.2.840.10008.1.2.1.99"
    )
    meta = meta[:140] + struct.pack("<I", begin - 144 + 2) + meta[144:]
    body = whole[begin:]
    if before:
        # in front of the pixels stands a private element
        at = body.rindex(b"\xe0\x7f\x10\0")
        stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        parts = [stream.compress(body[:at] + before + struct.pack("<I", LARGE))]
        parts += [stream.compress(_PIECE) for _ in range(LARGE >> 20)]
        packed = b"".join([*parts, stream.compress(body[at:]), stream.flush()])
    else:
        packed = deflated(LARGE, body + after + struct.pack("<I", LARGE), -zlib.MAX_WBITS)
    (folder / "a.dcm").write_bytes(meta + packed)
    return folder / "a.dcm"


@attack("DICOMDIR: a file outside its folder, by a link")
def _dicomdir(folder: Path) -> Path:
    from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, MediaStorageDirectoryStorage

    dicom(folder.parent / "outside.dcm")
    (folder / "LINK").symlink_to(folder.parent / "outside.dcm")
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    meta.MediaStorageSOPInstanceUID, meta.TransferSyntaxUID = "1.2.3", ExplicitVRLittleEndian
    whole, record = FileDataset(None, {}, file_meta=meta, preamble=bytes(128)), Dataset()
    record.DirectoryRecordType, record.ReferencedFileID = "IMAGE", ["LINK"]
    whole.DirectoryRecordSequence = [record]
    whole.save_as(folder / "DICOMDIR", enforce_file_format=True)
    return folder / "DICOMDIR"


# ---- Zarr


def zarr2(folder: Path, chunk: bytes, compressor: Any, chunks: int = 16, **known: Any) -> Path:
    """Write a Zarr 2 array of 16 x 16 x 16 bytes in one chunk."""
    place = folder / "a.zarr"
    place.mkdir()
    told = {"zarr_format": 2, "shape": [16] * 3, "chunks": [chunks] * 3, "dtype": "|u1",
            "compressor": compressor, "fill_value": 0, "order": "C", "filters": None}  # fmt: skip
    (place / ".zarray").write_text(json.dumps({**told, **known}))
    (place / "0.0.0").write_bytes(chunk)
    return place


def _zarr_attack(name: str, make: Callable[[], bytes], codec: str, **known: Any) -> None:
    FILES[name] = lambda folder: zarr2(folder, make(), {"id": codec}, **known)


_zarr_attack(
    "Zarr 2: a chunk of 8 GB for 16^3 voxels", lambda: zstd(8 * LARGE), "zstd", chunks=2000
)
_zarr_attack("Zarr 2: a codec that nobody knows", lambda: bytes(99), "imagecodecs_jpeg")


class _Runs:
    """What leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def _pickle_attack(name: str, **known: Any) -> None:
    def write(folder: Path) -> Path:
        import pickle

        codec = {"id": "pickle", "protocol": 4}
        told = {key: codec if value == "pickle" else value for key, value in known.items()}
        if "filters" in known:
            told["filters"] = [codec]
        chunk = pickle.dumps(_Runs(folder.parent / "RAN"))
        return zarr2(folder, chunk, told.pop("compressor", None), **told)

    FILES[name] = write


_pickle_attack("Zarr 2: a pickle as compressor", compressor="pickle")
_pickle_attack("Zarr 2: a pickle as filter", filters="pickle")
_pickle_attack("Zarr 2: objects, pickled", filters="pickle", dtype="|O")


def _zarr3_attack(name: str, chunk: Callable[[], bytes], edge: int, codecs: list[Any]) -> None:
    def write(folder: Path) -> Path:
        place = folder / "a.zarr"
        (place / "c" / "0" / "0").mkdir(parents=True)
        (place / "c" / "0" / "0" / "0").write_bytes(chunk())
        told = {"zarr_format": 3, "node_type": "array", "shape": [16] * 3, "data_type": "uint8",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [edge] * 3}},
                "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": codecs,
                "attributes": {}}  # fmt: skip
        (place / "zarr.json").write_text(json.dumps(told))
        return place

    FILES[name] = write


_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
_zarr3_attack("Zarr 3: a chunk of 8 GB for 16^3", lambda: zstd(8 * LARGE), 2000, [_BYTES, _ZSTD])
_zarr3_attack("Zarr 3: chunks of no length", lambda: b"", 0, [_BYTES])

# ---- other formats


def nifti(shape: tuple[int, int, int]) -> bytes:
    """Return the header of a NIfTI image of 8 bits."""
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *shape, 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, 2, 8)
    struct.pack_into("<8f", header, 76, *[1] * 8)
    struct.pack_into("<3f", header, 108, 352, 1, 0)
    header[344:348] = b"n+1\0"
    return bytes(header)


def _written(name: str, file: str, make: Callable[[], bytes]) -> None:
    def write(folder: Path) -> Path:
        (folder / file).write_bytes(make())
        return folder / file

    FILES[name] = write


def _meta(size: int, **known: str) -> bytes:
    told = {"ObjectType": "Image", "NDims": "3", "DimSize": f"{size} {size} {size}",
            "ElementType": "MET_UCHAR", **known, "ElementDataFile": "LOCAL"}  # fmt: skip
    return "".join(f"{key} = {value}\n" for key, value in told.items()).encode()


_written("NIfTI: 1 GB, compressed", "a.nii.gz",
         lambda: deflated(0, nifti((1024, 1024, 1024)), 31))  # fmt: skip
_written("NIfTI: a stream of 1 GB for 64 voxels", "a.nii.gz",
         lambda: deflated(0, nifti((4, 4, 4)), 31))  # fmt: skip
_written("NIfTI: 30,000^3 voxels in 4 kB", "a.nii", lambda: nifti((30_000,) * 3) + bytes(4000))
_written("NIfTI: lengths below zero", "a.nii", lambda: nifti((-5, 4, 4)) + bytes(4000))
_written("MetaImage: 1 GB, compressed", "a.mha",
         lambda: _meta(1024, CompressedData="True") + deflated())  # fmt: skip
_written("MetaImage: damaged compression", "a.mha",
         lambda: _meta(16, CompressedData="True") + b"\x78\xda" + bytes(range(200)))  # fmt: skip
_written("MetaImage: 70 axes", "a.mha",
         lambda: _meta(1, NDims="70").replace(b"1 1 1", b"1 " * 70) + bytes(99))  # fmt: skip
_written("MetaImage: a number of 5,000 digits", "a.mha",
         lambda: _meta(4, NDims="9" * 5000) + bytes(99))  # fmt: skip
_written("MetaImage: a spacing of nan", "a.mha",
         lambda: _meta(4, ElementSpacing="nan inf -1") + bytes(99))  # fmt: skip


def _npy(header: str, data: bytes = bytes(400)) -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


_NPY = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}"
for _name, _header in {
    "NumPy: objects, pickled": _NPY.format("'|O'", "(2, 4, 4)"),
    "NumPy: 10^18 values": _NPY.format("'<u2'", "(1000000, 1000000, 1000000)"),
    "NumPy: a header that does not end": "{'descr': '<u2', 'shape': (((",
    "NumPy: 70 axes": _NPY.format("'<u2'", "(" + "1, " * 70 + ")"),
    "NumPy: lengths below zero": _NPY.format("'<u2'", "(-2, 4, 4)"),
    "NumPy: a header that computes": _NPY.format("'<u2'", "(2**60, 4, 4)"),
}.items():
    _written(_name, "a.npy", lambda header=_header: _npy(header))


def _raw_attack(name: str, text: str) -> None:
    def write(folder: Path) -> Path:
        (folder / "a.json").write_text(text)
        (folder / "a.raw").write_bytes(bytes(4000))
        return folder / "a.raw"

    FILES[name] = write


for _name, _text in {
    "JSON: nested 100,000 deep": "[" * 100_000,
    "JSON: a list": "[1, 2]",
    "JSON: null": "null",
    "JSON: infinitely long": '{"shape": [Infinity, 4, 4], "dtype": "<u2"}',
    "JSON: 70 axes": json.dumps({"shape": [1] * 70, "dtype": "<u1"}),
    "JSON: a length of 5,000 digits": '{"shape": [' + "9" * 5000 + ', 4, 4], "dtype": "<u2"}',
    "JSON: a type within a type": json.dumps({"shape": [4] * 3, "dtype": "(100000,100000)u1"}),
    "JSON: objects": json.dumps({"shape": [4] * 3, "dtype": "O"}),
    "JSON: a list as unit": json.dumps({"shape": [4] * 3, "dtype": "<u2", "unit": [1]}),
    "JSON: a number as axes": json.dumps({"shape": [4] * 3, "dtype": "<u2", "axes": 5}),
    "JSON: half a character": '{"shape": [4, 4, 4], "dtype": "<u2", "unit": "\\ud800"}',
    "JSON: an offset below zero": json.dumps({"shape": [4] * 3, "dtype": "<u2", "offset": -9}),
    "JSON: an offset of 10^30": json.dumps({"shape": [4] * 3, "dtype": "<u2", "offset": 10**30}),
}.items():
    _raw_attack(_name, _text)


@attack("a pipe that is named like a scan")
def _named_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.tif")
    return folder / "a.tif"


@attack("gzip named like NIfTI that is something else")
def _not_nifti(folder: Path) -> Path:
    (folder / "a.nii.gz").write_bytes(gzip.compress(bytes(10_000)))
    return folder / "a.nii.gz"


@attack("NumPy: cut off behind its header")
def _cut(folder: Path) -> Path:
    content = io.BytesIO()
    np.save(content, np.zeros((8, 8, 8)))
    (folder / "a.npy").write_bytes(content.getvalue()[:1000])
    return folder / "a.npy"
