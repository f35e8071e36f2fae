"""Early stopping: detects that more training no longer improves the result.

Since the targets are noisy, the loss is the noise variance, which is constant, plus the error of
the network. A training ends in one of two cases. The loss has fallen to the noise variance: a lower
loss would mean overfitting to the noise of this scan. Or the loss has decreased little, compared
with the error, while the number of steps doubled: the next doubling would gain even less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Steps between two checks of the curve, and steps before the first.
CHECK_INTERVAL, FIRST_CHECK = 50, 300

#: Number of points of the curve that are averaged.
_POINTS = 4

#: Gain from doubling the number of steps, in dB, below which a training ends.
LEAST_GAIN = 0.3

#: Minimum error of the network as a share of the loss: the noise variance is not known better.
UNSURE = 0.02


def find_plateau(
    curve: Sequence[tuple[int, float]], noise: float | None, before: int | None = None
) -> int | None:
    """Return the first step at which the validation loss had levelled off.

    Depends only on the losses, so that a resumed training ends at the same step as an uninterrupted
    one.

    `curve`: steps, in increasing order, and validation losses. `noise`: noise variance of the
    targets; None if unknown. `before`: later steps are ignored.
    Returns: None if training still improves the result.
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
    """Return the gain of a training since half as many steps, in dB.

    `curve`, `noise`: as for `find_plateau`.
    """
    now, half = _mean_until(curve, step), _mean_until(curve, step // 2)
    error = max(now - noise if noise is not None else 0.0, UNSURE * now)
    return 10 * math.log10(1 + max(half - now, 0.0) / error)


def _mean_until(curve: Sequence[tuple[int, float]], last: int) -> float:
    """Return the mean of the last few losses up to a step."""
    values = [value for step, value in curve if step <= last][-_POINTS:]
    return sum(values) / len(values)
