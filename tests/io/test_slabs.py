import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import lazy_arrays as module
from hushpore.io import read
from hushpore.io.lazy_arrays import PlaneStack, slabs
from hushpore.io.results import write_image


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(1, 9))
def test_slabs_cover_every_voxel_once_and_in_order(shape, depth):
    values = np.arange(np.prod(shape)).reshape(shape)
    seen = np.concatenate([part.ravel() for _, part in slabs(values, depth=depth)])
    np.testing.assert_array_equal(seen, values.ravel())
    for index, part in slabs(values, depth=depth):
        np.testing.assert_array_equal(values[index], part)


def test_a_slab_takes_whole_chunks_of_bounded_size(monkeypatch):
    dask = pytest.importorskip("dask.array")
    monkeypatch.setattr(module, "SLAB", 7 * 20 * 20 * 8)
    chunked = dask.zeros((24, 20, 20), chunks=(3, 20, 20))
    assert [len(part) for _, part in slabs(chunked)] == [6, 6, 6, 6]


class Counted:
    """Planes on disk that count how often each is decoded, and how many are held at once."""

    def __init__(self, count):
        self.values = np.random.default_rng(0).normal(0, 9, (count, 64, 50)).astype(np.float32)
        self.decoded = np.zeros(count, int)
        self.planes = PlaneStack(np.arange(count), (64, 50), np.dtype(np.float32), self.read)
        self.most = 0
        original = self.planes._fill

        def filling(numbers, values, within):
            self.most = max(self.most, len(numbers))
            return original(numbers, values, within)

        self.planes._fill = filling

    def read(self, number, out):
        self.decoded[number] += 1
        out[...] = self.values[number]


@pytest.mark.parametrize("name", ["scan.tif", "scan.zarr"])
def test_a_stack_on_disk_is_written_slab_by_slab_and_decoded_once(tmp_path, monkeypatch, name):
    if name.endswith("zarr"):
        pytest.importorskip("zarr")
        from hushpore.io import zarr as writer

        monkeypatch.setattr(writer, "_PIECE", 10 * 64 * 50 * 4)
    monkeypatch.setattr(module, "SLAB", 10 * 64 * 50 * 4)
    stack = Counted(95)
    volume = Volume(stack.planes, spacing=(2, 1, 1), unit="um", origin=(1, 2, 3), name="scan")
    path = write_image(tmp_path / name, volume)
    assert (stack.decoded == 1).all()
    assert stack.most == 10
    back = read(path)
    np.testing.assert_array_equal(back.data, stack.values)
    assert (back.spacing, back.unit, back.origin) == ((2, 1, 1), "um", (1, 2, 3))


@pytest.mark.parametrize("dtype", [">u2", "bool", "int64", "float16", "int32"])
def test_a_memory_map_of_any_type_is_written_as_an_array_would_be(tmp_path, dtype):
    values = np.random.default_rng(0).integers(0, 2, (6, 20, 30)).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    lazy = np.load(tmp_path / "a.npy", mmap_mode="r")
    written = write_image(tmp_path / "a.tif", Volume(lazy, spacing=1, unit="mm"))
    np.testing.assert_array_equal(tifffile.imread(written), values)


def test_an_error_on_the_way_leaves_nothing_behind(tmp_path):
    def read_or_fail(number, out):
        if number == 20:
            raise OSError(5, "the disk is gone")
        out[...] = 0

    planes = PlaneStack(np.arange(40), (8, 8), np.dtype(np.uint16), read_or_fail)
    with pytest.raises(OSError, match=r"a\.tif"):
        write_image(tmp_path / "a.tif", Volume(planes))
    with pytest.raises(InputError, match=r"The volume cannot be read: the disk is gone\."):
        write_image(tmp_path / "a.zarr", Volume(planes))
    assert list(tmp_path.iterdir()) == []
