"""What settings and a volume ask for, as the parts of the denoiser take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.n2v2.masking import Line, Replacement
from hushpore.n2v2.model import Architecture
from hushpore.n2v2.noise.boxes import move_into_chunks, read_boxes
from hushpore.n2v2.settings import PAPER_SHARE

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.n2v2.images import Arrangement
    from hushpore.n2v2.noise.model import NoiseModel
    from hushpore.n2v2.settings import DenoiseSettings
    from hushpore.n2v2.trained import Model
    from hushpore.patches.settings import PatchSettings

#: Patches in a batch where the settings leave it open: a step then takes a fraction of a second
#: on a CPU.
BATCH = {2: 16, 3: 4}

#: Channels of a network's top level. More is learnt from three times as many steps than from twice
#: as many channels (docs/denoising.md). N2V is as its authors have it.
FEATURES = {"r2r": 16, "n2n": 16, "n2v2": 16, "n2v": 32}

#: Share of the variance of a scan from which on its noise is strong.
STRONG = 0.3

#: Neighbouring slices to either side that are seen where the settings leave it open.
CONTEXT = 2

#: Correlation of neighbouring slices above which they are seen beside each other (those of scans
#: have above 0.9); edge of the squares whose averages are compared, and how many are.
ALIKE, SQUARE, SQUARES = 0.5, 8, 400

#: Share of a patch that is hidden at most where lines are.
MAX_MASKED = 0.3

#: Where slices lie so much further apart than pixels, they are not seen beside each other in 2D,
#: and in 3D there is no down-sampling along z; nor where there are fewer of them than this.
COARSE, THIN = 2.0, 16


def may_draw_noise(volume: Volume, settings: DenoiseSettings) -> bool:
    """Return whether a network may be trained with noise that is drawn, once that is known.

    Raises InputError if noise is to be drawn for several channels, each of which has its own.
    """
    n_channels = volume.shape[volume.axes.index("c")] if "c" in volume.axes else 1
    if settings.method == "r2r" and n_channels > 1:
        raise InputError(
            f"method='r2r' works on one channel; {volume.name} has {n_channels}. Choose a channel, "
            "or method='n2v2'."
        )
    hides = n_channels > 1 or settings.correlated_along != "none" or bool(settings.pair)
    return settings.method == "r2r" or (settings.method == "auto" and not hides)


def hides_strong_noise(settings: DenoiseSettings, noise: NoiseModel, deviation: float) -> bool:
    """Return whether hiding pixels teaches more than drawing noise does, if the method is open.

    Targets with drawn noise have three times the variance of the scan's. Where that is much of what
    there is to see, and no neighbour tells the noise of a hidden pixel, its own value is the better
    target. `deviation`: of the grey values of the scan.
    """
    if settings.method != "auto" or settings.dimensions != 2:
        return False
    return noise.is_independent and noise.deviation**2 >= STRONG * deviation**2


def method_for(settings: DenoiseSettings, noise: NoiseModel | None) -> str:
    """Return the method. `noise`: None where it is not known well enough to be drawn."""
    if settings.pair:
        return "n2n"
    if settings.method != "auto":
        return settings.method
    return "n2v2" if noise is None else "r2r"


def context_for(volume: Volume, settings: DenoiseSettings) -> int:
    """Return how many neighbouring slices are seen to either side of each.

    None where the settings leave it open and slices lie far apart, or do not look like their
    neighbours: as photographs in one stack do not.
    """
    if settings.context is not None:
        return settings.context
    if settings.dimensions == 3 or volume.n_spatial < 3 or _is_coarse(volume):
        return 0
    if settings.channels == "together" and "c" in volume.axes:
        return 0
    context = min(CONTEXT, (volume.shape[-3] - 1) // 2)
    return context if context and has_alike_slices(volume) else 0


def has_alike_slices(volume: Volume) -> bool:
    """Return whether neighbouring slices look like each other, as those of a scan do."""
    return volume.n_spatial == 3 and volume.shape[-3] > 1 and _likeness(volume) > ALIKE


def architecture_for(
    volume: Volume,
    settings: DenoiseSettings,
    method: str,
    arrangement: Arrangement,
    is_independent: bool,
) -> Architecture:
    """Return what network suits a volume: in 3D without down-sampling along a coarse or short z.

    Of images that lie alone, as photographs do, it starts from what a local cosine transform
    leaves: that keeps textures and edges, of which it would have to learn each. Slices of a scan
    are much alike, and better learnt without it.

    `is_independent`: whether the noise of neighbouring voxels is not correlated; else the transform
    cannot tell it well from the image.
    """
    may_correct = method == "r2r" and settings.dimensions == 2 and is_independent
    return Architecture(
        settings.dimensions,
        method,
        flat=settings.dimensions == 3 and _is_flat(volume),
        inputs=arrangement.inputs,
        outputs=arrangement.outputs,
        features=FEATURES[method],
        by_structure=True,
        corrects_dct=may_correct and not has_alike_slices(volume),
    )


def patch_size_for(
    volume: Volume, settings: DenoiseSettings, size: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape of a patch in planes of some size."""
    plane = (settings.patch_size, settings.patch_size)
    if settings.dimensions == 2:
        return plane
    # without down-sampling along z a patch may be of any depth, and so of that of a thin stack
    depth = settings.patch_depth
    if _is_flat(volume):
        depth = min(depth, size[0])
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
        kind = "uniform" if settings.method == "n2v" else "median"
    axis, axes = settings.correlated_along, "zyx"[-settings.dimensions :]
    if axis == "none":
        return Replacement(kind, settings.replacement_window)
    if axis not in axes:
        raise InputError(f"Noise that runs along {axis} can only be hidden with dimensions=3.")
    line = Line(axes.index(axis), settings.correlated_reach)
    return Replacement(kind, settings.replacement_window, line)


def _is_coarse(volume: Volume) -> bool:
    """Return whether the slices of a stack lie far apart."""
    return volume.spacing[-3] >= COARSE * max(volume.spacing[-2:])


def _likeness(volume: Volume) -> float:
    """Return the correlation of neighbouring slices, each averaged over small squares."""
    size = (1,) * (len(volume.shape) - 3) + (2, *(min(SQUARE, n) for n in volume.shape[-2:]))
    room = np.array(volume.shape) - np.array(size) + 1
    corners = np.random.default_rng(0).integers(0, room, (SQUARES, len(size)))
    boxes = read_boxes(volume.data, move_into_chunks(corners, size, volume.data), size)
    if not np.isfinite(boxes).all():
        # which is refused later, and said
        return 1.0
    first, second = (means - means.mean() for means in boxes.reshape(SQUARES, 2, -1).mean(2).T)
    spread = SQUARES * first.std() * second.std()
    return float(first @ second / spread) if spread else 1.0


def _is_flat(volume: Volume) -> bool:
    """Return whether a stack is not down-sampled along z."""
    return volume.shape[-3] < THIN or _is_coarse(volume)


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
