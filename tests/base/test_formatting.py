from __future__ import annotations

import pytest

from hushpore.base.formatting import (
    readable_bytes,
    readable_number,
    readable_percent,
    readable_unit,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1350.4, "1,350"),
        (999.6, "1,000"),
        (999.4, "999"),
        (-59.73, "-59.7"),
        (1234567, "1,230,000"),
        (0, "0"),
        (0.5, "0.5"),
        (0.01234, "0.0123"),
        (3e12, "3e+12"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float, text: str) -> None:
    assert readable_number(value) == text


def test_units_are_written_in_signs() -> None:
    units = [readable_unit("um", 3), readable_unit("mm", -1), readable_unit("pixel")]
    assert units == ["µm³", "mm⁻¹", "px"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (14_700_000, "14.7 MB"),
        (1.25e15, "1,250 TB"),
    ],
)
def test_sizes_have_three_digits_and_no_exponent(count: float, text: str) -> None:
    assert readable_bytes(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1, "100 %"),
        (0.9952, "99.5 %"),
        (0.9996, "99.96 %"),
        (-0.99999, "-99.999 %"),
        (1.004, "100 %"),
        (0, "0 %"),
    ],
)
def test_a_share_that_is_not_all_of_it_is_not_written_as_if_it_were(
    share: float, text: str
) -> None:
    assert readable_percent(share) == text


def test_the_largest_share_below_all_of_it_has_a_text() -> None:
    assert readable_percent(1 - 2**-53) == "99.99999999999999 %"
