"""Small constants on a device, copied there once."""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.lru_cache(maxsize=512)
def constant(values: tuple[Any, ...], device: str | torch.device) -> torch.Tensor:
    """Return a tensor of fixed numbers on a device; it must not be written to.

    ``torch.tensor(values, device="cuda")`` makes the host wait for the device each time it is
    called, since its source lies in memory that the device cannot read by itself. Here that
    happens on the first call only.

    `values`: numbers, or nested tuples of them.
    """
    # one that is first asked for while predicting may be used in training later
    with torch.inference_mode(False):
        return torch.tensor(values, device=device)
