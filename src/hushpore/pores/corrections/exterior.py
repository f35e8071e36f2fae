"""The void, the solid, the exterior and the grey values of a segmentation, from its scan."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.volume import Volume
from hushpore.device.backend import Backend
from hushpore.pores.job import open_work
from hushpore.pores.pipeline import Pipeline, Stages
from hushpore.pores.void.components import AIR, OPEN, SOLID
from hushpore.pores.void.grey import GreyValues, RoundedGrey

if TYPE_CHECKING:
    from hushpore.base.arrays import UInt8s
    from hushpore.pores.result import Pores
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Slabs
    from hushpore.pores.work import Work


def decided_settings(pores: Pores) -> PoreSettings:
    """Return the settings of a result with the treatment of the exterior that was chosen."""
    totals = pores.provenance["result"]
    return dataclasses.replace(
        pores.settings,
        exterior=totals.get("exterior", "keep"),
        ball_radius=totals.get("ball_radius", pores.settings.ball_radius),
        local_thickness="none",
        intervals=False,
    )


def padding_of(pores: Pores) -> float | None:
    """Return the grey value of the padding that was excluded; None if there is none."""
    padding = pores.provenance["result"].get("padding_value")
    return None if padding is None else float(padding)


def grey_of(pores: Pores, slabs: Slabs, scan: Volume | None) -> RoundedGrey | None:
    """Return the grey values of a result as they were summed up; None if they are not known.

    `scan`: replaces the volume of the result.
    """
    volume: Any = pores.volume if scan is None else scan
    if scan is None and pores.provenance["job"] == "measure":
        # the volume holds the given labels
        volume = volume.auxiliary.get(pores.provenance["settings"].get("image"))
    if (
        not isinstance(volume, Volume)
        or volume.data is pores.labels
        or volume.dtype == np.bool_
        or volume.shape != pores.volume.shape
    ):
        return None
    return RoundedGrey(GreyValues(volume, slabs), pores.graph.rounding)


def phase_of(pores: Pores, work: Work, scan: Volume | None) -> UInt8s:
    """Return the void (`OPEN`), the solid and the exterior of a result, (z, y, x), uint8.

    `work`: context with `decided_settings`. `scan`: replaces the volume of the result.
    Raises InputError if the scan is missing or does not belong to the result.
    """
    void = pores.basins != 0
    if not work.has_air:
        return np.asarray(void, np.uint8)
    if pores.provenance["job"] != "pores":
        raise InputError(
            "Labels that were measured with a sample mask cannot be corrected by hand. Set them to "
            "0 outside the sample and measure them without a mask."
        )
    volume = pores.volume if scan is None else scan
    if volume.data is pores.labels:
        raise InputError(
            "The exterior of these pores was excluded and is not stored with them. Correcting them "
            "needs the scan as well: open it beside them; in Python, Corrections(pores, scan)."
        )
    if volume.shape != pores.volume.shape:
        raise InputError(
            f"The scan has shape {volume.shape}, but the pores have shape {pores.volume.shape}."
        )
    stages = Stages(volume)
    how = work.settings, work.slabs, Backend(), stages, work.padding
    with open_work(volume, *how) as again:
        found = result_of(Pipeline(again, Backend(), stages, []).find_phase())
        phase: UInt8s = np.array(found.array(), np.uint8)
    outside = phase >= AIR
    if (outside & void).any():
        raise InputError("The scan does not belong to these pores: its exterior is another one.")
    phase[~outside] = np.where(void[~outside], OPEN, SOLID)
    return phase
