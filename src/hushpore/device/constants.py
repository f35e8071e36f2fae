"""Small constants on a device, created once."""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.lru_cache(maxsize=512)
def constant(
    values: tuple[Any, ...], device: str | torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return a constant tensor on a device; it must not be written to.

    ``torch.tensor(values, device="cuda")`` makes the host wait for the device at every call, since
    its source is not in pinned memory. Here only the first call waits.

    `values`: numbers, or nested tuples of them. `dtype`: by default PyTorch's for such numbers.
    """
    # a constant first used in prediction may later be used in training
    with torch.inference_mode(False):
        return torch.tensor(values, device=device, dtype=dtype)


@functools.lru_cache(maxsize=512)
def grid(shape: tuple[int, ...], device: str | torch.device) -> torch.Tensor:
    """Return the indices of all cells of a grid, in C order; they must not be written to.

    `shape`: number of cells along each axis.
    Returns: int64, shape (n_cells, len(shape)).
    """
    with torch.inference_mode(False):
        axes = [torch.arange(edge, device=device) for edge in shape]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
