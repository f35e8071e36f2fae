import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hushpore.base import rescaled as module
from hushpore.base.rescaled import Scaled, held
from hushpore.base.volume import Volume

SHAPE = (5, 4, 3)
STORED = np.random.default_rng(0).integers(-2000, 4000, SHAPE).astype(np.int16)
LINES = {
    "one line": (1.0, -1024.0),
    "a fraction": (0.3, 0.1),
    "a line a slice": (np.linspace(0.5, 2, 5), np.arange(5.0) * 0.7),
    "whole numbers a slice": (np.arange(1, 6), np.arange(5) - 1024),
}


def truth(stored, slope, intercept):
    """In float64, rounded once."""
    along = (-1, *[1] * (stored.ndim - 1))
    slope, intercept = (np.reshape(np.float64(each), along) for each in (slope, intercept))
    return (stored.astype(np.float64) * slope + intercept).astype(np.float32)


@pytest.fixture(params=LINES.values(), ids=LINES)
def line(request):
    return request.param


def test_the_values_are_those_of_the_line_rounded_once(line, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 24)
    values = np.asarray(Scaled(STORED, *line))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, truth(STORED, *line))


@given(arrays.basic_indices(SHAPE), st.sampled_from(list(LINES)))
def test_an_index_gives_what_it_gives_of_an_array(index, name):
    values = truth(STORED, *LINES[name])
    np.testing.assert_array_equal(Scaled(STORED, *LINES[name])[index], values[index])


@pytest.mark.parametrize("index", [[0, 3], np.arange(5) > 2, (slice(None), [1, 2], 0)])
def test_places_may_be_given_as_an_array(line, index):
    np.testing.assert_array_equal(Scaled(STORED, *line)[index], truth(STORED, *line)[index])


@pytest.mark.parametrize("key", [slice(1, 4), (slice(1, 3), slice(0, 2)), ...])
def test_a_part_is_of_integers_still(line, key):
    part = Scaled(STORED, *line).part(key)
    assert held(part).dtype == np.int16
    np.testing.assert_array_equal(np.asarray(part), truth(STORED, *line)[key])


def test_an_image_is_scaled_too():
    np.testing.assert_array_equal(Scaled(STORED[0], 2, 1), truth(STORED[0], 2, 1))


def test_large_numbers_lose_no_more_than_one_rounding():
    stored = np.array([[[2**31 - 1, 2**30 + 1, -(2**31)]]], np.int32)
    np.testing.assert_array_equal(Scaled(stored, 3, 7), truth(stored, 3, 7))


def test_it_computes_like_an_array(line):
    scaled, values = Scaled(STORED, *line), truth(STORED, *line)
    np.testing.assert_array_equal(scaled * 2 + 1, values * 2 + 1)
    np.testing.assert_array_equal(scaled > 0, values > 0)
    np.testing.assert_array_equal(np.sqrt(abs(scaled)), np.sqrt(abs(values)))
    np.testing.assert_array_equal(np.maximum(scaled, scaled), values)
    assert np.percentile(scaled, 3) == np.percentile(values, 3)
    assert (scaled.mean(), scaled.max(), np.min(scaled)) == (
        values.mean(), values.max(), values.min(),
    )  # fmt: skip
    np.testing.assert_array_equal(scaled.astype(np.float64), values.astype(np.float64))
    np.testing.assert_array_equal(scaled.reshape(-1), values.reshape(-1))
    scaled += 1
    np.testing.assert_array_equal(scaled, values + 1)


def test_scikit_image_and_scipy_take_it(line):
    from scipy import ndimage
    from skimage import filters

    stored = STORED[..., 0]
    scaled, values = Scaled(stored, *line), truth(stored, *line)
    np.testing.assert_array_equal(filters.gaussian(scaled, 1), filters.gaussian(values, 1))
    assert filters.threshold_otsu(scaled) == filters.threshold_otsu(values)
    np.testing.assert_array_equal(
        ndimage.median_filter(scaled, 3), ndimage.median_filter(values, 3)
    )


def test_dask_takes_it(line):
    array = pytest.importorskip("dask.array")
    lazy = array.from_array(Scaled(STORED, *line), chunks=(2, -1, -1))
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), truth(STORED, *line))


def test_it_cannot_be_written_to_but_its_copy_can():
    scaled = Scaled(STORED, 2, 1)
    with pytest.raises(TypeError, match="item assignment"):
        scaled[0] = 5
    for name in ("fill", "sort", "read_into", "levels", "flags"):
        assert not hasattr(scaled, name)
    np.array(scaled)[0] = 5
    with pytest.raises(ValueError, match="copy"):
        np.array(scaled, copy=False)


def test_a_copy_of_it_is_the_same(line):
    scaled = Scaled(STORED, *line)
    assert copy.deepcopy(scaled) is scaled
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scaled)), truth(STORED, *line))


def test_a_volume_of_it_tells_what_it_takes_and_what_it_gives():
    volume = Volume(Scaled(STORED, 1, -1024), metadata={"value_unit": "HU"})
    assert (volume.dtype, volume.nbytes) == (np.float32, STORED.nbytes)
    assert volume.facts.endswith("int16 → HU · 120 B")
    assert Volume(Scaled(STORED, 1, -1024)).facts.endswith("int16 → float32 · 120 B")
    np.testing.assert_array_equal(volume.array(), truth(STORED, 1, -1024))
