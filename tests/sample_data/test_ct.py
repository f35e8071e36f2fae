import sys

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file

from hushpore.base.errors import MissingPackageError
from hushpore.sample_data import ct_slice


def test_the_real_slice_is_in_hu_and_millimetres():
    volume = ct_slice()
    dataset = pydicom.dcmread(get_testdata_file("CT_small.dcm", download=False))
    expected = dataset.pixel_array * float(dataset.RescaleSlope) + float(dataset.RescaleIntercept)
    np.testing.assert_array_equal(volume.data, expected)
    assert (volume.axes, volume.unit) == ("yx", "mm")
    assert volume.spacing == tuple(float(s) for s in dataset.PixelSpacing)


def test_without_pydicom_the_command_that_installs_it_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydicom", None)
    monkeypatch.setitem(sys.modules, "pydicom.data", None)
    with pytest.raises(MissingPackageError, match="pip install pydicom"):
        ct_slice()
