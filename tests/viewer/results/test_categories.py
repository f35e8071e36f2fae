import pandas as pd
import pytest

from hushpore.viewer.results.pore_view import MISSING, PALETTE, categories_of, is_categorical


def kinds_of(values, name="group"):
    return [(kind.word, kind.rows.tolist()) for kind in categories_of(pd.Series(values, name=name))]


@pytest.mark.parametrize(
    ("values", "is_one"),
    [
        ([True, False], True),
        (["a", "b", "a"], True),
        (pd.Categorical(["a", "b"]), True),
        ([f"pore {number}" for number in range(9)], False),
        ([1, 2, 1], False),
        ([0.5, 1.5], False),
    ],
)
def test_yes_and_no_and_a_few_words_are_kinds(values, is_one):
    assert is_categorical(pd.Series(values)) == is_one


def test_kinds_are_in_order_and_every_pore_is_of_one():
    assert kinds_of(["b", "a", "b"]) == [
        ("a", [False, True, False]),
        ("b", [True, False, True]),
    ]


def test_yes_and_no_are_said_in_the_words_of_the_column():
    assert [word for word, _ in kinds_of([True, False], "is_open")] == ["closed", "open"]
    assert [word for word, _ in kinds_of([True, False], "touches_border")] == [
        "inside",
        "cut by a face",
    ]
    assert [word for word, _ in kinds_of([True, False], "anything")] == ["no", "yes"]


def test_a_kind_has_the_same_colour_whether_or_not_others_occur():
    (alone,) = categories_of(pd.Series([True, True], name="is_open"))
    both = categories_of(pd.Series([True, False], name="is_open"))
    assert alone.colour == both[1].colour == PALETTE[1]


def test_what_is_missing_is_of_no_kind():
    *_, last = categories_of(pd.Series(["a", None, "b"], dtype=object))
    assert (last.word, last.colour) == ("not known", MISSING)
    assert last.rows.tolist() == [False, True, False]
