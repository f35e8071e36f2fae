"""A volume that is predicted block by block is the one that is predicted at once, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from hushpore.base.volume import Volume
from hushpore.denoising.inference import blocks, volumes
from hushpore.denoising.inference.blocks import BlockPredictor
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.trained_model import Model
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer


def model_of(architecture, n_channels=1, **more):
    network = build_network(architecture, torch.Generator().manual_seed(1)).eval()
    return Model(network, (100.0,) * n_channels, (30.0,) * n_channels, **more)


def blocks_of(shape, size):
    leading = shape[: len(shape) - len(size)]
    for index in np.ndindex(leading):
        cuts = [
            [slice(start, min(start + edge, n)) for start in range(0, n, edge)]
            for n, edge in zip(shape[len(leading) :], size, strict=True)
        ]
        for where in itertools.product(*cuts):
            yield (*index, *where)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    cores = {2: (2, 32, 32), 3: (1, 8, 16, 16)}
    for module in (volumes, blocks):
        monkeypatch.setattr(module, "CORES", cores)


CASES = {
    "slices": ((9, 34, 37), "zyx", Architecture(2, features=4), {}),
    "one image": ((70, 37), "yx", Architecture(2, features=4), {}),
    "slices beside": ((9, 34, 37), "zyx", Architecture(2, features=4, inputs=3), {"context": 1}),
    "volume": ((11, 18, 21), "zyx", Architecture(3, features=4), {}),
    "flat volume": ((9, 18, 21), "zyx", Architecture(3, features=4, flat=True), {}),
    "time": ((2, 3, 34, 21), "tzyx", Architecture(2, features=4), {}),
    "channels": ((2, 3, 34, 21), "czyx", Architecture(2, features=4), {}),
    "channels together": (
        (2, 3, 34, 21), "czyx", Architecture(2, features=4, inputs=2, outputs=2),
        {"channels": "together"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_blocks_make_up_what_is_predicted_at_once(name, rng):
    shape, axes, architecture, more = CASES[name]
    values = rng.integers(0, 200, shape).astype(np.uint16)
    volume = Volume(values, axes=axes)
    model = model_of(architecture, 2 if "c" in axes else 1, **more)
    expected = model.predict(volume, "cpu", test_time_augmentation=False).data
    size = (8, 16, 16) if model.network.dimensions == 3 else (8, 32, 32)[-volume.n_spatial :]
    predictor = BlockPredictor(model, volume, Backend(), StageTimer())
    found = np.full(shape, np.nan, np.float32)
    for block in blocks_of(shape, size):
        found[block], (noisy,) = predictor.predict(block)
        np.testing.assert_array_equal(noisy, values[block])
    np.testing.assert_array_equal(found, expected)


def test_only_what_a_block_needs_is_read(rng):
    class Counting:
        def __init__(self, values):
            self.values, self.shape, self.dtype = values, values.shape, values.dtype
            self.read = 0

        def __getitem__(self, key):
            found = self.values[key]
            self.read += found.size
            return found

    data = Counting(rng.integers(0, 200, (40, 200, 210)).astype(np.uint8))
    predictor = BlockPredictor(model_of(Architecture(2)), Volume(data), Backend(), StageTimer())
    predictor.predict((slice(8, 16), slice(32, 64), slice(64, 96)))
    # the network sees 32 pixels far
    assert data.read == 8 * (32 + 32 + 32) * (32 + 32 + 32)
