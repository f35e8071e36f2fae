from __future__ import annotations

import xml.etree.ElementTree as ET
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hushpore
from hushpore import Volume, export
from hushpore.io.export.vtk import write_vti

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.result import Pores


def contents(path: Path) -> tuple[ET.Element, dict[str, np.ndarray]]:
    """Read a file after the description of the format, by its parts."""
    head, _, appended = path.read_bytes().partition(b'<AppendedData encoding="raw">_')
    root = ET.fromstring(head + b"</VTKFile>")
    arrays = {}
    for element in root.iter("DataArray"):
        start = int(element.get("offset"))
        count, block, last = np.frombuffer(appended, "<u8", 3, start)
        sizes = np.frombuffer(appended, "<u8", int(count), start + 24)
        place = start + 24 + 8 * int(count)
        data = b""
        for size in sizes:
            data += zlib.decompress(appended[place : place + int(size)])
            place += int(size)
        assert len(data) == (count - 1) * block + (last or block) if count else not data
        kind = element.get("type").replace("Float", "f").replace("UInt", "u").replace("Int", "i")
        dtype = np.dtype(f"<{kind[0]}{int(kind[1:]) // 8}")
        arrays[element.get("Name")] = np.frombuffer(data, dtype)
    return root, arrays


def contents_of(folder: Path, volume: Volume) -> tuple[ET.Element, dict[str, np.ndarray]]:
    """Write a volume as labels, and read it."""
    write_vti(folder / "a.vti", SimpleNamespace(labels=volume))
    return contents(folder / "a.vti")


@pytest.fixture(scope="module")
def found() -> Pores:
    rng = np.random.default_rng(1)
    void = rng.random((8, 20, 30)) < 0.3
    return hushpore.segment_pores(Volume(void, spacing=(3, 2, 1), origin=(1, 2, 3), unit="um"))


def test_image_data_keeps_values_and_place(tmp_path: Path, found: Pores) -> None:
    (path,) = export(found, tmp_path / "a.vti")
    root, arrays = contents(path)
    image = root[0]
    assert image.get("WholeExtent") == "0 30 0 20 0 8"
    # the first voxel is a cell around its place
    assert image.get("Origin") == "2.5 1.0 -0.5"
    assert image.get("Spacing") == "1.0 2.0 3.0"
    np.testing.assert_array_equal(arrays["label"].reshape(8, 20, 30), found.labels)


def test_values_of_more_than_one_block_survive(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.integers(0, 2**31 - 1, (3, 512, 512), np.int32)
    _, arrays = contents_of(tmp_path, Volume(values))
    np.testing.assert_array_equal(arrays["label"], values.ravel())


@pytest.mark.parametrize("dtype", ["bool", "u1", ">u2", "i2", "u4", "i8", "f4", ">f8"])
def test_every_type_of_values_is_written(tmp_path: Path, dtype: str) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    _, arrays = contents_of(tmp_path, Volume(values))
    np.testing.assert_array_equal(arrays["label"], values.ravel())


def test_the_network_is_points_and_lines_with_the_tables(tmp_path: Path, found: Pores) -> None:
    root, arrays = contents(*export(found, tmp_path / "a.vtp"))
    piece = root[0][0]
    assert piece.get("NumberOfPoints") == str(len(found.pores))
    assert piece.get("NumberOfLines") == str(len(found.throats))
    points = arrays["Points"].reshape(-1, 3)
    np.testing.assert_array_equal(points[:, 0], found.pores["centroid_x"])
    ends = arrays["connectivity"].reshape(-1, 2)
    np.testing.assert_array_equal(ends + 1, found.throats[["pore_1", "pore_2"]])
    np.testing.assert_array_equal(arrays["volume"], found.pores["volume"])
    np.testing.assert_array_equal(arrays["area"], found.throats["area"])


@pytest.mark.needs("vtk")
def test_vtk_reads_both(tmp_path: Path, found: Pores) -> None:
    import vtk
    from vtk.util.numpy_support import vtk_to_numpy

    def read(reader: object, path: Path) -> object:
        reader.SetFileName(str(path))
        reader.Update()
        return reader.GetOutput()

    (path,) = export(found, tmp_path / "a.vti")
    image = read(vtk.vtkXMLImageDataReader(), path)
    assert image.GetCellData().GetArray("label").GetRange() == (0, found.labels.max())
    labels = vtk_to_numpy(image.GetCellData().GetArray("label"))
    np.testing.assert_array_equal(labels, found.labels.ravel())
    (path,) = export(found, tmp_path / "a.vtp")
    network = read(vtk.vtkXMLPolyDataReader(), path)
    assert network.GetNumberOfPoints() == len(found.pores)
    assert network.GetNumberOfLines() == len(found.throats)
    volume = vtk_to_numpy(network.GetPointData().GetArray("volume"))
    np.testing.assert_array_equal(volume, found.pores["volume"])
