"""Warnings of a pore segmentation about its settings, grey values and surrounding air."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Note, Remedy
from hushpore.pores.labelled.recognise import kind_of_values

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.scan.exterior import Exterior

#: Fraction of the expected air; if less was excluded, a warning says so.
_FAR_OFF = 0.8


def warnings_of(
    volume: Volume, settings: PoreSettings, exterior: Exterior, share: float
) -> list[Note]:
    """Return warnings about unused settings, uneven grey values and the exterior.

    `settings`: as given by the user. `share`: fraction of the volume that was excluded.
    """
    unused = settings.unused_of_void() if volume.dtype == np.bool_ else {}
    found = [*_warnings_of_values(volume, settings)]
    if unused:
        text = (
            f"{volume.name} is a boolean mask of the void (True is pore), so "
            f"{', '.join(f'{name}={value!r}' for name, value in unused.items())} had no effect. "
            "Invert the mask if its pores are False."
        )
        found.append(_warning(text))
    elif (
        volume.dtype != np.bool_
        and settings.is_local
        and settings.odd_window != settings.local_window
    ):
        text = (
            f"The window of the local threshold was changed from {settings.local_window} to "
            f"{settings.odd_window} voxels, since it must be odd."
        )
        found.append(_warning(text))
    if exterior.drift:
        text = (
            "The grey value of the solid drifts across the sample by "
            f"{100 * exterior.drift:.0f} % of the contrast between solid and pores (beam "
            "hardening, for example), so a single threshold finds too few pores in some places and "
            "too many in others. Flatten the scan, or use a local threshold."
        )
        found.append(_warning(text, "Use a local threshold", threshold="sauvola"))
    if exterior.groups is not None:
        first, second = exterior.groups
        text = (
            f"The pore voxels form two groups of grey values, about {first:.4g} and "
            f"{second:.4g}, so a third material may be counted as pore. If only the "
            f"{settings.pores_are}er group is pore, use a threshold between the two; exclude a "
            "sample holder with a sample mask (sample_mask)."
        )
        found.append(_warning(text, "Use three Otsu classes", otsu_classes=3))
    return found + _warnings_of_air(settings, exterior, share)


def _warnings_of_values(volume: Volume, settings: PoreSettings) -> list[Note]:
    """Warn that values which look like labels or probabilities were segmented as grey values."""
    kind = "" if volume.dtype == np.bool_ else kind_of_values(volume)
    if kind == "labels":
        text = (
            f"The values of {volume.name} look like labels of another program (whole numbers in "
            "regions of one value), but were segmented as grey values, which is usually wrong."
        )
        return [_warning(text, "Measure these labels", "measure")]
    if kind == "probability" and settings.pores_are == "dark":
        text = (
            f"The values of {volume.name} look like probabilities (0 to 1), and low values were "
            "segmented as pore. If they are probabilities of pores, high values are pores."
        )
        return [_warning(text, "Segment high values", pores_are="bright", threshold=0.5)]
    return []


def _warnings_of_air(settings: PoreSettings, exterior: Exterior, share: float) -> list[Note]:
    if settings.exterior != "auto" or exterior.treatment == "keep":
        return []
    found = []
    if exterior.radius != settings.ball_radius:
        text = (
            f"The rolling-ball radius (ball_radius) was raised from {settings.ball_radius:g} to "
            f"{exterior.radius:g} voxels so that the ball stays out of the pores."
        )
        found.append(_warning(text))
    if share < _FAR_OFF * exterior.share:
        toward_solid = "lower" if settings.pores_are == "bright" else "higher"
        text = (
            f"About {100 * exterior.share:.0f} % of the volume looks like surrounding air, but "
            f"only {100 * share:.1f} % could be excluded, because noise in the air passes for "
            f"solid. Denoise the scan first, or use a {toward_solid} threshold."
        )
        found.append(_warning(text))
    if exterior.widest:
        text = (
            "Pores open to the surface of the sample are counted only where the rolling ball "
            f"(radius {exterior.radius:g} voxels) cannot enter. With a radius of "
            f"{exterior.widest:.0f} voxels their volume would be about {exterior.gain:.2f} times "
            "as large, and larger still in a round sample; a sample mask (sample_mask) defines "
            "the sample exactly."
        )
        label = f"Use a radius of {exterior.widest:.0f} voxels"
        found.append(_warning(text, label, ball_radius=round(exterior.widest)))
    return found


def _warning(text: str, label: str = "", job: str = "", **settings: Any) -> Note:
    """Return a warning about the result, with the settings or the job that answer it."""
    return Note(text, True, "result", Remedy(label, settings, job) if label else None)
