"""The schedule of a training: which share of it is over before each step, which sets its rate.

Where time decides, no two runs have the same schedule. It is kept in the record, so that the same
training can be repeated step by step, on a faster machine or a slower one.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.safe_text import read_text
from hushpore.denoising.settings import STEPS
from hushpore.denoising.training.plateau import CHECK_INTERVAL, find_plateau

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.denoising.settings import DenoiseSettings

#: Shares are kept in whole parts of one, so that they are the same when they are read again.
PARTS = 10**6
#: Steps of which is known what was over before each, at most.
_MOST_STEPS = 10**7

#: Steps of a training that its time alone ends.
ENDLESS = 10**9

#: Shares of a training in which the learning rate goes up, and comes down.
WARM_UP, COOL_DOWN = 0.1, 0.3

#: Steps in which the learning rate goes up where it is not known yet how many there will be.
WARM_UP_STEPS = 100


@dataclass(frozen=True)
class Schedule:
    """How far a training is before each step, which sets its learning rate and ends it."""

    steps: int  # steps of a training that nothing cuts short
    time_budget: float | None = None  # seconds after which it ends
    ends_after: int | None = None  # steps after which it ends, as an earlier one did
    # of an earlier training that time has cut: what was over before each step, in `PARTS`
    shares: tuple[int, ...] = ()
    is_open: bool = False  # whether its curve ends it, before all of its steps
    plateau: int | None = None  # after how many steps it was found to be flat

    @classmethod
    def of(cls, settings: DenoiseSettings) -> Schedule:
        """Return the schedule that settings ask for.

        Raises InputError if the record that they name holds none.
        """
        is_open = settings.steps is None and settings.time_budget is None
        steps = settings.steps or (STEPS if is_open else ENDLESS)
        if settings.repeat:
            return _read(Path(settings.repeat).expanduser(), steps)
        return cls(steps, settings.time_budget, is_open=is_open)

    @property
    def held_until(self) -> int:
        """Steps after which the learning rate comes down, where the curve may end the training."""
        return self.plateau or round((1 - COOL_DOWN) * self.steps)

    @property
    def most_steps(self) -> int:
        """Steps after which it ends as far as is known."""
        if self.ends_after is not None:
            return self.ends_after
        if self.plateau is not None:
            return min(self.steps, math.ceil(self.plateau / (1 - COOL_DOWN)))
        return self.steps

    def is_check(self, step: int) -> bool:
        """Return whether the curve has to be looked at after some steps."""
        return self.is_open and step % CHECK_INTERVAL == 0 and 0 < step < self.held_until

    def given(self, curve: Sequence[tuple[int, float]], noise: float | None) -> Schedule:
        """Return it with what the curve so far says: the same after a training was resumed.

        `curve`, `noise`: as for `hushpore.denoising.training.plateau.find_plateau`.
        """
        if not self.is_open or self.plateau is not None:
            return self
        return replace(self, plateau=find_plateau(curve, noise, before=self.held_until))

    def fraction_done(self, step: int, elapsed: float) -> float:
        """Return which share is over after some steps, and some seconds; 1 ends the training."""
        if self.ends_after is not None and step >= self.ends_after:
            return 1.0
        if self.shares:
            return self.shares[step] / PARTS
        if self.is_open:
            return to_parts(self._open_share(step)) / PARTS
        share = step / self.steps
        if self.time_budget is None:
            return share
        return to_parts(max(share, elapsed / self.time_budget)) / PARTS

    def _open_share(self, step: int) -> float:
        """Return how far a training is that the curve may end: where held, as if it never would."""
        if step >= self.held_until:
            cooling = self.most_steps - self.held_until
            return 1 - COOL_DOWN * max(0.0, 1 - (step - self.held_until) / cooling)
        if step < WARM_UP_STEPS:
            return WARM_UP * step / WARM_UP_STEPS
        longest = (1 - COOL_DOWN) * self.steps - WARM_UP_STEPS
        return WARM_UP + (1 - COOL_DOWN - WARM_UP) * (step - WARM_UP_STEPS) / longest

    def ending(self, step: int) -> str:
        """Return the reason why a training ended, unless the user stopped it."""
        if self.ends_after is not None:
            return "as in the reproduced run"
        if self.plateau is not None:
            return "no further improvement"
        if self.is_open:
            return "maximum number of steps"
        return "all steps completed" if step >= self.steps else "time limit reached"

    def record(self, taken: Sequence[int]) -> dict[str, Any] | None:
        """Return what is needed to repeat a training, as JSON values.

        `taken`: what was over before each of its steps, in `PARTS`.
        Returns: None where the settings say it all.
        """
        timed = self.time_budget is not None or bool(self.shares) or self.is_open
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
        raise InputError(
            f"{path} is not the record of a denoising with a training. Choose the .json file "
            "beside a denoised volume."
        ) from error
    if shares and len(shares) != count:
        raise InputError(
            f"The record {path} is incomplete: it has the learning rates of {len(shares)} of "
            f"{count} steps. Choose another record."
        )
    return Schedule(steps, None, count, shares)
