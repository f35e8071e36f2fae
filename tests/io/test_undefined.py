"""Fill value in place of NaN, in memory and on disk."""

from __future__ import annotations

import numpy as np
import pytest

from hushpore.base.volume import Volume
from hushpore.io import read_all
from hushpore.io.undefined import Filled, with_fill_value
from hushpore.io.zarr import write_zarr


def reconstruction(ramp):
    values = ramp.astype(np.float32)
    values[:, :2, :2], values[:, -1, -1] = np.nan, -np.inf
    return values


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_a_scan_on_disk_is_filled_lazily_with_the_value_of_one_in_memory(tmp_path, ramp, suffix):
    values = reconstruction(ramp)
    path = tmp_path / f"scan{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    else:
        write_zarr(path, Volume(values))
    (volume,) = read_all(path, lazy=True)
    found, expected = with_fill_value(volume), with_fill_value(Volume(values.copy()))
    assert isinstance(found.data, Filled)
    np.testing.assert_array_equal(found.array(), expected.array())
    np.testing.assert_array_equal(found.data[1:3, ::2, -1], expected.data[1:3, ::2, -1])
    assert found.metadata["padding_value"] == expected.metadata["padding_value"] < values[2, 3, 3]
    assert found.notes[-1] == expected.notes[-1]
    into = np.empty(values.shape, np.float32)
    assert list(found.data.read_into(into))[-1] == len(values)
    np.testing.assert_array_equal(into, expected.array())


def test_a_scan_on_disk_without_nan_is_returned_after_three_slices(tmp_path, ramp):
    np.save(tmp_path / "scan.npy", ramp.astype(np.float32))
    (volume,) = read_all(tmp_path / "scan.npy", lazy=True)
    read = []
    original = type(volume.data)._read_part

    def counted(self, keys):
        read.append(keys)
        return original(self, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(volume.data), "_read_part", counted)
        assert with_fill_value(volume) is volume
    assert len(read) == 3
