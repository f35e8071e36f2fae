from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpore.patches.result import contact_sheet


@given(
    st.integers(1, 20), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.integers(1, 7)
)
@settings(max_examples=60, deadline=None)
def test_every_tile_is_found_where_it_lies(count, n_rows, height, width, columns):
    # every pixel says which patch and row it is of
    numbers = np.arange(count) * 10 + 5
    rows = {
        f"row {row}": np.broadcast_to((numbers * 10 + row)[:, None, None], (count, height, width))
        for row in range(n_rows)
    }
    sheet = contact_sheet(rows, numbers, columns)
    lowest = sheet.image.min()
    for (y, x), value in np.ndenumerate(sheet.image):
        found = sheet.at(y, x)
        if found is None:
            assert value == lowest
        else:
            patch, row = found
            assert value == patch * 10 + int(row.split()[1])
            first_y, first_x, last_y, last_x = sheet.box_of(patch)
            assert first_y <= y <= last_y
            assert first_x <= x <= last_x
    assert sheet.at(-1, 0) is None
    assert sheet.at(*sheet.image.shape) is None


def test_a_patch_without_a_tile_has_no_box():
    sheet = contact_sheet({"original": np.zeros((2, 4, 4))}, np.array([3, 8]))
    assert sheet.box_of(5) is None


def test_a_sheet_is_about_square_by_default():
    sheet = contact_sheet({name: np.zeros((64, 32, 32)) for name in "abc"})
    height, width = sheet.image.shape
    assert 0.5 < height / width < 2


def test_no_patches_make_an_empty_sheet():
    assert contact_sheet({"original": np.zeros((0, 4, 4))}).at(0, 0) is None
