from __future__ import annotations

import pytest

from hushpore.base.readable import readable_number, readable_unit


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
