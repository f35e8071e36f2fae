"""Data to try things on: a phantom with known truth, and a real CT slice."""

from __future__ import annotations

from hushpore.sample_data.ct import ct_slice
from hushpore.sample_data.phantom import Phantom, foam_phantom

__all__ = ["Phantom", "ct_slice", "foam_phantom"]
