"""The threshold that gives a measured porosity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume


def scan(seed: int = 0, *, bright: bool = False, air: bool = False) -> Volume:
    """Return smooth noise, 0 to 20,000, whose void has no threshold of its own."""
    grey = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(48,) * 3), 2)
    grey = 10000 + 2500 * grey / grey.std()
    if air:
        y, x = np.ogrid[:48, :48]
        grey[:, (y - 23.5) ** 2 + (x - 23.5) ** 2 > 18**2] = 500
    grey = np.clip(20000 - grey if bright else grey, 0, 20000)
    return Volume(np.rint(grey).astype(np.uint16), name="rock")


@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ({}, {"exterior": "keep"}),
        ({"bright": True}, {"exterior": "keep", "pores_are": "bright"}),
        ({"air": True}, {"exterior": "remove"}),
        ({}, {"exterior": "keep", "pore_type": "open"}),
        ({}, {"exterior": "keep", "threshold": "sauvola"}),
    ],
)
@pytest.mark.parametrize("percent", [4.0, 21.0])
def test_the_porosity_is_the_measured_one(
    how: dict[str, Any], settings: dict[str, Any], percent: float
) -> None:
    found = hushpore.segment_pores(scan(**how), **settings, measured_porosity=percent)
    assert 100 * found.porosity == pytest.approx(percent, abs=0.05)
    totals = found.provenance["result"]
    assert any(f"The threshold {totals['threshold']:.0f} was" in note for note in found.notes)
    assert found.provenance["settings"]["measured_porosity"] == percent


def test_the_threshold_gives_the_same_pores_when_it_is_set() -> None:
    volume = scan()
    found = hushpore.segment_pores(volume, exterior="keep", measured_porosity=15)
    # all void counts, as in a pycnometer
    assert found.provenance["result"]["minimum_voxels"] == 1
    how = {"exterior": "keep", "threshold": found.threshold}
    same = hushpore.segment_pores(volume, **how, minimum_voxels=1)
    np.testing.assert_array_equal(found.labels, same.labels)
    # a minimum that is set holds all the same
    how = {"exterior": "keep", "measured_porosity": 15}
    large = hushpore.segment_pores(volume, **how, minimum_voxels=200)
    assert large.threshold == found.threshold
    assert 0 < large.porosity < found.porosity


def test_a_porosity_between_two_levels_is_a_warning() -> None:
    board = np.random.default_rng(0).random((20, 20, 20)) < 0.3
    volume = Volume(np.where(board, 10, 200).astype(np.uint8))
    found = hushpore.segment_pores(volume, exterior="keep", measured_porosity=50)
    assert found.porosity == pytest.approx(board.mean())
    assert any("No threshold comes closer" in note for note in found.notes)


def test_a_hysteresis_threshold_is_refused_beside_it() -> None:
    with pytest.raises(InputError, match="cannot be combined with a hysteresis"):
        hushpore.segment_pores(scan(), measured_porosity=15, hysteresis=100.0)
