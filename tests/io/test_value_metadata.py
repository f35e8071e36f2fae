"""What files say of their values and slices."""

import json
import math

import numpy as np
import pytest

from hushpore.base.volume import Volume
from hushpore.io import read
from hushpore.io.results import write_image
from hushpore.io.undefined import value_metadata

GREY = {"padding_value": -2000.5, "value_unit": "HU", "slice_positions": [0, 1.5, 4]}


@pytest.mark.parametrize("suffix", ["tif", "zarr"])
@pytest.mark.parametrize("known", [{}, GREY, {"labels": True}, {"denoised": True}])
def test_what_is_known_of_values_comes_back_from_a_file(tmp_path, suffix, known):
    values = np.arange(192, dtype=np.int16).reshape(3, 8, 8)
    path = write_image(tmp_path / f"a.{suffix}", Volume(values, metadata=known))
    assert read(path).metadata == known


def test_what_only_this_scan_had_is_not_written():
    assert value_metadata(GREY | {"windows": [[0, 1]], "patient": "A"}) == GREY


def test_places_of_slices_are_not_said_of_labels_between_which_nothing_lies():
    assert value_metadata(GREY | {"labels": True}) == {
        key: value for key, value in GREY.items() if key != "slice_positions"
    } | {"labels": True}


@pytest.mark.parametrize(
    "known",
    [
        {"labels": "true"},
        {"labels": 1},
        {"padding_value": "0"},
        {"padding_value": 1e300},
        {"value_unit": 7},
        {"value_unit": ""},
        {"slice_positions": "0 1"},
        {"slice_positions": [0, True]},
        {"slice_positions": [0, math.nan]},
        {"slice_positions": []},
    ],
)
def test_what_is_of_another_type_is_left_out(known):
    assert value_metadata(json.loads(json.dumps(known))) == {}


def test_a_unit_from_a_file_is_one_short_line_without_control_characters():
    unit = value_metadata({"value_unit": "H\x1b[31mU\n" + "x" * 1000})["value_unit"]
    assert unit.isprintable()
    assert len(unit) <= 40
