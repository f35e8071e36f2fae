"""Estimated time of a denoising, from the last run with the same settings on this computer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hushpore.base.config import SPEEDS
from hushpore.denoising.settings import DenoiseSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume

#: Minimum number of steps for an estimate: the first steps take longer.
_MIN_STEPS = 25


def device_timing_key(settings: DenoiseSettings, device: str) -> str:
    """Return the key of stored timings: the device, as given, and the settings that matter."""
    return f"denoise device={device} {settings.timing_key}"


def expected_time(settings: DenoiseSettings, volume: Volume, device: str) -> str:
    """Return the estimated run time in a sentence; empty without an earlier run.

    `device`: as the user gave it.
    """
    timings = SPEEDS.numbers(device_timing_key(settings, device))
    return " ".join(settings.time_hint({"timings": timings, "volume": volume}).values())


def store_timings(settings: DenoiseSettings, device: str, provenance: Mapping[str, Any]) -> None:
    """Store the timings of a run for later estimates, unless its training was too short."""
    if timings := timings_from(provenance):
        SPEEDS.put(device_timing_key(settings, device), timings)


def timings_from(provenance: Mapping[str, Any]) -> dict[str, float]:
    """Return the timings in a run's record, in s; empty if its training was too short.

    Returns: seconds per training ``step``, per predicted ``voxel`` and orientation, and for the
    ``rest``.
    """
    result, times = provenance.get("result", {}), provenance.get("timings", {})
    if result.get("steps", 0) < _MIN_STEPS or "denoising" not in times:
        return {}
    shape = provenance["input"]["shape"]
    settings = DenoiseSettings.of(provenance["settings"])
    predicted = settings.orientations(shape) * math.prod(shape)
    before_and_after = {"reading", "diagnosis", "examination"} & set(times)
    return {
        "step": result["training_seconds"] / result["steps"],
        "voxel": times["denoising"] / predicted,
        "rest": sum(times[each] for each in before_and_after),
    }
