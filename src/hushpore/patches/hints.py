"""What the fraction of masked pixels comes to, in a sentence for a form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Share below which a training step has few pixels to learn from; up to 20 % it matters little.
FEW = 0.03


def masked_pixels(share: float, size: Sequence[int]) -> int:
    """Return how many pixels of a patch are masked: one in each cell of a grid.

    Parameters
    ----------
    share : float
        The share that is wanted.
    size : sequence of int
        Shape of the patch.
    """
    return math.prod(max(1, round(edge * share ** (1 / len(size)))) for edge in size)


def explain_share(share: float, size: Sequence[int]) -> str:
    """Say how many pixels of a patch are masked, and whether that is few.

    Examples
    --------
    >>> explain_share(0.08, (64, 64))
    'Masks 324 of the 4,096 pixels of a patch; from 3 to 20 % it hardly matters how many.'
    """
    text = f"Masks {masked_pixels(share, size):,} of the {math.prod(size):,} pixels of a patch"
    if share < FEW:
        return f"{text}: a step learns from few, and training takes longer."
    return f"{text}; from 3 to 20 % it hardly matters how many."
