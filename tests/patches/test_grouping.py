from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import cdist

from hushpore import InputError
from hushpore.patches.places import draw_groups


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 6), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_groups_are_of_the_nearest_and_hold_no_point_twice(seed, n_axes, group_size, more):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(30, n_axes))
    n_neighbours = group_size + more
    groups = draw_groups(points, 25, group_size, n_neighbours, rng)
    assert groups.shape == (25, group_size)
    assert len(np.unique(groups[:, 0])) == 25
    nearest = cdist(points, points).argsort(axis=1)[:, :n_neighbours]
    for group in groups:
        assert len(set(group)) == group_size
        assert set(group) <= set(nearest[group[0]])


def test_every_choice_of_neighbours_is_equally_likely():
    points = np.array([[0.0], [1.0], [2.1], [3.3], [50.0]])
    counts: dict[tuple[int, ...], int] = {}
    rng = np.random.default_rng(1)
    for _ in range(300):
        for group in draw_groups(points, 5, 3, 4, rng):
            if group[0] == 0:
                key = tuple(sorted(group[1:]))
                counts[key] = counts.get(key, 0) + 1
    assert set(counts) == {(1, 2), (1, 3), (2, 3)}
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_groups_of_one_are_the_centres_alone():
    groups = draw_groups(np.zeros((7, 2)), 7, 1, 1, 0)
    assert sorted(groups[:, 0]) == list(range(7))


def test_points_on_one_another_are_different_points():
    points = np.zeros((40, 2))
    groups = draw_groups(points, 40, 3, 4, 0)
    assert all(len(set(group)) == 3 for group in groups)
    assert sorted(groups[:, 0]) == list(range(40))


def test_more_groups_than_points_use_every_point_as_often():
    groups = draw_groups(np.random.default_rng(0).normal(size=(10, 2)), 25, 3, 6, 0)
    counts = np.bincount(groups[:, 0], minlength=10)
    assert sorted(set(counts)) == [2, 3]


def test_a_seed_gives_the_same_groups_and_leaves_the_global_state_alone():
    points = np.random.default_rng(0).normal(size=(50, 3))
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - what must not change
    np.testing.assert_array_equal(draw_groups(points, 9, 4, 8, 3), draw_groups(points, 9, 4, 8, 3))
    assert (draw_groups(points, 9, 4, 8, 3) != draw_groups(points, 9, 4, 8, 4)).any()
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_the_number_of_groups_is_not_that_of_points():
    assert draw_groups(np.arange(20.0)[:, None], 4, 5, 6, 0).shape == (4, 5)


@pytest.mark.parametrize(
    ("n_points", "n_groups", "group_size", "n_neighbours", "message"),
    [
        (5, 2, 3, 6, r"at least 6 points \(n_neighbours\); got 5"),
        (0, 1, 1, 1, r"at least 1 point \(n_neighbours\); got 0"),
        (9, 2, 4, 3, r"at least group_size \(4\); got 3"),
        (9, 2, 0, 3, "at least 1; got n_groups=2, group_size=0"),
        (9, 0, 2, 3, "at least 1; got n_groups=0, group_size=2"),
        (9, 19, 2, 3, "only 18 different groups"),
        (9, 10, 3, 3, "only 9 different groups"),
    ],
)
def test_what_cannot_be_grouped_is_refused(n_points, n_groups, group_size, n_neighbours, message):
    points = np.arange(2.0 * n_points).reshape(n_points, 2)
    with pytest.raises(InputError, match=message):
        draw_groups(points, n_groups, group_size, n_neighbours, 0)


def test_points_that_are_not_numbers_are_refused():
    with pytest.raises(InputError, match="finite coordinates"):
        draw_groups([[0, np.nan]], 1, 1, 1)
