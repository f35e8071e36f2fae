"""The schedule of a training: which share of it is over before each step, which sets its rate.

Where time decides, no two runs have the same schedule. It is kept in the record, so that the same
training can be repeated step by step, on a faster machine or a slower one.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.text import read_text
from hushpore.n2v2.settings import STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.n2v2.settings import DenoiseSettings

#: Shares are kept in whole parts of one, so that they are the same when they are read again.
PARTS = 10**6
#: Steps of which is known what was over before each, at most.
_MOST_STEPS = 10**7

#: Steps of a training that its time alone ends.
ENDLESS = 10**9

#: Shares of a training in which the learning rate goes up, and comes down.
WARM_UP, COOL_DOWN = 0.1, 0.3


@dataclass(frozen=True)
class Schedule:
    """How far a training is before each step, which sets its learning rate and ends it."""

    steps: int  # steps of a training that nothing cuts short
    time_budget: float | None = None  # seconds after which it ends
    ends_after: int | None = None  # steps after which it ends, as an earlier one did
    # of an earlier training that time has cut: what was over before each step, in `PARTS`
    shares: tuple[int, ...] = ()

    @classmethod
    def of(cls, settings: DenoiseSettings) -> Schedule:
        """Return the schedule that settings ask for.

        Raises InputError if the record that they name holds none.
        """
        if settings.repeat:
            return _read(Path(settings.repeat).expanduser(), settings.steps or STEPS)
        if settings.steps is None:
            return cls(STEPS if settings.time_budget is None else ENDLESS, settings.time_budget)
        return cls(settings.steps, settings.time_budget)

    def fraction_done(self, step: int, elapsed: float) -> float:
        """Return which share is over after some steps, and some seconds; 1 ends the training."""
        if self.ends_after is not None and step >= self.ends_after:
            return 1.0
        if self.shares:
            return self.shares[step] / PARTS
        share = step / self.steps
        if self.time_budget is None:
            return share
        return to_parts(max(share, elapsed / self.time_budget)) / PARTS

    def record(self, taken: Sequence[int]) -> dict[str, Any] | None:
        """Return what is needed to repeat a training, as JSON values.

        `taken`: what was over before each of its steps, in `PARTS`.
        Returns: None where the settings say it all.
        """
        timed = self.time_budget is not None or bool(self.shares)
        if not timed and len(taken) == self.steps:
            return None
        return {"steps": len(taken), "shares": pack(taken) if timed else ""}


def learning_rate(fraction: float, peak: float) -> float:
    """Learning rate that is held for most of the training, and then goes down to nothing.

    After Haegele et al., Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations,
    https://doi.org/10.48550/arXiv.2405.18392: better here than one cycle, at its peak for a moment
    only (``benchmarks/denoise_schedule.py``).

    `fraction`: how much of the training is over, 0 to 1. `peak`: highest rate, held from `WARM_UP`
    on until `COOL_DOWN` of the training is left.
    Returns: from peak / 25 by a half cosine up to the peak, at the end by a line down to 0.
    """
    if fraction < WARM_UP:
        start = peak / 25
        return peak + (start - peak) * (1 + math.cos(math.pi * fraction / WARM_UP)) / 2
    return peak * min(1.0, max(0.0, (1 - fraction) / COOL_DOWN))


def to_parts(share: float) -> int:
    """Return a share in whole `PARTS`."""
    return round(PARTS * share)


def pack(values: Sequence[int]) -> str:
    """Return numbers that rise as a short text."""
    steps = np.diff(np.asarray(values, "<i4"), prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode("ascii")


def unpack(text: str) -> tuple[int, ...]:
    """Return the numbers that `pack` made a text of.

    Raises ValueError if it is another text.
    """
    if not text:
        return ()
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(base64.b64decode(text, validate=True), 4 * _MOST_STEPS)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not stream.eof:
        raise ValueError(f"not whole, or of more than {_MOST_STEPS:,} steps")
    steps = np.frombuffer(unpacked, "<i4")
    return tuple(int(value) for value in np.cumsum(steps))


def _read(path: Path, steps: int) -> Schedule:
    try:
        record = json.loads(read_text(path))
        (made,) = (job for job in record.get("jobs", [record]) if job.get("job") == "denoise")
        kept = made.get("training") or {"steps": made["result"]["steps"]}
        shares = unpack(kept.get("shares", ""))
        count = int(kept["steps"])
    except OSError as error:
        raise InputError(f"The record {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the record of a denoising that was trained.") from error
    if shares and len(shares) != count:
        raise InputError(f"The training in {path} is not whole: {len(shares)} of {count} steps.")
    return Schedule(steps, None, count, shares)
