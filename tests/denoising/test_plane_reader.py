import numpy as np
import pytest
import torch

from hushpore.base.errors import InputError
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.denoising.plane_reader import PlaneReader, Scale, measure_scale
from hushpore.device.backend import Backend

SHAPES = [(7, 6, 5), (6, 5), (2, 4, 6, 5)]


@pytest.mark.parametrize(
    ("shape", "dimensions"),
    # an image has no third axis
    [(shape, each) for shape in SHAPES for each in (2, 3) if each <= len(shape)],
)
@pytest.mark.parametrize("line", ["one", "a slice"])
@pytest.mark.parametrize("rows", [slice(None), slice(1, 4)])
def test_integers_of_a_scanner_give_on_the_device_what_is_read(rng, shape, dimensions, line, rows):
    stored = rng.integers(-1000, 3000, shape).astype(np.int16)
    slope = 1.0 if line == "one" else np.linspace(0.5, 2, shape[0])
    source = PlaneReader(Volume(Scaled(stored, slope, -1024.3)), dimensions)
    for planes in (np.arange(source.count), np.arange(source.count)[::2], np.array([0])):
        expected = source.read(planes, rows)
        there = source.put(source.stored(planes, rows), planes, Backend())
        assert there.dtype == torch.float32
        np.testing.assert_array_equal(there.numpy(), expected)


def test_the_integers_themselves_go_to_the_device():
    stored = np.zeros((7, 6, 5), np.int16)
    for dimensions in (2, 3):
        source = PlaneReader(Volume(Scaled(stored, 2, -1024)), dimensions)
        assert source.stored(np.arange(source.count)).nbytes == stored.nbytes


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [(np.uint16, 0), (np.float64, 0), (np.int32, 10**8), (np.uint32, 10**8), (np.float64, -1e8),
     (np.int64, 10**9), (np.dtype(">i4"), 10**8)],
)  # fmt: skip
def test_an_offset_costs_the_network_no_digits(rng, dtype, offset):
    values = rng.integers(0, 1000, (3, 20, 20))
    source = PlaneReader(Volume((values + offset).astype(dtype)), 2)
    scale, planes = measure_scale(source), np.arange(3)
    there = source.put(source.stored(planes), planes, Backend())
    found = scale.normalise(there, source.channels)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, (values - values.mean()) / values.std(), atol=1e-6)
    assert bool(scale.coarseness) == (abs(offset) > 0)


@pytest.mark.parametrize("mean", [1.0, -8191.5, 1e8, 4e9, -3e-20])
def test_the_steps_of_results_are_those_of_float32(mean):
    assert Scale((0.0, mean), (1.0, 2.0)).step == np.spacing(np.float32(abs(mean))) / 2


def test_grey_values_that_float32_cannot_tell_apart_are_refused(rng):
    values = rng.integers(0, 500, (3, 20, 20)) + 4 * 10**9
    with pytest.raises(InputError, match=r"steps of 256 there\. Subtract 4e\+09 from"):
        measure_scale(PlaneReader(Volume(values.astype(np.uint32), name="scan"), 2))
