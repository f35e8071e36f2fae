"""Small scans in the formats of lab scanners, for tests of what all of them have in common."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parent))
ole_bytes = import_module("ole_files").ole_bytes

#: Number of slices, rows and columns.
SHAPE = (5, 6, 7)


@dataclass(frozen=True)
class LabFormat:
    """How a scan of a format is written, opened and made to state another size.

    `write`: writes values into a folder; with a factor, the header states that many more slices or
    pixels than there are. `opened`: what is opened, in that folder. `voxels`: the file that holds
    the values, or the first of them. `beside`: the file that must lie beside it; empty if none.
    """

    write: Callable[[Path, np.ndarray, int], None]
    opened: str
    voxels: str
    beside: str = ""


def _hdf5(folder: Path, values: np.ndarray, factor: int) -> None:
    with pytest.importorskip("h5py").File(folder / "scan.h5", "w") as file:
        shape = (values.shape[0], *(factor * n for n in values.shape[1:]))
        stored = file.create_dataset("volume", shape, values.dtype, chunks=(1, *shape[1:]))
        if factor == 1:
            stored[...] = values


def _skyscan(folder: Path, values: np.ndarray, factor: int) -> None:
    image = pytest.importorskip("PIL.Image")
    (folder / "core").mkdir()
    for number, plane in enumerate(values):
        path = folder / "core" / f"core__rec{number:08d}.bmp"
        image.fromarray(plane.astype(np.uint8)).save(path)
        content = bytearray(path.read_bytes())
        # width and height in the header of a bitmap
        sizes = struct.unpack_from("<2i", content, 18)
        struct.pack_into("<2i", content, 18, *(factor * n for n in sizes))
        path.write_bytes(content)
    (folder / "core" / "core__rec.log").write_text(
        "[System]\nScanner=SkyScan1172\n[Reconstruction]\nPixel Size (um)=2.5\n"
    )


def _txm(folder: Path, values: np.ndarray, factor: int) -> None:
    depth, rows, columns = values.shape
    numbers: dict[str, Any] = {
        "ImageWidth": factor * columns, "ImageHeight": factor * rows, "NoOfImages": depth,
        "DataType": 5,
    }  # fmt: skip
    streams = {f"ImageInfo/{name}": struct.pack("<i", n) for name, n in numbers.items()}
    streams["ImageInfo/pixelsize"] = struct.pack("<f", 2.5)
    for number, plane in enumerate(values, start=1):
        streams[f"ImageData1/Image{number}"] = plane.astype("<u2").tobytes()
    (folder / "scan.txm").write_bytes(ole_bytes(streams))


def _isq(folder: Path, values: np.ndarray, factor: int) -> None:
    depth, rows, columns = values.shape
    header = bytearray(512)
    header[:16] = b"CTDATA-HEADER_V1"
    struct.pack_into("<6i", header, 44, factor * columns, factor * rows, depth, 70, 60, 50)
    struct.pack_into("<i", header, 88, 4096)
    (folder / "scan.isq").write_bytes(bytes(header) + values.astype("<i2").tobytes())


def _nrrd(folder: Path, values: np.ndarray, factor: int) -> None:
    depth, rows, columns = values.shape
    (folder / "scan.nhdr").write_text(
        "NRRD0004\ntype: uint16\ndimension: 3\nendian: little\nencoding: raw\n"
        f"sizes: {factor * columns} {factor * rows} {depth}\nspacings: 2.5 2.5 2.5\n"
        "data file: scan.raw\n"
    )
    (folder / "scan.raw").write_bytes(values.astype("<u2").tobytes())


def _with_header(name: str, header: str, dtype: str) -> Callable[[Path, np.ndarray, int], None]:
    """Return a writer of raw voxels with a header of text."""

    def write(folder: Path, values: np.ndarray, factor: int) -> None:
        depth, rows, columns = values.shape
        text = header.format(x=factor * columns, y=factor * rows, z=depth)
        (folder / name).write_text(text)
        (folder / "scan.vol").write_bytes(values.astype(dtype).tobytes())

    return write


_VGI = """{{volume1}}
[representation]
size = {x} {y} {z}
datatype = unsigned integer
bitsperelement = 16
[file1]
SkipHeader = 0
FileFormat = raw
Size = {x} {y} {z}
Name = scan.vol
Datatype = unsigned integer
BitsPerElement = 16
{{volumeprimitive12}}
[geometry]
resolution = 0.0025 0.0025 0.0025
unit = mm
[volume]
volume = volume1
"""
_XTEK = """[XTekCT]
VoxelsX={x}
VoxelsY={y}
VoxelsZ={z}
VoxelSizeX=0.0025
VoxelSizeY=0.0025
VoxelSizeZ=0.0025
"""
_PCR = """[VolumeData]
Volume_SizeX={x}
Volume_SizeY={y}
Volume_SizeZ={z}
Format=5
VoxelSizeRec=0.0025
"""
_PYHST = """NUM_X = {x}
NUM_Y = {y}
NUM_Z = {z}
voxelSize = 2.5
BYTEORDER = LOWBYTEFIRST
"""

FORMATS = {
    "HDF5": LabFormat(_hdf5, "scan.h5", "scan.h5"),
    "SkyScan": LabFormat(_skyscan, "core", "core/core__rec00000000.bmp"),
    "Zeiss TXM": LabFormat(_txm, "scan.txm", "scan.txm"),
    "Scanco ISQ": LabFormat(_isq, "scan.isq", "scan.isq"),
    "NRRD": LabFormat(_nrrd, "scan.nhdr", "scan.raw", "scan.raw"),
    **{
        name: LabFormat(_with_header(file, text, dtype), file, "scan.vol", "scan.vol")
        for name, file, text, dtype in (
            ("Volume Graphics", "scan.vgi", _VGI, "<u2"),
            ("X-Tek", "scan.xtekct", _XTEK, "<f4"),
            ("phoenix", "scan.pcr", _PCR, "<u2"),
            ("PyHST", "scan.vol.info", _PYHST, "<f4"),
        )
    },
}
