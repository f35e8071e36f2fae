from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore import InputError
from hushpore.io.results import read_points

if TYPE_CHECKING:
    from pathlib import Path


def table(folder: Path, text: str) -> Path:
    path = folder / "points.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "z,y,x\n1,2,3\n4,5.5,6\n",
        "name, X, Y, Z\na, 3, 2, 1\nb, 6, 5.5, 4\n",
        "index,axis-0,axis-1,axis-2\n0.0,1.0,2.0,3.0\n1.0,4.0,5.5,6.0\n",
    ],
)
def test_columns_are_found_by_name_in_any_order(tmp_path: Path, text: str) -> None:
    points = read_points(table(tmp_path, text))
    np.testing.assert_array_equal(points, [[1, 2, 3], [4, 5.5, 6]])
    assert points.dtype == np.float64


def test_points_of_an_image_have_two_coordinates(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_points(table(tmp_path, "y,x\n1,2\n")), [[1, 2]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "points.csv has the columns a, b. Expected one row per point"),
        ("", "not a table of points"),
        ("z,y,x\n1,2,3\n1,,3\n", "a coordinate of point 2 is not a number"),
        ("z,y,x\n1,two,3\n", "a coordinate of point 1 is not a number"),
        ('z,y,x\n1,2,"3\n', "not a table of points"),
    ],
)
def test_what_is_no_table_of_points_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_points(table(tmp_path, text))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_points(tmp_path / "none.csv")
