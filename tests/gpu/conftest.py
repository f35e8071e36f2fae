"""Whole jobs on a real GPU; what can be tested without one is with its module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import ndimage as ndi

from hushpore import Volume
from hushpore.device.backend import Backend, choose_backend

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpu() -> Iterator[Backend]:
    """The GPU; whatever a test changed of PyTorch's state on it is put back."""
    backend = choose_backend("cuda")
    yield backend
    torch.cuda.set_sync_debug_mode("default")
    backend.release()


@pytest.fixture(scope="session")
def scan() -> Volume:
    """A noisy rock, as a scanner stores it."""
    rng = np.random.default_rng(0)
    rock = ndi.gaussian_filter(rng.standard_normal((24, 94, 97)), 3) > 0
    grey = np.where(rock, 300, 900) + rng.normal(0, 60, rock.shape)
    return Volume(grey.clip(0, 4095).astype(np.uint16), spacing=(2, 1, 1), unit="um")
