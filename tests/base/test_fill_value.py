"""What a scan is stated, or may be, to be filled in with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hushpore.base.fill_value import possible_fill_values, stated_fill_value


@pytest.mark.parametrize("value", [-2000, 0, 0.1, float(np.finfo(np.float32).min)])
def test_a_number_is_what_is_stated(value: Any) -> None:
    found = stated_fill_value({"padding_value": value})
    assert type(found) is float
    assert found == value
    # as a file has it
    assert stated_fill_value(json.loads(json.dumps({"padding_value": found}))) == value


@pytest.mark.parametrize("value", [None, True, "0", [0], {}, 1j, np.nan, -np.inf, 1e39, 10**400])
def test_anything_else_states_nothing(value: Any) -> None:
    assert stated_fill_value({"padding_value": value}) is None
    assert stated_fill_value({}) is None


def test_what_is_stated_comes_first_and_the_ends_where_they_may_be_it() -> None:
    plane = np.full((5, 6), 7, np.int16)
    plane[0, :2], plane[4, 5], plane[2, 3] = 3, 9, 100
    assert possible_fill_values(plane, {}) == [7]
    assert possible_fill_values(plane[None], {"padding_value": -5}) == [-5, 7]
    assert possible_fill_values(plane, {"padding_value": 9}, ends=True) == [9, 7, 3]
