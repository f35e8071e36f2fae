import contextlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushpore import InputError
from hushpore.viewer.results.table import filter_rows

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "label": np.arange(1, 101, dtype=np.int32),
        "volume": RNG.gamma(2, 10, 100),
        "sphericity": RNG.uniform(0, 1, 100),
        "is_open": RNG.random(100) > 0.5,
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "volume > 20",
        "volume > 20 and sphericity < 0.5",
        "(volume > 20) & ~is_open",
        "not is_open or 10 <= volume < 30",
        "volume * 2 - 1 > sphericity ** 2 + label / 3",
        "label % 2 == 0",
        "is_open == True",
        "-volume < -5",
    ],
)
def test_rows_are_those_of_pandas(text):
    np.testing.assert_array_equal(filter_rows(text, TABLE), TABLE.eval(text).to_numpy())


def test_signs_bind_as_loosely_as_words():
    loose = filter_rows("volume > 20 & sphericity < 0.5 | is_open", TABLE)
    np.testing.assert_array_equal(
        loose, filter_rows("(volume > 20 and sphericity < 0.5) or is_open", TABLE)
    )


def test_nothing_lets_all_pass_and_a_constant_counts_for_every_row():
    assert filter_rows("  ", TABLE).all()
    assert filter_rows("1 > 0", TABLE).sum() == len(TABLE)
    assert filter_rows("True and is_open", TABLE).sum() == TABLE["is_open"].sum()


def test_a_missing_number_passes_no_comparison():
    table = pd.DataFrame({"a": [1.0, np.nan, np.inf]})
    assert filter_rows("a > 0", table).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("volum > 3", "did you mean volume"),
        ("xyz > 3", "available: label, volume"),
        ("spher > 3", "did you mean sphericity"),
        ("open", "did you mean is_open"),
        ("volume", "is a number; compare it"),
        ("volume and is_open", "cannot be read"),
        ("volume = 3", "write =="),
        ("volume >", "cannot be read"),
        ("volume > 'a'", "cannot be read"),
        ("open('x')", "no column open"),
        ("().__class__", "cannot be read"),
        ("volume.real > 1", "cannot be read"),
        ("[volume for volume in (1,)]", "cannot be read"),
        ("(volume > 1) << 2", "cannot be read"),
        ("(" * 400 + "volume > 1" + ")" * 400, "cannot be read"),
        ("volume > " + "9" * 400, "too large"),
        # powers of integers would take for ever
        ("volume > 9 ** 9 ** 9 ** 9", "too large"),
        ("not volume", "cannot be read"),
        ("volume > 1 and " * 100 + "is_open", "characters"),
    ],
)
def test_what_is_no_filter_is_refused_in_words(text, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        filter_rows(text, TABLE)


def test_a_column_of_words_is_refused():
    with pytest.raises(InputError, match="contains text"):
        filter_rows("kind == 1", pd.DataFrame({"kind": ["a", "b"]}))


@given(st.text(max_size=60))
def test_any_text_gives_rows_or_a_sentence(text):
    with contextlib.suppress(InputError):
        assert filter_rows(text, TABLE).shape == (100,)
