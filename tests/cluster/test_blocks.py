"""What tasks share is there whole or not at all, and is read across the slabs it lies in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from hushpore import InputError, Volume
from hushpore.cluster.blocks import Blocks, Plan, load_arrays, save_arrays
from hushpore.io.zarr import write_zarr
from hushpore.io.zarr_reader import open_zarr
from hushpore.pores.settings import PoreSettings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    image = write_zarr(tmp_path / "scan.ome.zarr", Volume(np.zeros((10, 4, 3), np.uint8)))
    folder = str(tmp_path)
    return Plan(open_zarr(image)[0], folder, folder, PoreSettings(), (10, 4, 3), 4, 10, bands=3)


def test_slices_are_read_from_all_slabs_that_they_lie_in(
    plan: Plan, rng: np.random.Generator
) -> None:
    values = rng.integers(0, 1000, plan.shape).astype(np.int32)
    with Blocks(plan) as blocks:
        for slab, (first, last) in enumerate(plan.slabs):
            blocks.write("basins", slab, values[first:last])
        for first, last in ((0, 10), (3, 5), (-2, 9), (8, 12), (4, 8), (7, 8)):
            found = blocks.read("basins", first, last)
            np.testing.assert_array_equal(found, values[max(first, 0) : last])


def test_basins_take_a_part_of_a_byte_on_disk(plan: Plan, tmp_path: Path) -> None:
    plan = dataclasses.replace(plan, shape=(10, 64, 64))
    basins = np.zeros((4, 64, 64), np.int32)
    basins[1:, 10:50, 10:50] = np.arange(70_000, 70_003)[:, np.newaxis, np.newaxis]
    with Blocks(plan) as blocks:
        blocks.write("basins", 0, basins)
        size = (tmp_path / "basins-0.slab").stat().st_size
        assert blocks.moved == size < basins.size / 10
        found = blocks.read("basins", 1, 4)
    np.testing.assert_array_equal(found, basins[1:])


def test_grey_values_lie_in_layers_of_their_own(plan: Plan, rng: np.random.Generator) -> None:
    values = rng.integers(0, 255, plan.shape, np.uint8)
    plan = dataclasses.replace(plan, layer=3)
    with Blocks(plan) as blocks:
        for number, (first, last) in enumerate(plan.layers):
            blocks.write("grey", number, values[first:last])
        stored = blocks.work.volume.data
        for key in (7, slice(2, 9), (0, slice(None, None, 2), 1), (slice(5, 7), 3)):
            np.testing.assert_array_equal(stored[key], values[key])


def test_bands_cover_all_rows_once(plan: Plan) -> None:
    rows = [row for band in range(plan.bands) for row in range(*plan.rows(band))]
    assert rows == list(range(4))


def test_a_slab_that_is_too_short_is_noticed(plan: Plan) -> None:
    with Blocks(plan) as blocks:
        blocks.write("void", 0, np.zeros((3, 4, 3), np.uint8))
        with pytest.raises(InputError, match="was changed"):
            blocks.read("void", 0, 4)


# in the first slice and the last, in where the first ends, and in the sum of the last
@pytest.mark.parametrize("at", [0, -66, -64, -1])
def test_a_slab_that_was_changed_is_refused(plan: Plan, tmp_path: Path, at: int) -> None:
    with Blocks(plan) as blocks:
        blocks.write("void", 0, np.ones((4, 4, 3), np.uint8))
        file = tmp_path / "void-0.slab"
        content = bytearray(file.read_bytes())
        content[at] ^= 4
        file.write_bytes(content)
        with pytest.raises(InputError, match="is damaged or was changed"):
            blocks.read("void", 0, 4)


def test_a_slab_that_a_loss_of_power_has_left_as_zeros_is_refused(
    plan: Plan, tmp_path: Path
) -> None:
    with Blocks(plan) as blocks:
        blocks.write("void", 0, np.zeros((4, 4, 3), np.uint8))
        file = tmp_path / "void-0.slab"
        file.write_bytes(bytes(file.stat().st_size))
        with pytest.raises(InputError, match="was changed"):
            blocks.read("void", 0, 4)


def test_tables_that_were_changed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.arrays"
    for at in (-1, 9, 0):
        save_arrays(path, {"a": np.arange(5), "b": np.zeros(0)})
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)
        with pytest.raises(InputError, match="was changed"):
            load_arrays(path, "a")
    save_arrays(path, {})
    assert load_arrays(path) == []
    path.write_bytes(b"")
    with pytest.raises(InputError, match="was changed"):
        load_arrays(path)


def test_a_file_that_is_not_complete_has_no_name(plan: Plan, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / "new"

    def write(blocks: Blocks, *, fails: bool) -> None:
        with blocks.create(path) as add:
            add(np.arange(3))
            assert not path.exists()
            if fails:
                raise ValueError("on the way")

    with Blocks(plan) as blocks:
        with pytest.raises(ValueError, match="on the way"):
            write(blocks, fails=True)
        assert list(folder.iterdir()) == []
        write(blocks, fails=False)
    np.testing.assert_array_equal(np.fromfile(path, np.int64), [0, 1, 2])


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    arrays = {
        "flags": np.array([True, False]),
        "number": np.int64(7),
        "none": np.zeros((0, 13), np.int64),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    }
    path = tmp_path / "table"
    save_arrays(path, arrays)
    assert sorted(load_file(path)) == sorted(arrays)
    for name, found in zip(arrays, load_arrays(path, *arrays), strict=True):
        np.testing.assert_array_equal(found, arrays[name])
        assert found.dtype == arrays[name].dtype
        assert found.shape == arrays[name].shape
    assert [each.name for each in tmp_path.iterdir()] == ["table"]
