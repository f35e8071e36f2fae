from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hushpore import InputError, Volume
from hushpore.denoising.images import Images, arrange, join_scans


def volume(axes: str, **lengths: int) -> Volume:
    sizes = {"t": 2, "c": 3, "z": 5, "y": 8, "x": 8, **lengths}
    return Volume(np.zeros([sizes[axis] for axis in axes]), axes=axes)


def test_each_plane_is_an_image_by_itself() -> None:
    assert arrange(volume("tczyx"), 2).members.tolist() == [[k] for k in range(30)]
    assert arrange(volume("tczyx"), 3).members.tolist() == [[k] for k in range(6)]
    assert arrange(volume("yx"), 2).members.tolist() == [[0]]


def test_the_middles_of_scans_are_joined_for_a_common_network() -> None:
    rng = np.random.default_rng(0)
    wide, deep = (rng.integers(0, 255, shape, np.uint8) for shape in ((4, 9, 12), (8, 7, 12)))
    joined = join_scans([Volume(each, spacing=5, unit="um") for each in (wide, deep)])
    assert (joined.axes, joined.spacing, joined.unit) == ("tzyx", (5, 5, 5), "um")
    np.testing.assert_array_equal(joined.data, [wide[:, 1:8], deep[2:6]])
    assert join_scans([Volume(wide[0]), Volume(deep[0])]).axes == "tyx"


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], "at least two scans; got 1"),
        ([volume("zyx").replace(np.zeros((5, 8, 8)), spacing=(1, 1, 1.1))], "the same voxel size"),
        ([volume("yx")], "need the same axes, zyx or yx; .* has yx"),
        ([volume("tzyx")], "Choose a position with --at"),
    ],
)
def test_scans_that_do_not_match_are_not_joined(others: list[Volume], message: str) -> None:
    with pytest.raises(InputError, match=message):
        join_scans([volume("zyx"), *others])


def test_channels_together_are_one_image() -> None:
    found = arrange(volume("tczyx"), 3, "together")
    assert found.members.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.outputs == 3
    slices = arrange(volume("czyx", z=2), 2, "together")
    assert slices.members.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert arrange(volume("zyx"), 2, "together").members.tolist() == [[k] for k in range(5)]


def test_a_slice_is_seen_with_its_neighbours_and_never_twice() -> None:
    found = arrange(volume("zyx"), 2, context=2)
    assert found.members.tolist() == [
        [2, 1, 0, 1, 2],
        [3, 0, 1, 2, 3],
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4, 1],
        [2, 3, 4, 3, 2],
    ]
    assert (found.first, found.outputs) == (2, 1)


@given(st.integers(1, 4), st.integers(0, 9))
def test_no_neighbour_is_the_slice_itself(context: int, more: int) -> None:
    found = arrange(volume("tzyx", z=2 * context + 1 + more), 2, context=context)
    others = np.delete(found.members, context, axis=1)
    assert (others != found.members[:, [context]]).all()
    # and all are of the same time point
    length = 2 * context + 1 + more
    assert (found.members // length == found.members[:, [context]] // length).all()


@pytest.mark.parametrize(
    ("axes", "dimensions", "channels", "context", "words"),
    [
        ("zyx", 3, "independent", 1, "need dimensions=2"),
        ("czyx", 2, "together", 1, "channels='independent'"),
        ("zyx", 2, "independent", 3, "at least 7 slices"),
        ("yx", 2, "independent", 1, "has 1"),
        ("cyx", 2, "independent", 1, "has 1"),
    ],
)
def test_what_cannot_be_arranged_is_said(
    axes: str, dimensions: int, channels: str, context: int, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        arrange(volume(axes), dimensions, channels, context)


def test_every_plane_is_predicted_once() -> None:
    for axes, dimensions, channels, context in (
        ("tczyx", 2, "together", 0), ("tczyx", 2, "independent", 2), ("tczyx", 3, "together", 0),
    ):  # fmt: skip
        found = arrange(volume(axes), dimensions, channels, context).predicted
        planes = 30 if dimensions == 2 else 6
        assert sorted(found.ravel().tolist()) == list(range(planes))


def test_windows_of_an_image_are_cut_at_one_place_of_all_its_planes() -> None:
    planes = torch.rand(5, 12, 12)
    images = Images.of(planes, arrange(volume("zyx"), 2, context=1))
    plain = torch.zeros(1, 3, dtype=torch.bool)
    found = images.windows(torch.tensor([[2, 3, 4]]), (4, 4), plain)
    torch.testing.assert_close(found[0], planes[1:4, 3:7, 4:8])


def test_regions_and_parts_hold_the_same_planes() -> None:
    planes = torch.rand(5, 12, 12)
    arrangement = arrange(volume("zyx"), 2, context=1)
    whole = Images.of(planes, arrangement)
    numbers, part = arrangement.part(np.array([3, 4]))
    partial = Images.of(planes[torch.from_numpy(numbers)], part)
    region = (slice(0, 2), slice(2, 9), slice(0, 12))
    expected = whole.region((slice(3, 5), *region[1:]))
    torch.testing.assert_close(partial.region(region), expected)
    torch.testing.assert_close(expected[0, 2], planes[4, 2:9])
