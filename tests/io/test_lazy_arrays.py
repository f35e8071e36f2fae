import copy
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hushpore.base.volume import Volume
from hushpore.io.lazy_arrays import PlaneStack

VALUES = np.arange(3 * 4 * 5 * 6).reshape(3, 4, 5, 6)


@pytest.fixture
def planes():
    flat = VALUES.reshape(-1, 5, 6)
    return PlaneStack(
        np.arange(12).reshape(3, 4), (5, 6), VALUES.dtype, lambda n, out: np.copyto(out, flat[n])
    )


@given(arrays.basic_indices(VALUES.shape))
def test_an_index_gives_what_it_gives_of_an_array(index):
    flat = VALUES.reshape(-1, 5, 6)
    stack = PlaneStack(
        np.arange(12).reshape(3, 4), (5, 6), VALUES.dtype, lambda n, out: np.copyto(out, flat[n])
    )
    np.testing.assert_array_equal(stack[index], VALUES[index])


def test_the_whole_is_an_array(planes):
    np.testing.assert_array_equal(np.asarray(planes), VALUES)
    assert np.asarray(planes, np.float32).dtype == np.float32
    assert (planes.shape, planes.ndim, planes.size, len(planes)) == ((3, 4, 5, 6), 4, 360, 3)
    assert copy.deepcopy(planes) is planes


def test_positions_of_leading_axes_are_taken_without_reading():
    read = []
    stack = PlaneStack(
        np.arange(12).reshape(3, 4), (5, 6), VALUES.dtype,
        lambda n, out: (read.append(n), np.copyto(out, VALUES.reshape(-1, 5, 6)[n])),
    )  # fmt: skip
    second = Volume(stack, axes="tzyx").at(t=1).data
    assert second.shape == (4, 5, 6)
    assert read == []
    np.testing.assert_array_equal(second[2], VALUES[1, 2])
    assert read == [6]


def test_what_it_does_not_know_is_refused(planes):
    for index in (None, [0, 1], (0, 0, 0, 0, 0)):
        with pytest.raises(IndexError):
            planes[index]
    with pytest.raises(ValueError, match="copy"):
        np.array(planes, copy=False)


def test_only_the_planes_that_are_asked_for_are_read():
    seen = []
    stack = PlaneStack(np.arange(9), (2, 2), np.dtype(int), lambda n, out: seen.append(n))
    _ = stack[2:8:3, 0]
    assert sorted(seen) == [2, 5]


def test_an_error_in_one_plane_is_raised_and_the_rest_not_read():
    seen = []

    def read(number, out):
        seen.append(number)
        raise OSError("damaged")

    stack = PlaneStack(np.arange(1000), (2, 2), np.dtype(int), read)
    with pytest.raises(OSError, match="damaged"):
        np.asarray(stack)
    assert len(seen) < 100


def test_closing_stops_the_threads():
    seen = []
    stack = PlaneStack(np.arange(1000), (2, 2), np.dtype(int), lambda n, out: seen.append(n))
    work = stack.read_into(np.empty(stack.shape, int))
    assert next(work) == 1
    work.close()
    assert not [each for each in threading.enumerate() if "hushpore reads" in each.name]


@given(st.integers(1, 40))
def test_progress_counts_every_plane(count):
    stack = PlaneStack(np.arange(count), (1, 1), np.dtype(int), lambda n, out: out.fill(n))
    values = np.empty(stack.shape, int)
    assert list(stack.read_into(values)) == list(range(1, count + 1))
    np.testing.assert_array_equal(values[:, 0, 0], np.arange(count))
