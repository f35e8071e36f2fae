"""Which image a cluster takes of what it is given, and how a record names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore.base.events import result_of
from hushpore.base.volume import Volume
from hushpore.io import read, read_all

zarr = pytest.importorskip("zarr")
pytest.importorskip("distributed")

from hushpore.cluster.blocks import as_source, as_zarr, source_of  # noqa: E402
from hushpore.io.zarr import write_zarr  # noqa: E402
from hushpore.runs.scan_recipe import ScanRecipe  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A folder of two images, of which the second is the largest."""
    folder = tmp_path / "several.zarr"
    zarr.open_group(str(folder), mode="w", zarr_format=3)
    for name, depth in (("overview", 2), ("scan", 6)):
        values = np.arange(depth * 2 * 64, dtype=np.uint8).reshape(depth, 2, 8, 8)
        write_zarr(folder / name, Volume(values, axes="tzyx", name=name))
    return folder


def test_of_several_images_a_record_names_the_one_that_was_taken(several: Path) -> None:
    for volume in read_all(several, lazy=True):
        source = source_of(volume)
        assert source is not None
        assert source.read().name == volume.name


def test_of_several_images_the_largest_is_taken_as_on_one_machine(
    several: Path, tmp_path: Path
) -> None:
    scan = result_of(as_zarr(as_source(several, None, False), tmp_path))
    assert scan.name == read(several).name == "scan"


def test_how_a_scan_is_read_is_heeded_where_it_lies(several: Path, tmp_path: Path) -> None:
    reading = ScanRecipe(str(several), series="overview", at=("t=1",), voxel_size="5um")
    scan = result_of(as_zarr(reading, tmp_path))
    assert (scan.axes, scan.spacing, scan.unit) == ("zyx", (5, 5, 5), "um")
    np.testing.assert_array_equal(scan.array(), reading.read().array())
    # nothing was converted
    assert [item.name for item in tmp_path.iterdir()] == ["several.zarr"]


def test_a_box_of_an_image_is_converted_alone(several: Path, tmp_path: Path) -> None:
    reading = ScanRecipe(str(several), series="overview", at=("t=1",), crop="1:,:,2:4", bin="1,1,2")
    scan = result_of(as_zarr(reading, tmp_path))
    np.testing.assert_array_equal(scan.array(), reading.read().array())
    assert scan.shape[2] == 1
    assert "scan.ome.zarr" in [item.name for item in tmp_path.iterdir()]
