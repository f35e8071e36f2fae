import numpy as np
import pytest
import torch

from hushpore.base.scaled import Scaled
from hushpore.device import rescaling
from hushpore.device.backend import Backend
from hushpore.device.transfers import Transfers

LINES = {
    "whole numbers": (1.0, -1024.0),
    "fractions": (0.7301, -3.3),
    "its own for each slice": (np.linspace(0.5, 1.7, 7), np.arange(7) - 1000.1),
}


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "f4"])
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_values_scaled_on_the_device_are_those_of_the_host_to_the_bit(
    monkeypatch, rng, dtype, line
):
    monkeypatch.setattr(rescaling, "_PIECE", 100)
    stored = rng.integers(0, 30_000, (7, 6, 5)).astype(dtype)
    scaled = Scaled(stored, *line)
    there = Backend().put(scaled)
    assert there.dtype == torch.float32
    np.testing.assert_array_equal(there.numpy(), np.asarray(scaled))


def test_the_integers_cross_and_nothing_is_read_back(monkeypatch):
    crossed = []
    original = Transfers.upload

    def counted(transfers, values):
        crossed.append(values.nbytes)
        return original(transfers, values)

    monkeypatch.setattr(Transfers, "upload", counted)
    scaled = Scaled(np.zeros((4, 8, 8), np.int16), 2.0, -1024.0)
    # reading any value of this device is an error
    there = Backend("meta").put(scaled)
    assert (there.shape, there.dtype) == ((4, 8, 8), torch.float32)
    assert crossed == [scaled.stored.nbytes]


def test_what_is_sent_ahead_arrives_scaled(rng):
    scaled = Scaled(rng.integers(0, 4000, (3, 5, 4), dtype=np.uint16), 1.5, -7)
    np.testing.assert_array_equal(Backend().put_ahead(scaled).result().numpy(), np.asarray(scaled))
