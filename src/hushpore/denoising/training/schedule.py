"""The schedule of a training: its completed share before each step, which sets the learning rate.

With a time limit no two runs have the same schedule. It is kept in the record, so that the training
can be reproduced step by step on a faster or slower computer.
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
from hushpore.base.formatting import read_text
from hushpore.denoising.settings import STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.denoising.settings import DenoiseSettings


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


#: Shares are stored as integers in units of 1 / PARTS, so that reading them is exact.
PARTS = 10**6
#: Maximum number of steps in a stored schedule.
_MAX_STEPS = 10**7

#: Number of steps of a training that only a time limit ends.
ENDLESS = 10**9

#: Shares of a training for the warm-up and the cool-down of the learning rate.
WARM_UP, COOL_DOWN = 0.1, 0.3

#: Warm-up steps of a training with early stopping.
WARM_UP_STEPS = 100


@dataclass(frozen=True)
class Schedule:
    """The completed share of a training before each step; sets its learning rate and its end."""

    steps: int  # maximum number of steps
    time_budget: float | None = None  # time limit in seconds
    ends_after: int | None = None  # number of steps of the training to reproduce
    # completed share before each step of the training to reproduce, in `PARTS`; empty without time
    # limit
    shares: tuple[int, ...] = ()
    is_open: bool = False  # whether early stopping applies
    plateau: int | None = None  # step at which the validation loss had levelled off

    @classmethod
    def of(cls, settings: DenoiseSettings) -> Schedule:
        """Return the schedule for settings.

        Raises InputError if the record of the run to reproduce has no schedule.
        """
        is_open = settings.steps is None and settings.time_budget is None
        steps = settings.steps or (STEPS if is_open else ENDLESS)
        if settings.repeat:
            return _read(Path(settings.repeat).expanduser(), steps)
        return cls(steps, settings.time_budget, is_open=is_open)

    @property
    def held_until(self) -> int:
        """Step at which the cool-down starts, with early stopping."""
        return self.plateau or round((1 - COOL_DOWN) * self.steps)

    @property
    def most_steps(self) -> int:
        """Maximum number of steps, as far as known now."""
        if self.ends_after is not None:
            return self.ends_after
        if self.plateau is not None:
            return min(self.steps, math.ceil(self.plateau / (1 - COOL_DOWN)))
        return self.steps

    def given(self, curve: Sequence[tuple[int, float]], noise: float | None) -> Schedule:
        """Return the schedule updated from the validation curve, also after resuming.

        `curve`, `noise`: as for `hushpore.denoising.training.schedule.find_plateau`.
        """
        if not self.is_open or self.plateau is not None:
            return self
        return replace(self, plateau=find_plateau(curve, noise, before=self.held_until))

    def fraction_done(self, step: int, elapsed: float) -> float:
        """Return the completed share after some steps and seconds; 1 ends the training."""
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
        """Return the completed share with early stopping, assuming the maximum number of steps."""
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
        """Return the facts needed to reproduce a training, as JSON values.

        `taken`: completed share before each step, in `PARTS`.
        Returns: None if the settings suffice.
        """
        timed = self.time_budget is not None or bool(self.shares) or self.is_open
        if not timed and len(taken) == self.steps:
            return None
        return {"steps": len(taken), "shares": pack(taken) if timed else ""}


def learning_rate(fraction: float, peak: float) -> float:
    """Return the learning rate: warm-up, plateau for most of the training, and cool-down.

    After Haegele et al., Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations,
    https://doi.org/10.48550/arXiv.2405.18392: better here than the one-cycle policy
    (``benchmarks/results/decided/denoise_schedule.json``).

    `fraction`: completed share of the training, 0 to 1. `peak`: maximum rate, constant from
    `WARM_UP` until the share `COOL_DOWN` is left.
    Returns: a half cosine from peak / 25 to the peak, the plateau, and a line down to 0.
    """
    if fraction < WARM_UP:
        start = peak / 25
        return peak + (start - peak) * (1 + math.cos(math.pi * fraction / WARM_UP)) / 2
    return peak * min(1.0, max(0.0, (1 - fraction) / COOL_DOWN))


def to_parts(share: float) -> int:
    """Return a share as an integer in units of 1 / `PARTS`."""
    return round(PARTS * share)


def pack(values: Sequence[int]) -> str:
    """Return increasing integers as a compressed text."""
    steps = np.diff(np.asarray(values, "<i4"), prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode("ascii")


def unpack(text: str) -> tuple[int, ...]:
    """Return the integers of a text made by `pack`.

    Raises ValueError if the text is not of `pack`.
    """
    if not text:
        return ()
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(base64.b64decode(text, validate=True), 4 * _MAX_STEPS)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not stream.eof:
        raise ValueError(f"incomplete, or more than {_MAX_STEPS:,} steps")
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
