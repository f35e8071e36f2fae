import numpy as np
import pytest
import torch

from hushpore.base.scaled import Scaled
from hushpore.base.volume import Volume
from hushpore.device.backend import Backend
from hushpore.n2v2.source import Source

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
    source = Source(Volume(Scaled(stored, slope, -1024.3)), dimensions)
    for planes in (np.arange(source.count), np.arange(source.count)[::2], np.array([0])):
        expected = source.read(planes, rows)
        there = source.put(source.stored(planes, rows), planes, Backend())
        assert there.dtype == torch.float32
        np.testing.assert_array_equal(there.numpy(), expected)


def test_the_integers_themselves_go_to_the_device():
    stored = np.zeros((7, 6, 5), np.int16)
    for dimensions in (2, 3):
        source = Source(Volume(Scaled(stored, 2, -1024)), dimensions)
        assert source.stored(np.arange(source.count)).nbytes == stored.nbytes
