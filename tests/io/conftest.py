import numpy as np
import pytest


@pytest.fixture
def truth(shared_data):
    return np.load(shared_data / "dicom" / "HU_truth.npy")


@pytest.fixture
def ramp():
    """Values that differ everywhere, so that no slice can be mistaken for another."""
    return np.arange(5 * 6 * 7, dtype=np.int16).reshape(5, 6, 7) - 100
