"""Grey values from the integers of a scanner, on the device: half as many bytes cross."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hushpore.base.scaled import Scaled

_PIECE = 1 << 24  # values that are scaled at once: 128 MB in float64


def grey_values(stored: torch.Tensor, scaled: Scaled) -> torch.Tensor:
    """Return what `numpy.asarray` gives of scaled integers, to the bit, from a copy of them.

    Parameters
    ----------
    stored : torch.Tensor
        The integers, on any device.
    scaled : Scaled
        Whose they are.

    Returns
    -------
    torch.Tensor
        float32, on the same device.
    """
    values = torch.empty(stored.shape, dtype=torch.float32, device=stored.device)
    # in float64, so that it is rounded once, as on the host; in pieces, since that is much larger
    step = max(1, _PIECE // max(1, math.prod(stored.shape[1:])))
    for first in range(0, stored.shape[0], step):
        rows = slice(first, first + step)
        part = stored[rows].to(torch.float64)
        part *= _line(scaled.slope, rows, stored.device)
        part += _line(scaled.intercept, rows, stored.device)
        values[rows] = part
    return values


def _line(
    numbers: npt.NDArray[np.float64], rows: slice, device: torch.device
) -> torch.Tensor | float:
    return torch.from_numpy(numbers[rows]).to(device) if numbers.ndim else float(numbers)
