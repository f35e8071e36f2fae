"""What is packed comes back bit for bit, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from numcodecs import Blosc

from hushpore.cluster import blocks
from hushpore.cluster.blocks import pack, unpack


@pytest.mark.parametrize(
    "values",
    [
        np.arange(100_000, dtype=np.int64).reshape(-1, 10),
        np.random.default_rng(0).integers(0, 256, 70_001, np.uint8),
        np.array([[0.0, -0.0, np.nan, np.inf]], np.float32),
        np.array([True, False]),
        np.array(7),
        np.zeros((0, 13), np.int64),
        np.arange(6, dtype=np.int32).reshape(2, 3).T,
    ],
)
def test_arrays_come_back_bit_for_bit(monkeypatch, values: np.ndarray) -> None:
    # some of them in several pieces
    monkeypatch.setattr(blocks, "_PIECE", 1 << 16)
    found = np.empty(values.shape, values.dtype)
    unpack(pack(values), found)
    assert found.tobytes() == values.tobytes()


def test_what_is_packed_is_what_blosc_knows() -> None:
    values = np.arange(1000, dtype=np.int32)
    assert Blosc().decode(pack(values)) == values.tobytes()


@pytest.mark.parametrize("damage", ["fewer", "more", "cut", "zeros"])
def test_other_bytes_are_refused(damage: str) -> None:
    packed, out = pack(np.arange(1000)), np.empty(1000, np.int64)
    if damage in ("fewer", "more"):
        out = np.empty(1001 if damage == "fewer" else 999, np.int64)
    packed = {"cut": packed[:-1], "zeros": np.zeros_like(packed)}.get(damage, packed)
    with pytest.raises(ValueError, match="The packed data"):
        unpack(packed, out)
