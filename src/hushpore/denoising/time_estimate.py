"""How long a denoising takes, by what the last one of its kind took on this computer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hushpore.base.config import SPEEDS
from hushpore.denoising.settings import DenoiseSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume

#: Steps from which on their time tells that of more: the first take longer.
_TELLING = 25


def pace_key(settings: DenoiseSettings, device: str) -> str:
    """Return what the time of a run depends on. `device`: as it is asked for."""
    return f"denoise device={device} {settings.pace_kind}"


def expected_time(settings: DenoiseSettings, volume: Volume, device: str) -> str:
    """Say how long it will take; nothing where none of its kind was run here.

    `device`: as it is asked for.
    """
    pace = SPEEDS.numbers(pace_key(settings, device))
    return " ".join(settings.time_hint({"pace": pace, "volume": volume}).values())


def keep_pace(settings: DenoiseSettings, device: str, provenance: Mapping[str, Any]) -> None:
    """Remember what a run took, by its record; of a short one nothing."""
    if pace := pace_of(provenance):
        SPEEDS.put(pace_key(settings, device), pace)


def pace_of(provenance: Mapping[str, Any]) -> dict[str, float]:
    """Return what a training took by its record, in s.

    Returns: of a ``step``, of a predicted ``voxel`` in one orientation, and of the ``rest``.
    """
    result, times = provenance.get("result", {}), provenance.get("timings", {})
    if result.get("steps", 0) < _TELLING or "denoising" not in times:
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
