"""napari takes a layer of a scanner's integers for one of HU, whatever is done with it."""

import numpy as np
import pytest

from hushpore.base.rescaled import Scaled, held
from hushpore.base.volume import Volume
from hushpore.viewer.layers.conversion import layer_data, volume_of


@pytest.fixture
def stored(rng):
    return rng.integers(0, 4000, (12, 20, 16), dtype=np.uint16)


@pytest.fixture
def layer(make_napari_viewer, stored):
    volume = Volume(Scaled(stored, 1, -1024), spacing=(2, 1, 1), unit="mm", name="scan")
    viewer = make_napari_viewer()
    data, keywords, _ = layer_data(volume)
    return viewer, viewer.add_image(data, **keywords), stored.astype(np.float32) - 1024


def test_its_values_are_hu_in_every_view(layer):
    viewer, image, values = layer
    assert image.dtype == np.float32
    viewer.dims.set_current_step(0, 7)
    assert image.get_value((14, 4, 5), world=True) == values[7, 4, 5]
    np.testing.assert_array_equal(image._slice.image.raw, values[7])
    viewer.dims.order = (1, 0, 2)
    np.testing.assert_array_equal(image._slice.image.raw, values[:, viewer.dims.current_step[1]])
    viewer.dims.order = (0, 1, 2)
    viewer.dims.ndisplay = 3
    np.testing.assert_array_equal(image._slice.image.raw, values)


def test_its_contrast_can_be_found_anew(layer):
    _, image, values = layer
    low, high = np.percentile(values, (0.1, 99.9))
    assert image.contrast_limits == pytest.approx((low, high), abs=60)
    image.reset_contrast_limits(mode="data")
    assert image.contrast_limits == [values.min(), values.max()]
    image.reset_contrast_limits_range()


def test_it_is_duplicated_and_saved_as_what_it_shows(layer, tmp_path):
    import copy

    import tifffile
    from napari.layers import Layer

    viewer, image, values = layer
    twin = Layer.create(*copy.deepcopy(image.as_layer_data_tuple()))
    np.testing.assert_array_equal(twin.data, values)
    path = tmp_path / "a.tif"
    viewer.layers.save(str(path), plugin="napari")
    np.testing.assert_array_equal(tifffile.imread(path), values)


def test_a_job_gets_the_integers(layer, stored):
    _, image, values = layer
    volume = volume_of(image)
    assert held(volume.data) is held(image.data)
    assert volume.facts.startswith("12 x 20 x 16 · 2 x 1 x 1 mm · uint16 → float32 · 7.68 kB")
    np.testing.assert_array_equal(volume.array(), values)
