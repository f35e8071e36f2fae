"""How long a denoising takes, by what the last one of its kind took on this computer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hushpore.device.speeds import keep_speeds, known_speeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume
    from hushpore.n2v2.settings import DenoiseSettings

#: Steps from which on their time tells that of more: the first take longer.
_TELLING = 25


def pace_key(settings: DenoiseSettings, device: str) -> str:
    """Return what the time of a run depends on. `device`: as it is asked for."""
    return f"denoise device={device} {settings.pace_kind}"


def expected_time(settings: DenoiseSettings, volume: Volume, device: str) -> str:
    """Say how long it will take; nothing where none of its kind was run here.

    `device`: as it is asked for.
    """
    pace = known_speeds(pace_key(settings, device))
    return " ".join(settings.time_hint({"pace": pace, "volume": volume}).values())


def keep_pace(settings: DenoiseSettings, device: str, provenance: Mapping[str, Any]) -> None:
    """Remember what a run took, by its record; of a short one nothing."""
    if pace := pace_of(provenance):
        keep_speeds(pace_key(settings, device), pace)


def pace_of(provenance: Mapping[str, Any]) -> dict[str, float]:
    """Return what a step, a voxel and the rest took, by the record of a training; in s."""
    result, times = provenance.get("result", {}), provenance.get("timings", {})
    if result.get("steps", 0) < _TELLING or "denoising" not in times:
        return {}
    voxels = math.prod(provenance["input"]["shape"])
    before_and_after = {"reading", "diagnosis", "examination"} & set(times)
    return {
        "step": result["training_seconds"] / result["steps"],
        "voxel": times["denoising"] / voxels,
        "rest": sum(times[each] for each in before_and_after),
    }
