"""Small constants on a device, sent or made there once."""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.lru_cache(maxsize=512)
def constant(
    values: tuple[Any, ...], device: str | torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return a tensor of fixed numbers on a device; it must not be written to.

    ``torch.tensor(values, device="cuda")`` makes the host wait for the device each time it is
    called, since its source lies in memory that the device cannot read by itself. Here that
    happens on the first call only.

    `values`: numbers, or nested tuples of them. `dtype`: by default PyTorch's for such numbers.
    """
    # one that is first asked for while predicting may be used in training later
    with torch.inference_mode(False):
        return torch.tensor(values, device=device, dtype=dtype)


@functools.lru_cache(maxsize=512)
def grid(shape: tuple[int, ...], device: str | torch.device) -> torch.Tensor:
    """Return the places of a grid, in order; it must not be written to.

    `shape`: cells along each axis.
    Returns: int64, shape (cells, len(shape)).
    """
    with torch.inference_mode(False):
        axes = [torch.arange(edge, device=device) for edge in shape]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
