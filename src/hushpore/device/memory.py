"""Knowing when memory ran out, whichever library says so."""

from __future__ import annotations

import sys


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # PyTorch's allocator for the CPU raises a plain RuntimeError
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
