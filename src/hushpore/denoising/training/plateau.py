"""When a training has learnt what there is to learn: by its validation loss, and by the noise.

The targets of a training are noisy. Of the loss most is their noise, which nothing brings down, and
the rest is the error of the network. Two things end a training. The loss has come down to the
noise: what would bring it down further is learning the noise of this scan by heart. Or what it has
fallen by while the number of steps doubled is little beside the error: the next doubling will bring
less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Steps between two looks at the curve, and those before the first.
CHECK_INTERVAL, FIRST_CHECK = 50, 300

#: Points of the curve that are averaged.
_POINTS = 4

#: Gain of a doubling, in dB, below which a training ends.
LEAST_GAIN = 0.3

#: The error of the network is taken for at least this share of the loss, where it has to be told
#: from the noise: that is not known better.
UNSURE = 0.02


def find_plateau(
    curve: Sequence[tuple[int, float]], noise: float | None, before: int | None = None
) -> int | None:
    """Return the step after which more was first found to bring next to nothing.

    It depends on nothing but losses at steps, so that a training that is resumed ends where an
    unbroken one does.

    `curve`: step and validation loss, at steps that rise. `noise`: variance of the noise of the
    targets; None where it is not known. `before`: steps of which none is looked at.
    Returns: None where more still helps.
    """
    for step, _ in curve:
        if step < FIRST_CHECK or step % CHECK_INTERVAL or (before is not None and step >= before):
            continue
        if noise is not None and _mean_until(curve, step) <= noise:
            return step
        if gain_of_doubling(curve, step, noise) < LEAST_GAIN:
            return step
    return None


def gain_of_doubling(curve: Sequence[tuple[int, float]], step: int, noise: float | None) -> float:
    """Return what a training has gained since it was at half as many steps, in dB.

    `curve`, `noise`: as for `find_plateau`.
    """
    now, half = _mean_until(curve, step), _mean_until(curve, step // 2)
    error = max(now - noise if noise is not None else 0.0, UNSURE * now)
    return 10 * math.log10(1 + max(half - now, 0.0) / error)


def _mean_until(curve: Sequence[tuple[int, float]], last: int) -> float:
    """Return the mean of the last few values up to a step."""
    values = [value for step, value in curve if step <= last][-_POINTS:]
    return sum(values) / len(values)
