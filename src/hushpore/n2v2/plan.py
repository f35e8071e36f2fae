"""What settings and a volume ask for, as the parts of the denoiser take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.base.errors import InputError
from hushpore.n2v2.masking import Line, Replacement
from hushpore.n2v2.model import Architecture
from hushpore.n2v2.settings import PAPER_SHARE

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.n2v2.images import Arrangement
    from hushpore.n2v2.settings import DenoiseSettings
    from hushpore.n2v2.trained import Model
    from hushpore.patches.settings import PatchSettings

#: Patches in a batch where the settings leave it open: a step then takes a fraction of a second
#: on a CPU.
BATCH = {2: 16, 3: 4}

#: Share of a patch that is hidden at most where lines are.
MAX_MASKED = 0.3

#: In 3D there is no down-sampling along z where slices lie so much further apart than pixels, or
#: where there are fewer of them than this.
COARSE, THIN = 2.0, 16


def architecture_for(
    volume: Volume, settings: DenoiseSettings, arrangement: Arrangement
) -> Architecture:
    """Return what network suits a volume: in 3D without down-sampling along a coarse or short z."""
    flat = settings.dimensions == 3 and (
        volume.shape[-3] < THIN or volume.spacing[0] >= COARSE * max(volume.spacing[1:])
    )
    return Architecture(
        settings.dimensions,
        settings.method,
        flat,
        inputs=arrangement.inputs,
        outputs=arrangement.outputs,
    )


def patch_size_for(
    settings: DenoiseSettings, architecture: Architecture, size: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape of a patch in planes of some size."""
    plane = (settings.patch_size, settings.patch_size)
    if settings.dimensions == 2:
        return plane
    # without down-sampling along z a patch may be of any depth, and so of that of a thin stack
    depth = min(settings.patch_depth, size[0]) if architecture.flat else settings.patch_depth
    return (depth, *plane)


def masked_share(settings: DenoiseSettings) -> float:
    """Return the share of pixels that are predicted.

    With a line, others are hidden beside each; so many are predicted then that no more than
    `MAX_MASKED` of a patch is hidden in all, for one of which little is left would teach nothing.
    """
    share = settings.masked_share
    if isinstance(share, str):
        return PAPER_SHARE
    if settings.correlated_along == "none":
        return share
    return max(min(share, MAX_MASKED / (2 * settings.correlated_reach + 1)), PAPER_SHARE)


def replacement_for(settings: DenoiseSettings) -> Replacement:
    """Return what hidden pixels are replaced by.

    Raises InputError if noise is said to run along an axis that the network does not see.
    """
    kind = settings.replacement
    if kind == "auto":
        kind = "median" if settings.method == "n2v2" else "uniform"
    axis, axes = settings.correlated_along, "zyx"[-settings.dimensions :]
    if axis == "none":
        return Replacement(kind, settings.replacement_window)
    if axis not in axes:
        raise InputError(f"Noise that runs along {axis} can only be hidden with dimensions=3.")
    line = Line(axes.index(axis), settings.correlated_reach)
    return Replacement(kind, settings.replacement_window, line)


def require_dimensions_of(model: Model, settings: DenoiseSettings | PatchSettings) -> None:
    """Check that a model is of the dimensions that are asked for.

    Raises InputError if it is not; says what to set.
    """
    dimensions = model.network.dimensions
    if dimensions != settings.dimensions:
        raise InputError(
            f"The model {settings.model} was trained in {dimensions}D; "
            f"set dimensions to {dimensions}."
        )
