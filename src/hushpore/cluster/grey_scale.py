"""The grey scale of a volume, found block by block: some worker looks at every value once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import require_range
from hushpore.cluster.denoise_tasks import start_of
from hushpore.device.timing import StageTimer
from hushpore.n2v2.source import Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hushpore.base.events import Timing
    from hushpore.base.volume import Volume
    from hushpore.cluster.denoise_tasks import Paths
    from hushpore.io.zarr.image import Block


@dataclass(frozen=True)
class Measured:
    """The grey values of one block."""

    block: tuple[int, ...]  # where it begins
    # of which channel, and how many
    channel: int
    count: int
    # their mean, and the sum of squared differences from it
    mean: float
    squares: float
    # the least and the greatest
    low: float
    high: float
    bad: int  # how many are NaN or infinite


def measure_block(paths: Paths, block: Block) -> tuple[Measured, Timing]:
    """Look at every value of a block, for the grey scale."""
    timer = StageTimer()
    volume = paths.volume()
    with timer.stage("reading") as run:
        values = np.asarray(volume.data[block])
        run.nbytes = values.nbytes
    with timer.stage("measuring"):
        axis = volume.axes.find("c")
        channel = 0 if axis < 0 else block[axis]
        assert isinstance(channel, int)
        bad = 0
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            bad = values.size - int(finite.sum())
            values = values[finite] if bad else values
        if not values.size:
            nothing = Measured(start_of(block), channel, 0, 0.0, 0.0, np.inf, -np.inf, bad)
            return nothing, timer.timing()
        mean = float(values.mean(dtype=np.float64))
        squares = 0.0
        for part in values.reshape(len(values), -1):
            centred = part - mean
            squares += float(np.vdot(centred, centred))
        low, high = float(values.min()), float(values.max())
    found = Measured(start_of(block), channel, values.size, mean, squares, low, high, bad)
    return found, timer.timing()


def scale_of(found: Sequence[Measured], volume: Volume) -> Scale:
    """Return the grey scale of a volume of which all blocks were measured.

    Raises InputError if there are NaN or infinite values, or a channel is constant.
    """
    # in one order, whichever came first
    found = sorted(found, key=lambda each: each.block)
    low, high = min(each.low for each in found), max(each.high for each in found)
    require_range(volume, low, high, sum(each.bad for each in found))
    channels = range(max(each.channel for each in found) + 1)
    moments = [_joined(each for each in found if each.channel == channel) for channel in channels]
    for channel, (_, deviation) in enumerate(moments):
        if not deviation:
            raise InputError(f"Channel {channel} of {volume.name} is constant; leave it out.")
    mean, deviations = (tuple(each) for each in zip(*moments, strict=True))
    return Scale(mean, deviations)


def _joined(parts: Iterable[Measured]) -> tuple[float, float]:
    """Return mean and deviation of values of which those of parts are known (Chan et al. 1979)."""
    count, mean, squares = 0, 0.0, 0.0
    for part in parts:
        both = count + part.count
        if both:
            shift = part.mean - mean
            squares += part.squares + shift**2 * count * part.count / both
            mean, count = mean + shift * part.count / both, both
    return mean, math.sqrt(squares / count)
