"""What a pore job warns of, from its settings and from what lies around the sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.void.exterior import Exterior

#: Share of the air that is expected below which it was not found.
_FAR_OFF = 0.6


def warnings_of(
    volume: Volume, settings: PoreSettings, exterior: Exterior, share: float
) -> list[str]:
    """Return what is to be said where settings change nothing, or the air is not as looked for.

    `settings`: as they were given. `share`: of the volume, which was left out.
    """
    unused = settings.unused_of_void() if volume.dtype == np.bool_ else {}
    found = []
    if unused:
        found.append(
            f"{volume.name} is boolean, the void itself: what is true is pore, and "
            f"{', '.join(f'{name} = {value}' for name, value in unused.items())} had no effect. "
            "Invert it where pores are false."
        )
    elif (
        volume.dtype != np.bool_
        and settings.is_local
        and settings.odd_window != settings.local_window
    ):
        found.append(
            f"The window of the local threshold was taken as {settings.odd_window} voxels, not "
            f"{settings.local_window}: it has a voxel in its middle."
        )
    if exterior.drift:
        found.append(
            f"The grey of the solid differs across the sample by about "
            f"{100 * exterior.drift:.0f} % of what parts it from the pores, as by beam "
            "hardening: one threshold takes too little for pore in one place and too much in "
            "another. Correct the scan, or take a threshold for each place (threshold = sauvola)."
        )
    if exterior.groups is not None:
        first, second = exterior.groups
        found.append(
            f"Grey values that count as pore are of two groups, about {first:.4g} and about "
            f"{second:.4g}: the threshold may part a third material from pores and solid. If only "
            f"the {settings.pores_are}er ones are pores set the number of phases to 3, or a "
            "threshold between the two; what is no sample, as a holder, a sample mask leaves out."
        )
    return found + _warnings_of_air(settings, exterior, share)


def _warnings_of_air(settings: PoreSettings, exterior: Exterior, share: float) -> list[str]:
    if settings.exterior != "auto" or exterior.treatment == "keep":
        return []
    found = []
    if exterior.radius != settings.ball_radius:
        found.append(
            f"The ball that finds the air around the sample has a radius of "
            f"{exterior.radius:g} voxels here: with {settings.ball_radius:g} it gets into "
            "the pores (Rolling ball radius)."
        )
    if share < _FAR_OFF * exterior.share:
        found.append(
            f"There seems to be air around the sample, about {100 * exterior.share:.0f} % of "
            f"the volume, but only {100 * share:.1f} % could be told from its pores: noise in the "
            "air is taken for solid. Denoise the scan first, or set the threshold lower."
        )
    if exterior.widest:
        found.append(
            "Pores that open at the surface of the sample count only as far as the ball that finds "
            f"the air does not get into them: with a radius of {exterior.widest:.0f} voxels in "
            f"place of {exterior.radius:g} (Rolling ball radius) there would be about "
            f"{exterior.gain:.2f} times as much of them, and in a round sample there is more "
            "still. A sample mask says for certain what belongs to it."
        )
    return found
