import numpy as np
from napari.layers import Image, Labels, Layer

from hushpore.viewer.layers import sample


def test_the_foam_comes_with_its_truth_hidden():
    noisy, truth = (Layer.create(*data) for data in sample.foam())
    assert isinstance(noisy, Image)
    assert isinstance(truth, Labels)
    assert noisy.visible
    assert not truth.visible
    assert truth.data.shape == noisy.data.shape
    assert tuple(truth.scale) == tuple(noisy.scale)
    assert {str(unit) for unit in noisy.units} == {"millimeter"}
    # pores are dark
    assert np.mean(noisy.data[truth.data > 0]) < np.mean(noisy.data[truth.data == 0])


def test_the_core_lies_in_air_and_has_no_voxel_size():
    scan, truth = (Layer.create(*data) for data in sample.core())
    assert {str(unit) for unit in scan.units} == {"pixel"}
    assert scan.data[:, 0, 0].mean() < 0.5 * scan.data[:, 96, 96].mean()
    assert not truth.data[:, :5].any()


def test_a_real_slice_can_be_opened():
    (layer,) = (Layer.create(*data) for data in sample.slice_of_ct())
    assert layer.data.ndim == 2
    assert {str(unit) for unit in layer.units} == {"millimeter"}
