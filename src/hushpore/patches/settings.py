"""Settings of the patch sampler."""

from __future__ import annotations

from dataclasses import dataclass

from hushpore.base.settings import Settings, option


@dataclass(frozen=True)
class PatchSettings(Settings):
    """Which patches to sample."""

    n_patches: int = option(64, "How many patches to draw.", label="Patches", minimum=1)
    patch_size: int = option(
        64,
        "Edge of a patch in y and x.",
        unit="px",
        minimum=4,
        maximum=4096,
        step=4,
    )
    seed: int = option(0, "Start of the random numbers.", minimum=0)
