"""Memory of the host that a GPU reads by itself, for what is decoded only to be copied there."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from hushpore.device.backend import Backend

#: Bytes below which pinning costs more than the copy saves.
LEAST = 16 << 20


def empty_for(backend: Backend) -> Callable[..., npt.NDArray[Any]]:
    """Return what makes arrays of which copies to the device are fastest.

    Parameters
    ----------
    backend : Backend
        Where they will go.

    Returns
    -------
    callable
        Takes shape and dtype, as `numpy.empty`, which it is on the CPU. For a GPU the memory is
        pinned, where the system allows it, until the array is let go.
    """
    return partial(_pinned, backend.device) if backend.is_cuda else np.empty


def _pinned(device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    import torch

    values = np.empty(shape, dtype)
    if values.nbytes < LEAST:
        return values
    # not PyTorch's own pinned memory, which takes up to twice as much, in powers of two, and keeps
    # it for the rest of the process
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = values.ctypes.data
    if int(runtime.cudaHostRegister(address, values.nbytes, 0)) == 0:
        weakref.finalize(values, runtime.cudaHostUnregister, address)
        return values
    # CUDA remembers its last error until somebody asks, and who asks next would take it for his
    with suppress(RuntimeError):
        torch.ones(1, device=device)
    return values
