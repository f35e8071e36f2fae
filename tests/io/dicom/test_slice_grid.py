import numpy as np
import pytest

from hushpore.io.dicom.slice_grid import gap_notes, grid_of, rounding_of


def grid(positions, numbers=None):
    positions = np.array(positions, float)
    none = np.full(len(positions), np.nan)
    numbers = none if numbers is None else np.array(numbers, float)
    return grid_of(positions, numbers, rounding_of(positions), 1e-3)


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(("step", "digits"), [(0.0154, 2), (1.5, 0), (0.05, 1), (0.004, 2)])
@pytest.mark.parametrize("missing", [(), (17,), (5, 6, 30)])
def test_rounding_is_told_from_missing_and_equal_slices(step, digits, missing, direction):
    kept = [i for i in range(40) if i not in missing]
    found = grid([round(3.3 + i * step, digits) for i in kept], [direction * (i + 7) for i in kept])
    assert found.step == pytest.approx(step, rel=0.02)
    assert found.is_fitted
    np.testing.assert_array_equal(found.indices, kept)


def test_without_numbers_rounding_explains_uneven_positions_alone():
    assert grid([round(1.5 * i) for i in range(24)]).step == pytest.approx(1.5, rel=0.01)
    # on a grid with a gap: nothing has to be explained
    found = grid([0, 1, 2, 3, 4, 6, 7, 8])
    assert (found.step, found.is_fitted) == (1, False)
    assert "Slice 6 is missing" in gap_notes(np.arange(8.0), found)[0]


@pytest.mark.parametrize(
    ("positions", "numbers"),
    [([0, 1, 2, 3, 9, 10], range(6)), ([0, 1, 2, 3.4, 4, 7.1], range(6)),
     ([0, 2, 4, 7, 10, 13], [1, 3, 2, 5, 4, 6])],
)  # fmt: skip
def test_what_rounding_cannot_explain_stays_uneven_or_incomplete(positions, numbers):
    assert not grid(positions, numbers).is_fitted


def test_exact_positions_are_not_fitted_whatever_their_numbers_are():
    found = grid(0.4 * np.arange(9), [1, 2, 3, 40, 41, 42, 43, 44, 45])
    assert (found.step, found.is_fitted) == (0.4, False)
    np.testing.assert_array_equal(found.indices, range(9))


@pytest.mark.parametrize(
    ("values", "unit"), [([7, 8], 1), ([0.5, 1], 0.1), ([1 / 3, 1], 0), ([-12.0154], 1e-4)]
)
def test_the_unit_of_rounding(values, unit):
    assert rounding_of(np.array(values)) == unit
