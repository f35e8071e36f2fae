import numpy as np
import pytest


@pytest.fixture
def truth(data_folder):
    return np.load(data_folder / "dicom" / "HU_truth.npy")


@pytest.fixture
def ramp():
    """Values that differ everywhere, so that no slice can be mistaken for another."""
    return np.arange(5 * 6 * 7, dtype=np.int16).reshape(5, 6, 7) - 100
