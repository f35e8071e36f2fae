import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.layers import Image, Labels, Layer, Points

from hushpore import InputError, Volume
from hushpore.io.lazy_arrays import PlaneStack
from hushpore.viewer.layers.conversion import (
    CONTRAST_SLICES,
    METADATA_KEY,
    contrast_limits,
    is_result,
    layer_data,
    placement_of,
    volume_of,
)

#: napari says so of every layer that is turned out of its slices.
TURNED = pytest.mark.filterwarnings("ignore:Non-orthogonal slicing is being requested")

STACK = np.arange(4 * 6 * 8, dtype=np.int16).reshape(4, 6, 8)


def layer_of(volume, kind="image", **more):
    return Layer.create(*layer_data(volume, kind, **more))


@settings(deadline=None)
@given(
    spacing=st.tuples(*[st.floats(1e-3, 1e3)] * 3),
    origin=st.tuples(*[st.floats(-1e3, 1e3)] * 3),
    unit=st.sampled_from(["mm", "um", "nm", "m", "pixel"]),
)
def test_a_volume_survives_being_a_layer(spacing, origin, unit):
    volume = Volume(STACK, spacing, unit, name="scan", origin=origin, notes=["odd"], source="/a")
    back = volume_of(layer_of(volume))
    assert back.data is volume.data
    np.testing.assert_allclose(back.spacing, spacing)
    np.testing.assert_allclose(back.origin, origin)
    assert (back.unit, back.axes, back.name) == (unit, "zyx", "scan")
    assert (back.notes, back.source) == (["odd"], "/a")


@pytest.mark.parametrize("axes", ["yx", "zyx", "tyx", "cyx", "tzyx", "czyx", "tczyx"])
def test_time_and_channels_survive_being_a_layer(axes):
    volume = Volume(np.zeros((2, 3, 4, 5, 6)[-len(axes) :]), axes=axes)
    assert volume_of(layer_of(volume)).axes == axes


def test_a_layer_without_labels_is_taken_by_its_number_of_axes():
    assert volume_of(Image(np.zeros((3, 4, 5, 6)))).axes == "tzyx"


def test_the_viewers_labels_are_used_where_the_layer_has_none():
    assert volume_of(Image(np.zeros((3, 4, 5))), ("time", "y", "x")).axes == "tyx"


def test_labels_of_the_layer_win_over_those_of_the_viewer():
    layer = Image(np.zeros((3, 4, 5)), axis_labels=("c", "y", "x"))
    assert volume_of(layer, ("t", "y", "x")).axes == "cyx"


def test_channels_after_z_are_refused_with_a_way_out():
    layer = Image(np.zeros((3, 4, 5, 6)), axis_labels=("z", "c", "y", "x"), name="scan")
    with pytest.raises(InputError, match=r"z c y x.*Split Stack"):
        volume_of(layer)


def test_a_colour_layer_is_refused_with_a_way_out():
    with pytest.raises(InputError, match="Split RGB"):
        volume_of(Image(np.zeros((8, 8, 3), np.uint8), rgb=True))


def test_points_are_refused():
    with pytest.raises(InputError, match="not an image"):
        volume_of(Points(np.zeros((2, 3))))


def test_units_that_differ_between_axes_are_brought_to_one():
    layer = Image(STACK, scale=(0.002, 5, 5), units=("mm", "um", "um"))
    volume = volume_of(layer)
    np.testing.assert_allclose(volume.spacing, (2, 5, 5))
    assert volume.unit == "um"


def test_units_that_cannot_be_brought_to_one_are_called_unknown():
    layer = Image(STACK, scale=(2, 5, 5), units=("s", "um", "um"))
    assert volume_of(layer).unit == "pixel"


def test_a_mirrored_layer_has_a_positive_spacing():
    assert volume_of(Image(STACK, scale=(2, -5, 5))).spacing == (2, 5, 5)


def test_the_finest_level_of_a_multiscale_layer_is_taken():
    layer = Image([STACK, STACK[:, ::2, ::2]], multiscale=True)
    assert volume_of(layer).shape == STACK.shape


def test_a_unit_that_napari_does_not_know_becomes_pixel():
    layer = layer_of(Volume(STACK, (1, 1, 1), "banana"))
    assert {str(unit) for unit in layer.units} == {"pixel"}


@TURNED
def test_a_result_lies_where_its_layer_lies():
    turned = Image(
        STACK,
        scale=(5, 0.5, 0.5),
        translate=(1, 2, 3),
        rotate=(10, 20, 30),
        shear=(0.1, 0.2, 0.3),
        affine=np.diag([1, 2, 1, 1]),
        units=("mm", "mm", "mm"),
        axis_labels=("z", "y", "x"),
    )
    result = layer_of(volume_of(turned), placement=placement_of(turned))
    corner = (3, 4, 5)
    np.testing.assert_allclose(result.data_to_world(corner), turned.data_to_world(corner))
    assert result.units == turned.units
    assert result.axis_labels == turned.axis_labels


@TURNED
def test_a_part_of_a_turned_layer_is_placed_where_it_belongs():
    turned = Image(STACK, scale=(5, 0.5, 0.5), translate=(1, 2, 3), rotate=(10, 20, 30))
    part = Image(STACK[2:3], **placement_of(turned).at((2, 0, 0)).kwargs())
    np.testing.assert_allclose(part.data_to_world((0, 4, 5)), turned.data_to_world((2, 4, 5)))


def test_a_result_keeps_its_record():
    provenance = {"job": "denoise", "settings": {"seed": 0}}
    layer = layer_of(Volume(STACK), provenance=provenance)
    assert layer.metadata[METADATA_KEY]["provenance"] == provenance
    assert is_result(layer, "denoise")
    assert not is_result(layer, "pores")
    assert not is_result(Image(STACK), "denoise")


def test_labels_stay_labels():
    layer = layer_of(Volume(STACK % 3), "labels", opacity=0.4)
    assert isinstance(layer, Labels)
    assert layer.opacity == 0.4


def test_a_hot_pixel_does_not_darken_the_image():
    values = np.random.default_rng(0).normal(100, 10, (20, 64, 64))
    values[3, 4, 5] = 1e6
    low, high = contrast_limits(values)
    assert 50 < low < 90
    assert 110 < high < 150


@pytest.mark.parametrize(
    "values",
    [np.full((4, 4), 7.0), np.full((4, 4), np.nan), np.zeros((0, 4)), np.ones((4, 4), bool)],
    ids=["constant", "nan", "empty", "boolean"],
)
def test_contrast_has_a_range_even_where_the_image_has_none(values):
    low, high = contrast_limits(values)
    assert low < high


def test_contrast_of_a_large_image_on_disk_reads_a_few_slices_only():
    seen = []

    def read(number, out):
        seen.append(number)
        out[...] = number

    low, high = contrast_limits(PlaneStack(np.arange(6000), (400, 300), np.dtype("f4"), read))
    assert len(seen) <= CONTRAST_SLICES
    # from all over the stack
    assert low < 500
    assert high > 5400


def test_of_a_pyramid_all_levels_are_shown_and_jobs_get_the_finest(tmp_path):
    pytest.importorskip("zarr")
    from hushpore.io import read_all
    from hushpore.io.zarr import write_zarr

    values = np.random.default_rng(0).integers(0, 99, (4, 300, 520)).astype(np.uint16)
    path = write_zarr(tmp_path / "a.zarr", Volume(values, spacing=(9, 1, 1), unit="um"))
    (volume,) = read_all(path, lazy=True)
    layer = layer_of(volume)
    assert layer.multiscale
    assert [level.shape for level in layer.data] == [(4, 300, 520), (4, 150, 260), (4, 75, 130)]
    assert tuple(layer.scale) == (9, 1, 1)
    np.testing.assert_array_equal(volume_of(layer).array(), values)


@pytest.mark.parametrize("value", [-3024, 5000])
def test_contrast_is_that_of_the_sample_and_not_of_what_is_around_it(value):
    away = np.hypot(*(np.indices((90, 90)) - 44.5))
    rng = np.random.default_rng(0)
    core = np.where(away < 30, 1000.0, -1000.0) + rng.normal(0, 30, (12, 90, 90))
    low, high = contrast_limits(core.astype(np.int16))
    assert low == pytest.approx(1000 - 3 * 30, abs=60)
    assert high == pytest.approx(1000 + 3 * 30, abs=20)
    # a value that fills in what lies outside a round field of view counts for nothing
    rock = rng.normal(1000, 30, (12, 90, 90))
    rock[:, away > 44] = value
    limits = contrast_limits(rock.astype(np.int16))
    np.testing.assert_allclose(limits, (1000 - 3 * 30, 1000 + 3 * 30), atol=20)
