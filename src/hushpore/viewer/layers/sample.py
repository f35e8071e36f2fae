"""Sample data: a foam and a core with known pores, and one real CT slice."""

from __future__ import annotations

from hushpore import sample_data
from hushpore.viewer.layers.conversion import LayerData, layer_data


def foam() -> list[LayerData]:
    """Return a noisy CT of foam, and its true pores as a hidden layer."""
    return _with_truth(sample_data.foam_phantom())


def core() -> list[LayerData]:
    """Return a CT of a concrete core in air, and its true pores as a hidden layer."""
    return _with_truth(sample_data.core_phantom())


def _with_truth(phantom: sample_data.Phantom) -> list[LayerData]:
    truth = phantom.volume.replace(phantom.void.astype("uint8"), name="true pores")
    return [layer_data(phantom.volume), layer_data(truth, "labels", visible=False, opacity=0.5)]


def slice_of_ct() -> list[LayerData]:
    """Return one real CT slice that comes with pydicom."""
    return [layer_data(sample_data.ct_slice())]
