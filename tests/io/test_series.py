import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.loading import MOST, choose, preselected, split_notes


def stack(name, depth=2):
    return Volume(np.zeros((depth, 4, 5), np.uint8), name=name)


SERIES = [stack("thorax series 3"), stack("thorax series 31"), stack("Head")]


@pytest.mark.parametrize(
    ("series", "place"),
    [(1, 0), ("3", 2), (" head ", 2), ("THORAX SERIES 3", 0), ("31", 1)],
    ids=["number", "number as text", "any case", "the whole name wins", "part of a name"],
)
def test_a_series_is_named_by_number_or_name(series, place):
    assert choose(SERIES, series) is SERIES[place]


@pytest.mark.parametrize("series", ["thorax", "knee", "0"])
def test_what_does_not_name_exactly_one_is_refused_with_the_list(series):
    with pytest.raises(InputError, match="1 thorax series 3; 2 thorax series 31; 3 Head"):
        choose(SERIES, series)


def test_without_a_name_the_largest_is_meant_and_of_equals_the_first():
    assert choose(SERIES) is choose(SERIES, " ") is SERIES[0]
    assert choose([*SERIES, (large := stack("foot", 9))]) is large


def test_all_are_proposed_where_there_are_few_and_memory_has_room():
    assert preselected(SERIES, room=1e9) == [0, 1, 2]


def test_the_largest_is_proposed_first_and_always():
    series = [stack("a"), stack("b", 50), stack("c", 9)]
    assert preselected(series, room=0) == [1]
    assert preselected(series, room=59 * 20) == [1, 2]


def test_of_very_many_a_few_are_proposed():
    assert len(preselected([stack(str(i), 1 + i) for i in range(40)], room=1e9)) == MOST


def test_a_note_of_all_series_is_said_once():
    shared, own = split_notes([["stray", "odd"], ["stray"], ["stray", "tilted"]])
    assert (shared, own) == (["stray"], [["odd"], [], ["tilted"]])
    assert split_notes([["alone"]]) == ([], [["alone"]])
