from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.pores.slabs import Slabs
from hushpore.pores.void.grey import GreyValues
from hushpore.pores.void.threshold import find_range, make_histogram, survey

if TYPE_CHECKING:
    from hushpore.pores.parallel import KernelThreads


class Counting:
    """An array that counts how many slices are read of it."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype, self.read = values, values.shape, values.dtype, 0

    def __getitem__(self, key: slice) -> np.ndarray:
        self.read += len(self.values[key])
        return self.values[key]


@pytest.mark.parametrize(
    ("dtype", "readings"),
    [(np.uint8, 1), (">i2", 1), (np.uint16, 1), (np.int32, 2), (np.float32, 2), (np.float64, 2)],
)
def test_a_streamed_histogram_is_that_of_the_whole_in_few_readings(
    threads: KernelThreads, dtype: Any, readings: int
) -> None:
    values = np.random.default_rng(0).normal(100, 20, (11, 12, 13)).clip(3, 250).astype(dtype)
    source = Counting(values)
    grey = GreyValues(Volume(source), Slabs(11, 4, on_disk=True))
    found, histogram = result_of(survey(grey, True, threads))
    assert source.read == 11 * readings
    native = values.astype(values.dtype.newbyteorder("="))
    expected = make_histogram(native, threads)
    assert histogram is not None
    np.testing.assert_array_equal(histogram.counts, expected.counts)
    np.testing.assert_array_equal(histogram.centers, expected.centers)
    assert found == find_range(native, threads)


@pytest.mark.parametrize("on_disk", [False, True])
def test_values_are_native_and_in_c_order(on_disk: bool) -> None:
    values = np.asfortranarray(np.arange(60, dtype=">u2").reshape(5, 3, 4))
    part = GreyValues(Volume(values), Slabs(5, 2, on_disk)).read(2, 4)
    assert part.flags.c_contiguous
    assert part.dtype == np.uint16
    assert part.dtype.isnative
    np.testing.assert_array_equal(part, values[2:4])


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_image_is_read_as_one_slice(on_disk: bool) -> None:
    image = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(
        GreyValues(Volume(image), Slabs(1, 1, on_disk)).read(0, 1), image[None]
    )
