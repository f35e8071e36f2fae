from __future__ import annotations

from types import SimpleNamespace

import dask.array
import numpy as np
import pytest

from hushpore import InputError, Volume
from hushpore.base.volume import as_volume, how_to_choose, require_values


def test_axes_follow_from_the_number_of_axes() -> None:
    shapes = {"yx": (4, 5), "zyx": (3, 4, 5), "tzyx": (2, 3, 4, 5), "tczyx": (1, 2, 3, 4, 5)}
    for axes, shape in shapes.items():
        assert Volume(np.zeros(shape)).axes == axes


def test_spacing_is_per_spatial_axis_in_z_y_x_order() -> None:
    scan = Volume(np.zeros((2, 3, 4, 5)), spacing=(5.0, 0.5, 0.25), unit="mm")
    assert scan.spacing == (5.0, 0.5, 0.25)
    assert scan.voxel_size == 0.625
    assert (scan.spatial_shape, scan.leading_shape) == ((3, 4, 5), (2,))
    assert Volume(np.zeros((4, 5)), spacing=0.5, unit="mm").spacing == (0.5, 0.5)
    assert Volume(np.zeros((4, 5)), spacing=np.array(0.5), unit="mm").spacing == (0.5, 0.5)


def test_without_spacing_voxels_are_pixels() -> None:
    scan = Volume(np.zeros((3, 4, 5)))
    assert (scan.spacing, scan.unit, scan.notes) == ((1.0, 1.0, 1.0), "pixel", [])


def test_spacing_without_a_unit_is_said() -> None:
    assert "unit" in Volume(np.zeros((3, 4, 5)), spacing=2.0).notes[0]


def test_one_time_point_is_a_volume_of_the_same_geometry() -> None:
    data = np.arange(120).reshape(2, 3, 4, 5)
    scan = Volume(data, spacing=(5, 1, 1), unit="mm", name="drying")
    moment = scan.at(t=1)
    np.testing.assert_array_equal(moment.data, data[1])
    assert (moment.axes, moment.spacing, moment.name) == ("zyx", (5, 1, 1), "drying")


@pytest.mark.parametrize("index", [{"t": 2}, {"t": -3}, {"z": 0}, {"c": 0}, {"": 0}, {"self": 0}])
def test_an_index_outside_the_leading_axes_is_refused(index: dict[str, int]) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Volume(np.zeros((2, 3, 4, 5))).at(**index)


def test_dask_and_lists_are_accepted() -> None:
    lazy = Volume(dask.array.ones((3, 4, 5), chunks=2, dtype="i2"))
    np.testing.assert_array_equal(lazy.array(), np.ones((3, 4, 5), "i2"))
    assert as_volume([[1, 2], [3, 4]]).shape == (2, 2)


def test_array_is_native_and_contiguous() -> None:
    odd = np.asfortranarray(np.arange(60).reshape(3, 4, 5).astype(">i2"))
    values = Volume(odd).array()
    assert values.dtype.isnative
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, odd)


@pytest.mark.parametrize(
    ("data", "known", "words"),
    [
        (np.zeros(5), {}, "2 to 5 axes"),
        (np.zeros((64, 64, 3), np.uint8), {}, "photograph"),
        (np.zeros((3, 4), complex), {}, "numbers"),
        (np.array([["a", "b"]]), {}, "numbers"),
        (np.zeros((3, 4)), {"axes": "xy"}, "does not match"),
        (np.zeros((3, 4)), {"axes": "zyx"}, "does not match"),
        (np.zeros((2, 3, 4)), {"axes": "syx"}, "only 't' and 'c'"),
        (np.zeros((3, 4)), {"spacing": (1, 0)}, "must be positive"),
        (np.zeros((3, 4)), {"spacing": (1, 2, 3)}, "2 finite numbers, in yx order"),
        (np.zeros((3, 4)), {"spacing": (1, np.nan)}, "finite"),
        (np.zeros((3, 4)), {"spacing": ("a", "b")}, "2 finite numbers, in yx order; got"),
        (np.zeros((3, 4)), {"spacing": (1j, 1)}, "2 finite numbers"),
        (np.zeros((3, 4)), {"spacing": (1e-200, 1)}, "from 1e-60 to 1e\\+60"),
        (np.zeros((3, 4)), {"axes": 3}, "axes must be a string .* got 3"),
        ([[1, 2], [3]], {}, "An image needs rows of equal length"),
        (
            np.ma.masked_less(np.arange(12).reshape(3, 4), 5),
            {},
            "masked array with 5 masked values",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(
    data: np.ndarray, known: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Volume(data, **known)


def test_a_masked_array_of_which_nothing_is_masked_is_an_array() -> None:
    values = np.arange(12).reshape(3, 4)
    assert type(Volume(np.ma.MaskedArray(values)).data) is np.ndarray
    with pytest.raises(InputError, match="sample_mask: crumb is a masked array"):
        auxiliary(np.ma.masked_equal(np.zeros((3, 4, 5)), 0))


@pytest.mark.parametrize(
    ("stated", "unit", "spacing"),
    [("µm", "um", 2.0), ("micrometer", "um", 2.0), ("inch", "mm", 50.8), ("Angstrom", "nm", 0.2)],
)
def test_units_have_one_name_and_lengths_follow(stated: str, unit: str, spacing: float) -> None:
    scan = Volume(np.zeros((3, 4)), spacing=2.0, origin=(0.0, 1.0), unit=stated)
    assert scan.unit == unit
    assert scan.spacing == pytest.approx((spacing,) * 2)
    assert scan.origin == pytest.approx((0.0, spacing / 2))
    # once is enough
    again = scan.replace(scan.data)
    assert (again.spacing, again.origin, again.unit) == (scan.spacing, scan.origin, scan.unit)


def test_a_unit_that_is_not_known_is_told_once() -> None:
    scan = Volume(np.zeros((3, 4)), spacing=2, unit="furlong")
    assert scan.notes == scan.replace(scan.data).notes
    (note,) = scan.notes
    assert note.startswith(
        "The unit 'furlong' is unknown (known units: m, cm, mm, um, nm and pixel)"
    )
    for unit in ("mm", "µm", "micron", "inch", "px", ""):
        assert Volume(np.zeros((3, 4)), unit=unit).notes == []


def test_a_stack_three_pixels_wide_can_be_said_to_be_one() -> None:
    assert Volume(np.zeros((64, 64, 3)), axes="zyx").n_spatial == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros((0, 4, 4)), "empty"),
        (np.full((4, 4), 7), "constant: every value is 7"),
        (np.array([[1, np.nan], [np.inf, 2]]), "2 NaN or infinite values of 4"),
    ],
)
def test_values_that_cannot_be_worked_on_are_refused(data: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        require_values(Volume(data))


def test_facts_say_what_matters_in_one_line() -> None:
    scan = Volume(np.zeros((28, 512, 512), np.int16), spacing=(5, 0.488, 0.488), unit="mm")
    assert scan.facts == "28 x 512 x 512 · 5 x 0.488 x 0.488 mm · int16 · 14.7 MB"
    assert "voxel size unknown" in Volume(np.zeros((4, 4))).facts
    assert "2 x 2 µm" in Volume(np.zeros((4, 4)), spacing=2.0, unit="um").facts


def auxiliary(thing: object) -> object:
    scan = Volume(np.zeros((3, 4, 5)), name="scan", auxiliary={"crumb": thing})
    return scan.auxiliary_of(SimpleNamespace(sample_mask="crumb"), "sample_mask")


def test_a_setting_names_what_lies_beside_a_volume() -> None:
    mask = np.ones((3, 4, 5), bool)
    assert auxiliary(mask) is mask
    assert Volume(np.eye(3)).auxiliary_of(SimpleNamespace(markers=""), "markers") is None
    points = auxiliary([[0, 1, 2], [2, 3, 4]])
    np.testing.assert_array_equal(points, [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])


def test_what_lies_beside_goes_with_the_volume_when_its_values_change() -> None:
    scan = Volume(np.zeros((2, 3, 4, 5)), auxiliary={"mask": np.ones((3, 4, 5))})
    assert set(scan.replace(np.ones((2, 3, 4, 5))).auxiliary) == {"mask"}
    assert set(scan.at(t=1).auxiliary) == {"mask"}


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (
            np.ones((3, 4)),
            r"crumb has shape \(3, 4\), .* match scan. Give an array of shape \(3, 4, 5\)",
        ),
        (np.array(["a", "b"]), "does not match"),
        (np.ones((3, 4, 5), complex), "does not match"),
    ],
)
def test_what_does_not_fit_beside_is_refused(thing: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        auxiliary(thing)


def test_a_name_of_nothing_beside_is_refused_with_what_there_is() -> None:
    scan = Volume(np.eye(3), name="scan", auxiliary={"crust": np.eye(3)})
    words = r"mask: the data 'crumb' do not exist for scan \(available: 'crust'\)"
    with pytest.raises(InputError, match=words):
        scan.auxiliary_of(SimpleNamespace(mask="crumb"), "mask")


def test_what_is_measured_has_nothing_of_the_grey_values() -> None:
    known = {"value_unit": "HU", "padding_value": -2000, "contrast_limits": [0, 1]}
    scan = Volume(np.zeros((3, 4, 5)), spacing=2, unit="mm", metadata={**known, "modality": "CT"})
    lengths = scan.derived(np.ones((3, 4, 5), np.float32), "thickness")
    assert (lengths.name, lengths.spacing, lengths.metadata) == (
        "thickness",
        (2, 2, 2),
        {"modality": "CT"},
    )


@pytest.mark.parametrize(("full", "dtype"), [(1, "f4"), (255, "u1"), (1, "f8")])
def test_of_probabilities_the_shares_of_the_classes_are_said(full, dtype):
    first = np.zeros((3, 10, 20))
    first[:, :2] = full
    scan = Volume(np.stack([first, full - first]).astype(dtype), axes="czyx")
    said = how_to_choose(scan)
    assert "volume.at(c=0). The channels are probabilities of 2 classes" in said
    assert "20 % for c=0, 80 % for c=1 in the middle slice." in said
    flat = Volume(scan.data[:, 0], axes="cyx")
    assert "20 % for c=0, 80 % for c=1." in how_to_choose(flat)
    assert "classes" not in how_to_choose(Volume(scan.data + scan.data, axes="tzyx"))
    noise = np.random.default_rng(0).random((2, 3, 10, 20))
    assert "classes" not in how_to_choose(Volume(noise, axes="czyx"))


def test_a_stack_of_colour_pictures_is_refused():
    for shape in ((20, 30, 3), (5, 20, 30, 3), (2, 5, 20, 30, 4)):
        data = np.zeros(shape, np.float32)
        with pytest.raises(InputError, match=r"colour photograph.*moveaxis\(data, -1, 0\)"):
            Volume(data)
        assert Volume(np.moveaxis(data, -1, 0)).shape == (shape[-1], *shape[:-1])
    assert Volume(np.zeros((5, 20, 30, 3), np.uint8), axes="tzyx").shape == (5, 20, 30, 3)
