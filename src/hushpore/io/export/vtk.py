"""Export to VTK XML files for ParaView: labels as image data, the network as points and lines.

Uses a subset of the format: one piece, with appended raw data compressed with zlib; see
https://docs.vtk.org/en/latest/vtk_file_formats/vtkxml_file_format.html.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.arrays import Array, UInt8s
    from hushpore.io.export import PoreResult

_BLOCK = 1 << 20  # bytes per compressed block
_TYPES = {
    **{f"i{size}": f"Int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"UInt{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"Float{8 * size}" for size in (4, 8)},
}


def write_vti(path: Path, result: PoreResult) -> None:
    """Write the labels as VTK image data: one value per cell, in the order x, y, z."""
    labels = result.labels
    missing = 3 - labels.n_spatial
    shape = (1,) * missing + labels.shape
    spacing = (labels.spacing[-1],) * missing + labels.spacing
    origin = (0.0,) * missing + labels.origin
    # voxels are cells, but the origin of a volume is the centre of a voxel
    corner = [place - step / 2 for place, step in zip(origin, spacing, strict=True)]
    extent = " ".join(f"0 {length}" for length in reversed(shape))
    values = _Values()
    cells = values.add("label", labels.array())
    body = (
        f'<ImageData WholeExtent="{extent}" Origin="{_numbers(corner)}" '
        f'Spacing="{_numbers(spacing)}"><Piece Extent="{extent}">'
        f"<CellData>{cells}</CellData></Piece></ImageData>"
    )
    _write(path, "ImageData", body, values)


def write_vtp(path: Path, result: PoreResult) -> None:
    """Write the network as VTK poly data: a point at each pore centroid, a line for each throat.

    Points and lines have all columns of the tables. Coordinates have the unit of the scan.
    """
    pores, throats = result.pores, result.throats
    values = _Values()
    centre = pores[["centroid_x", "centroid_y", "centroid_z"]].to_numpy(np.float64)
    ends = throats[["pore_1", "pore_2"]].to_numpy(np.int64)
    lines = np.searchsorted(pores["label"].to_numpy(np.int64), ends)
    of_pores = "".join(values.add(name, pores[name].to_numpy()) for name in pores)
    of_throats = "".join(values.add(name, throats[name].to_numpy()) for name in throats)
    points = values.add("Points", centre)
    connectivity = values.add("connectivity", lines)
    offsets = values.add("offsets", 2 * np.arange(1, len(lines) + 1))
    body = (
        f'<PolyData><Piece NumberOfPoints="{len(centre)}" NumberOfVerts="0" '
        f'NumberOfLines="{len(lines)}" NumberOfStrips="0" NumberOfPolys="0">'
        f"<PointData>{of_pores}</PointData><CellData>{of_throats}</CellData>"
        f"<Points>{points}</Points><Lines>{connectivity}{offsets}</Lines></Piece></PolyData>"
    )
    _write(path, "PolyData", body, values)


class _Values:
    """Appended data of the file, and the XML elements that refer to them."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self._length = 0

    def add(self, name: str, values: Array) -> str:
        """Append an array, and return its XML element; points have three components."""
        flat = values.view(np.uint8) if values.dtype == np.bool_ else values
        little = np.ascontiguousarray(flat, flat.dtype.newbyteorder("<"))
        kind = _TYPES[little.dtype.str[1:]]
        components = 3 if name == "Points" else 1
        element = (
            f'<DataArray type="{kind}" Name={quoteattr(name)} NumberOfComponents="{components}" '
            f'format="appended" offset="{self._length}"/>'
        )
        blob = _compressed(little.reshape(-1).view(np.uint8))
        self.blobs.append(blob)
        self._length += len(blob)
        return element


def _compressed(data: UInt8s) -> bytes:
    """Return compressed blocks after a header with their number and sizes."""
    blocks = [
        zlib.compress(data[start : start + _BLOCK].data, 1) for start in range(0, data.size, _BLOCK)
    ]
    head = [len(blocks), _BLOCK, data.size % _BLOCK, *map(len, blocks)]
    return np.array(head, "<u8").tobytes() + b"".join(blocks)


def _write(path: Path, kind: str, body: str, values: _Values) -> None:
    head = (
        f'<?xml version="1.0"?>\n<VTKFile type="{kind}" version="1.0" byte_order="LittleEndian" '
        f'header_type="UInt64" compressor="vtkZLibDataCompressor">{body}'
        '<AppendedData encoding="raw">_'
    )
    with path.open("wb") as file:
        file.write(head.encode())
        file.writelines(values.blobs)
        file.write(b"</AppendedData></VTKFile>\n")


def _numbers(values: Any) -> str:
    return " ".join(repr(float(value)) for value in reversed(tuple(values)))
