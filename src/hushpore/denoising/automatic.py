"""What settings and a volume ask for, as the parts of the denoiser take it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Note
from hushpore.denoising.images import arrange
from hushpore.denoising.masking import Line, Replacement
from hushpore.denoising.model import Architecture
from hushpore.denoising.noise.boxes import move_into_chunks, read_boxes
from hushpore.denoising.noise2noise import ALIKE, load_second_scan
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.denoising.settings import PAPER_SHARE
from hushpore.denoising.trained_model import load_model, require_dimensions
from hushpore.patches.job import require_room

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.denoising.images import Arrangement
    from hushpore.denoising.noise.model import NoiseModel
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.denoising.trained_model import Model
    from hushpore.patches.settings import PatchSettings

#: Patches in a batch where the settings leave it open: a step then takes a fraction of a second
#: on a CPU.
BATCH = {2: 16, 3: 4}

#: Channels of a network's top level. More is learnt from three times as many steps than from twice
#: as many channels (docs/notes/denoising-defaults.md). N2V is as its authors have it.
FEATURES = {"r2r": 16, "n2n": 16, "n2v2": 16, "n2v": 32}

#: Share of the variance of a scan from which on its noise is strong.
STRONG = 0.3

#: Neighbouring slices to either side that are seen where the settings leave it open.
CONTEXT = 2

#: Edge of the squares whose averages are compared to tell whether neighbouring slices are alike.
SQUARE = 8
#: How many of these squares are compared.
SQUARES = 400

#: Share of a patch that is hidden at most where lines are.
MAX_MASKED = 0.3

#: Where slices lie so much further apart than pixels, they are not seen beside each other in 2D,
#: and in 3D there is no down-sampling along z.
COARSE = 2.0
#: Slices below which there is no down-sampling along z either.
THIN = 16


@dataclass(frozen=True, eq=False)
class Task:
    """What a denoising is of, and what its settings come to before the noise is known."""

    volume: Volume
    settings: DenoiseSettings
    source: PlaneReader  # reads the volume, and its second scan where there is one
    pair: Volume | None  # the second scan
    trained: Model | None  # what is applied; nothing is trained then
    arrangement: Arrangement  # what the network sees as one image
    context: int  # neighbouring slices to either side that it sees beside each
    size: tuple[int, ...]  # of a patch in the planes of the volume
    replacement: Replacement  # what hidden pixels are replaced by

    @classmethod
    def of(cls, volume: Volume, settings: DenoiseSettings) -> Task:
        """Look at what is asked for.

        Raises InputError if the volume or a setting cannot be used.
        """
        require_dimensions(volume, settings.dimensions)
        pair = load_second_scan(volume, settings)
        source = PlaneReader(volume, settings.dimensions, pair)
        if settings.model:
            trained = load_model(settings.model)
            require_dimensions_of(trained, settings)
            arrangement, context = trained.arrange(volume), trained.context
            size, replacement = source.size, Replacement()
        else:
            trained = None
            _require_one_channel(volume, settings)
            context = context_for(volume, settings)
            arrangement = arrange(volume, settings.dimensions, settings.channels, context)
            size = patch_size_for(volume, settings, source.size)
            replacement = replacement_for(settings)
            require_room(volume, size)
        return cls(volume, settings, source, pair, trained, arrangement, context, size, replacement)

    @property
    def may_draw_noise(self) -> bool:
        """Whether a network may be trained with noise that is drawn, once that is known."""
        method = self.settings.method
        hides = (
            _n_channels(self.volume) > 1
            or self.settings.correlated_along != "none"
            or self.pair is not None
        )
        return self.trained is None and (method == "r2r" or (method == "auto" and not hides))


@dataclass(frozen=True, eq=False)
class Method:
    """How a network is trained, and by what noise."""

    name: str  # see `hushpore.denoising.model.METHODS`
    is_independent: bool  # whether noise is independent from voxel to voxel
    noise: NoiseModel | None = None  # what is drawn, or told of; None where pixels are hidden
    count: float | None = None  # the grey value of one, where counts are shared out
    reason: Note | None = None  # why it is not another


def decide_method(task: Task, noise: NoiseModel, std: float) -> Method:
    """Decide by the settings and the noise of a scan how its network is trained.

    `std`: standard deviation of the grey values.
    """
    is_open, is_independent = task.settings.method == "auto", noise.diagnosis.is_independent
    if not task.may_draw_noise:
        name = "n2v2" if is_open else task.settings.method
        if task.trained is not None:
            name = task.trained.network.architecture.method
        is_paired = task.trained is None and task.pair is not None
        return Method("n2n", is_independent, noise) if is_paired else Method(name, is_independent)
    hiding = partial(Method, "n2v2", is_independent)
    drawing = partial(Method, "r2r", is_independent, noise)
    if noise.count is not None:
        text = "Grey values are photon counts with Poisson noise: the counts of each voxel are "
        text += "divided at random between input and target."
        return drawing(noise.count, Note(text, subject="scan"))
    if noise.doubts:
        doubts = " ".join(noise.doubts)
        instead = f"{doubts} Method n2v2 is used instead of r2r."
        reason = Note(instead if is_open else doubts, warning=True, subject="scan")
        return (hiding if is_open else drawing)(reason=reason)
    # R2R targets have three times the noise variance of the scan. If the noise is strong, and white
    # so that masked pixels cannot be predicted from the noise of their neighbours, the original
    # value is the better target
    is_strong = noise.deviation**2 >= STRONG * std**2
    is_white = is_independent and noise.is_independent
    if is_open and task.settings.dimensions == 2 and is_white and is_strong:
        text = "The noise is strong and uncorrelated: N2V2 (blind-spot training) was chosen."
        return hiding(reason=Note(text, subject="scan"))
    return drawing()


def _require_one_channel(volume: Volume, settings: DenoiseSettings) -> None:
    """Raise InputError if noise is to be drawn for several channels, each of which has its own."""
    if settings.method == "r2r" and (n_channels := _n_channels(volume)) > 1:
        raise InputError(
            f"method='r2r' needs a single channel; {volume.name} has {n_channels}. Choose one "
            "channel, or use method='n2v2'."
        )


def _n_channels(volume: Volume) -> int:
    return volume.shape[volume.axes.index("c")] if "c" in volume.axes else 1


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
        corrects_dct=may_correct and not has_alike_slices(volume),
    )


def patch_size_for(
    volume: Volume, settings: DenoiseSettings, size: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape of a patch in planes of some size."""
    edge = settings.patch_edge(size[-2:])
    plane = (edge, edge)
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
        raise InputError(
            f"Line noise along {axis} (correlated_along={axis!r}) needs dimensions=3; got 2."
        )
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
            f"The model {settings.model} was trained in {dimensions}D; set dimensions to "
            f"{dimensions}."
        )
