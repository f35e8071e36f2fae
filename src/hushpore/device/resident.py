"""Images that one job of a chain leaves on a GPU for the next, to save two transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch


class Resident:
    """An image on a GPU that equals an array of the host, passed between the jobs of a chain.

    One job leaves it and the next takes it; otherwise it is released at the end of the ``with``
    block. The array must not be changed in between.

    >>> import numpy as np, torch
    >>> host = np.ones(3, np.float32)
    >>> with Resident() as left:
    ...     left.leave(host, torch.from_numpy(host), "cuda:0")
    ...     print(left.take(host, "cuda:1"), left.take(host, "cuda:0"), left.take(host, "cuda:0"))
    None tensor([1., 1., 1.]) None
    """

    def __init__(self) -> None:
        self._left: tuple[Any, torch.Tensor, str] | None = None

    def leave(self, host: Any, values: torch.Tensor, device: str) -> None:
        """Leave the values of a host array, in the same shape and type, on a device."""
        self._left = host, values, device

    def take(self, host: Any, device: str) -> torch.Tensor | None:
        """Return the values of exactly this array on this device, once; None if there are none."""
        if self._left is None or self._left[0] is not host or self._left[2] != device:
            return None
        values = self._left[1]
        self._left = None
        return values

    def release(self) -> None:
        """Release the values."""
        self._left = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()
