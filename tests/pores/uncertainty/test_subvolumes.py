from __future__ import annotations

import numpy as np
import pytest

from hushpore.pores.uncertainty.subvolumes import Sample, bootstrap, curve, settled_at


def sample_of(void: np.ndarray, places: np.ndarray, spacing: float = 1.0) -> Sample:
    diameter = np.linspace(1, 2, len(places))
    whole = np.ones(void.shape, bool)
    return Sample(void, whole, places, diameter, (spacing,) * void.ndim)


def scattered(share: float = 0.3, size: int = 48, pores: int = 500) -> Sample:
    """Void voxels and pores that are each at random, which theory knows all of."""
    rng = np.random.default_rng(1)
    return sample_of(rng.random((size,) * 3) < share, rng.integers(0, size, (pores, 3)))


def test_the_error_of_what_is_at_random_is_that_of_counting() -> None:
    (porosity, count, median), parts = bootstrap(scattered(), 4.0)
    assert parts == 6**3
    assert porosity == pytest.approx(np.sqrt(0.3 * 0.7 / 48**3), rel=0.25)
    assert count == pytest.approx(np.sqrt(500), rel=0.25)
    # of diameters that are uniform from 1 to 2
    assert median == pytest.approx(0.5 / np.sqrt(500), rel=0.25)


def test_of_few_thick_slices_no_part_is_taken_twice() -> None:
    rng = np.random.default_rng(0)
    places = np.stack([rng.integers(0, n, 300) for n in (3, 60, 60)], axis=1)
    void, sample = rng.random((3, 60, 60)) < 0.3, np.ones((3, 60, 60), bool)
    given = Sample(void, sample, places, rng.uniform(1, 2, 300), (60.0, 1.0, 1.0))
    assert bootstrap(given, 5.0)[1] == 3 * 6 * 6


def test_a_scan_of_one_part_tells_nothing_of_others() -> None:
    errors, parts = bootstrap(scattered(), 40.0)
    assert parts == 1
    assert np.isnan(errors).all()


def test_what_is_outside_the_sample_is_no_part_of_it() -> None:
    given = scattered()
    given.sample[:24] = given.void[:24] = False
    within = given.places[:, 0] >= 24
    given = Sample(given.void, given.sample, given.places[within], given.diameter[within], (1,) * 3)
    assert bootstrap(given, 4.0)[1] == 6**3 // 2
    assert curve(given)["porosity"] == pytest.approx(0.3, abs=0.01)


def test_cubes_have_the_porosity_of_what_lies_in_them() -> None:
    given = scattered(size=32, pores=100)
    found = curve(given)
    assert found["edge"].tolist() == list(range(2, 33, 2))
    assert found["cubes"].tolist() == [n**3 for n in range(16, 0, -1)]
    corners = np.lib.stride_tricks.sliding_window_view(given.void, (10, 10, 10))[::2, ::2, ::2]
    shares = corners.mean(axis=(3, 4, 5)).ravel()
    at = found["edge"].tolist().index(10)
    assert found["porosity"][at] == pytest.approx(shares.mean())
    assert found["porosity_low"][at] == pytest.approx(np.quantile(shares, 0.05))
    assert found["porosity"][-1] == pytest.approx(given.void.mean())
    assert found["density"][-1] == pytest.approx(100 / 32**3)


def test_a_porosity_settles_where_cubes_no_longer_differ() -> None:
    # stripes of 4 voxels: squares of 20 hold 8 or 12 rows of them, of 28 12 or 16, of 32 always 16
    void = np.zeros((64, 64), bool)
    void[np.arange(64) % 8 < 4] = True
    found = curve(sample_of(void, np.zeros((1, 2), np.int64)))
    assert settled_at(found, 64.0) == 32
    void[:32] = False
    assert settled_at(curve(sample_of(void, np.zeros((1, 2), np.int64))), 64.0) is None
