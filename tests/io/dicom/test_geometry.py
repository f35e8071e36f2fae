import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushpore.io.dicom.geometry import Slice, arrange, group_by_series


def slices(places, normal=(0.0, 0.0, 1.0), **known):
    """Slices at the given places along the normal of an axial stack."""
    return [
        Slice(
            path=Path(f"im{i}.dcm"),
            frame=0,
            n_frames=1,
            shape=(4, 5),
            number=i + 1,
            instance=f"1.{i}",
            position=tuple(float(place * n) for n in normal),
            **{"orientation": (1, 0, 0, 0, 1, 0), "pixel_spacing": (0.7, 0.5), **known},
        )
        for i, place in enumerate(places)
    ]


def one(items):
    (arrangement,) = arrange(items)
    return arrangement


@given(
    st.permutations(range(9)),
    st.floats(0.01, 100),
    st.floats(-1000, 1000),
    st.floats(0, 2 * math.pi),
    st.floats(0.1, math.pi - 0.1),
)
def test_slices_in_any_order_and_direction_are_sorted_along_their_normal(
    order, step, first, azimuth, polar
):
    normal = np.array(
        [math.sin(polar) * math.cos(azimuth), math.sin(polar) * math.sin(azimuth), math.cos(polar)]
    )
    row = np.cross([0, 0, 1], normal)
    row /= np.linalg.norm(row)
    column = np.cross(normal, row)
    places = [first + step * k for k in order]
    result = one(slices(places, normal, orientation=(*row, *column)))
    assert [order[item.number - 1] for item in result.slices] == list(range(9))
    assert result.spacing == pytest.approx((step, 0.7, 0.5), rel=1e-6)
    assert result.origin == pytest.approx((first, 0, 0), abs=1e-6)
    assert not any("uneven" in note or "missing" in note for note in result.notes)


def test_the_spacing_is_that_of_the_positions_and_not_the_slice_thickness():
    assert one(slices([0, 2, 4], distance=5.0)).spacing[0] == 2.0


@pytest.mark.parametrize("step", [0.05, 0.1, 0.3, 0.00123, 1.25, 5.0, 0.0073])
@pytest.mark.parametrize("first", [0.0, -712.35, 0.1])
def test_the_spacing_is_free_of_the_noise_of_computing_it(step, first):
    places = [float(f"{first + step * k:.12g}") for k in range(300)]
    assert one(slices(places)).spacing[0] == step


@pytest.mark.parametrize("tilt", [0.0, 0.4])
@pytest.mark.parametrize("first", [0.0, -3.2])
@pytest.mark.parametrize("step", [0.0005, 0.0001, 0.00006, 2e-6])
def test_slices_of_nanometres_are_apart_and_in_order(step, first, tilt):
    normal = (0.0, -math.sin(tilt), math.cos(tilt))
    turned = (1, 0, 0, 0, math.cos(tilt), math.sin(tilt))
    places = [float(f"{first + step * k:.12g}") for k in reversed(range(20))]
    size = (step, step)
    result = one(slices(places, normal, orientation=turned, pixel_spacing=size))
    assert [item.number for item in result.slices] == list(range(20, 0, -1))
    assert result.spacing == pytest.approx((step, step, step))
    assert not any("same position" in note or "missing" in note for note in result.notes)


def test_slices_of_nanometres_at_rounded_positions_are_fitted():
    places = [round(0.0004 * k, 3) for k in range(40)]
    result = one(slices(places, pixel_spacing=(0.0004, 0.0004)))
    assert len(result.slices) == 40
    assert result.spacing[0] == pytest.approx(0.0004, rel=0.02)
    assert "Positions are rounded to 0.001 mm" in result.notes[0]


def test_a_missing_slice_of_nanometres_is_named():
    places = [0.0005 * k for k in range(20) if k != 7]
    result = one(slices(places, pixel_spacing=(0.0005, 0.0005)))
    assert "Slice 8 is missing" in result.notes[0]
    assert result.metadata["slice_positions"][7] == pytest.approx(0.004)


@pytest.mark.parametrize("digits", [2, 3, 6])
@pytest.mark.parametrize("step", [1 / 3, 0.625, 1.7])
def test_the_spacing_of_rounded_positions_is_their_mean(step, digits):
    result = one(slices([round(-100 + k * step, digits) for k in range(301)]))
    assert result.spacing[0] == pytest.approx(step, rel=10.0**-digits / 30)
    assert result.notes == ()


def test_a_spacing_that_drifts_is_uneven():
    places = np.concatenate([np.arange(0, 40, 2), np.arange(40, 120, 2.1)])
    assert "2 to 2.1 mm apart" in one(slices(places)).notes[0]


@pytest.mark.parametrize("far", [1e6, 1e9, 1e15, 1e300])
def test_a_position_that_is_absurd_is_uneven_and_takes_no_memory(far):
    assert "unevenly spaced" in one(slices([0, 1, 2, 3, far])).notes[0]


def test_missing_slices_are_numbered():
    result = one(slices([0, 2, 4, 10, 12]))
    assert result.spacing[0] == 2.0
    assert result.notes[0].startswith("Slices 4, 5 are missing: no slices between 4 and 10 mm")
    assert result.metadata["slice_positions"] == [0, 2, 4, 10, 12]


def test_uneven_spacing_is_said_with_its_range():
    result = one(slices([0, 2, 4, 7.5, 11, 14.5]))
    assert result.spacing[0] == 3.5
    assert "2 to 3.5 mm apart" in result.notes[0]


def test_positions_rounded_by_the_scanner_are_even():
    places = [round(k * 0.3333, 2) for k in range(40)]
    assert not any("missing" in note for note in one(slices(places)).notes)
    places = [round(k / 3, 3) for k in range(40)]
    assert one(slices(places)).notes == ()


def test_a_duplicate_position_is_dropped_and_both_files_are_named():
    items = slices([0, 2, 4, 2])
    result = one(items)
    assert [item.number for item in result.slices] == [1, 2, 3]
    assert "im1.dcm, im3.dcm" in result.notes[0]
    assert "im1.dcm was kept" in result.notes[0]


def test_a_series_that_repeats_every_position_is_several_volumes():
    first, second = arrange(slices([0, 2, 4, 0, 2, 4]))
    assert [item.number for item in first.slices] == [1, 2, 3]
    assert [item.number for item in second.slices] == [4, 5, 6]
    assert "2 times" in first.notes[0]


def test_the_same_image_in_two_files_counts_once():
    items = slices([0, 2, 4])
    result = one([*items, *items])
    assert len(result.slices) == 3
    assert "3 duplicate images (same SOP Instance UID)" in result.notes[0]


def test_a_tilted_gantry_is_measured():
    tilt = math.radians(20)
    items = slices([0, 2, 4, 6], normal=(0, math.tan(tilt), 1))
    result = one(items)
    assert result.spacing[0] == pytest.approx(2.0)
    assert "Gantry tilt 20.0 degrees" in result.notes[0]


def test_oblique_slices_are_said_with_their_angle():
    c, s = math.cos(0.5), math.sin(0.5)
    result = one(slices([0, 2], orientation=(c, s, 0, -s, c, 0)))
    assert f"oblique ({math.degrees(0.5):.1f} degrees" in result.notes[0]


def test_without_positions_the_instance_number_orders_and_the_header_spaces():
    items = slices([0, 1, 2, 4], distance=3.0)
    items = [
        Slice(**{**vars(item), "position": None, "number": n})
        for item, n in zip(items, [4, 1, 2, 5], strict=True)
    ]
    result = one(items)
    assert [item.number for item in result.slices] == [1, 2, 4, 5]
    assert result.spacing[0] == 3.0
    assert "ordered by InstanceNumber" in result.notes[0]
    assert "missing by InstanceNumber: 3" in result.notes[1]


def test_without_positions_and_numbers_the_file_names_order():
    items = [
        Slice(**{**vars(item), "position": None, "number": None, "path": Path(name)})
        for item, name in zip(slices([0, 1, 2]), ["im10", "im9", "im2"], strict=True)
    ]
    result = one(items)
    assert [item.path.name for item in result.slices] == ["im2", "im9", "im10"]
    assert "file name" in result.notes[0]


def test_without_pixel_spacing_the_voxel_size_is_not_known():
    result = one(slices([0, 2, 4], pixel_spacing=None))
    assert (result.unit, result.spacing) == ("pixel", (1.0, 1.0, 1.0))
    assert "no pixel spacing" in result.notes[-1]


def test_series_orientation_and_shape_part_slices():
    a = slices([0, 2])
    b = slices([0, 2], series="other")
    c = slices([0, 2], orientation=(0, 1, 0, 0, 0, -1))
    d = [Slice(**{**vars(item), "shape": (9, 9)}) for item in a]
    assert [len(each) for each in group_by_series([*a, *b, *c, *d])] == [2, 2, 2, 2]
    tiny = slices([4], orientation=(1, 1e-7, 0, -1e-7, 1, -0.0))
    assert len(group_by_series([*a, *tiny])) == 1


def test_an_orientation_of_zeros_does_not_divide_by_zero():
    assert one(slices([0, 2], orientation=(1, 0, 0, 1, 0, 0))).spacing[0] == 2.0
