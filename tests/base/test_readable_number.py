from __future__ import annotations

import pytest

from hushpore.base.volume import readable_number


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
