"""Automatic choices: method, network, batch and patch sizes for a volume and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Note
from hushpore.base.formatting import readable_number
from hushpore.denoising.images import arrange
from hushpore.denoising.model import Architecture
from hushpore.denoising.pairs import ALIKE, Line, Replacement, load_second_scan
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.denoising.settings import PAPER_SHARE
from hushpore.denoising.trained_model import load_model, require_dimensions
from hushpore.patches.job import require_room
from hushpore.scan.flat_blocks import move_into_chunks, read_boxes
from hushpore.scan.noise_model import WEAK, far_axis
from hushpore.scan.sample import find_sample

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.denoising.images import Arrangement
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.denoising.trained_model import Model
    from hushpore.patches.settings import PatchSettings
    from hushpore.scan.noise_model import NoiseModel
    from hushpore.scan.sample import Sample

#: Default batch size for 2D and 3D: a step takes a fraction of a second on a CPU.
BATCH = {2: 16, 3: 4}

#: Channels of a network's top level. Three times as many steps gain more than twice as many
#: channels (docs/notes/denoising-defaults.md). N2V has the number of its authors.
FEATURES = {"r2r": 16, "n2n": 16, "n2v2": 16, "n2v": 32}

#: Share of the variance of a scan from which its noise counts as strong.
STRONG = 0.3

#: Default number of neighbouring slices on either side.
CONTEXT = 2

#: Edge of the squares whose means are compared between neighbouring slices.
SQUARE = 8
#: Number of these squares.
SQUARES = 400

#: Maximum masked share of a patch with line noise.
MAX_MASKED = 0.3

#: Ratio of slice distance to pixel size from which 2D uses no neighbouring slices, and 3D does not
#: down-sample along z.
COARSE = 2.0
#: Number of slices below which 3D does not down-sample along z either.
THIN = 16


_LIKE_STRUCTURE = (
    "The noise of {} cannot be distinguished from its structure. {} Give a repeat scan (pair), "
    "correct rings (correct_rings=True), reconstruct without smoothing, or segment the scan as it "
    "is. To train in spite of this, choose a method (method='r2r' or 'n2v2')."
)


@dataclass(frozen=True, eq=False)
class Task:
    """The volume and settings of a denoising, with all choices that do not depend on the noise."""

    volume: Volume
    settings: DenoiseSettings
    source: PlaneReader  # reads the volume, and its second scan if any
    pair: Volume | None  # the second scan
    trained: Model | None  # a trained model to apply instead of training
    arrangement: Arrangement  # planes of each image of the network
    context: int  # number of neighbouring slices on either side
    size: tuple[int, ...]  # of a patch in the planes of the volume
    replacement: Replacement  # of masked pixels
    sample: Sample | None = None  # the sample in its air or padding; None: treat all alike

    @classmethod
    def of(cls, volume: Volume, settings: DenoiseSettings) -> Task:
        """Check the settings for a volume, and make the choices.

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
            if settings.method == "r2r" and (n_channels := _n_channels(volume)) > 1:
                raise InputError(
                    f"method='r2r' needs a single channel; {volume.name} has {n_channels}. Choose "
                    "one channel, or use method='n2v2'."
                )
            context = context_for(volume, settings)
            arrangement = arrange(volume, settings.dimensions, settings.channels, context)
            size = patch_size_for(volume, settings, source.size)
            replacement = replacement_for(settings)
            require_room(volume, size)
        sample = find_sample(volume) if settings.sample_focus else None
        return cls(
            volume, settings, source, pair, trained, arrangement, context, size, replacement, sample
        )

    @property
    def may_draw_noise(self) -> bool:
        """Whether R2R may be chosen once the noise is known."""
        method = self.settings.method
        needs_masking = (
            _n_channels(self.volume) > 1
            or self.settings.correlated_along != "none"
            or self.pair is not None
        )
        return self.trained is None and (
            method == "r2r" or (method == "auto" and not needs_masking)
        )


@dataclass(frozen=True, eq=False)
class Method:
    """The training method, and the noise model that it uses."""

    name: str  # see `hushpore.denoising.model.METHODS`
    noise: NoiseModel | None = None  # noise to simulate or record; None for N2V2 and N2V
    reason: Note | None = None  # note on the choice


def decide_method(task: Task, noise: NoiseModel, std: float) -> Method:
    """Choose the training method from the settings and the noise of a scan.

    `std`: standard deviation of the grey values.
    """
    is_open = task.settings.method == "auto"
    if not task.may_draw_noise:
        name = "n2v2" if is_open else task.settings.method
        if task.trained is not None:
            name = task.trained.network.architecture.method
        is_paired = task.trained is None and task.pair is not None
        return Method("n2n", noise) if is_paired else Method(name)
    hiding = partial(Method, "n2v2")
    drawing = partial(Method, "r2r", noise)
    if noise.doubts:
        doubts = " ".join(noise.doubts)
        # in weak noise blind spots would lose small pores, and R2R cannot do much harm
        is_far = far_axis(noise.correlation) != ""
        hides = is_open and not (is_far and noise.deviation < WEAK * std)
        if hides and is_far and {"y", "x"} <= {*noise.diagnosis.correlated_axes}:
            raise InputError(_LIKE_STRUCTURE.format(task.volume.name, doubts))
        instead = f"{doubts} Method n2v2 is used instead of r2r."
        if is_open and not hides:
            # differences of neighbours contain less structure than flat regions
            share = min(noise.diagnosis.noise / noise.deviation, 1.0)
            drawing = partial(Method, "r2r", noise.strengthened(share))
            doubts += (
                " To keep small pores, only noise of the standard deviation that differences of "
                f"neighbouring voxels have ({readable_number(share * noise.deviation)} instead of "
                f"{readable_number(noise.deviation)}) is removed, so that some may remain."
            )
        reason = Note(instead if hides else doubts, warning=True, subject="scan")
        return (hiding if hides else drawing)(reason=reason)
    # R2R targets have three times the noise variance of the scan. If the noise is strong, and white
    # so that masked pixels cannot be predicted from the noise of their neighbours, the original
    # value is the better target
    is_strong = noise.deviation**2 >= STRONG * std**2
    is_white = noise.diagnosis.is_independent and noise.is_independent
    if is_open and task.settings.dimensions == 2 and is_white and is_strong:
        text = "The noise is strong and uncorrelated: N2V2 (blind-spot training) was chosen."
        return hiding(reason=Note(text, subject="scan"))
    return drawing()


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
    # slices of a scan are similar
    return context if context and _likeness(volume) > ALIKE else 0


def architecture_for(
    volume: Volume, settings: DenoiseSettings, method: str, arrangement: Arrangement
) -> Architecture:
    """Return the network architecture for a volume; 3D does not down-sample a coarse or short z."""
    return Architecture(
        settings.dimensions,
        method,
        flat=settings.dimensions == 3 and _is_flat(volume),
        inputs=arrangement.inputs,
        outputs=arrangement.outputs,
        features=FEATURES[method],
    )


def patch_size_for(
    volume: Volume, settings: DenoiseSettings, size: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape of a patch for planes of a size."""
    edge = settings.patch_edge(size[-2:])
    plane = (edge, edge)
    if settings.dimensions == 2:
        return plane
    # without down-sampling along z a patch may have any depth, also that of a thin stack
    depth = settings.patch_depth
    if _is_flat(volume):
        depth = min(depth, size[0])
    return (depth, *plane)


def masked_share(settings: DenoiseSettings) -> float:
    """Return the share of pixels that are predicted.

    With line noise more pixels are masked beside each; the share is then reduced so that at most
    `MAX_MASKED` of a patch is masked, and enough remains for the prediction.
    """
    share = settings.masked_share
    if isinstance(share, str):
        return PAPER_SHARE
    if settings.correlated_along == "none":
        return share
    return max(min(share, MAX_MASKED / (2 * settings.correlated_reach + 1)), PAPER_SHARE)


def replacement_for(settings: DenoiseSettings) -> Replacement:
    """Return the replacement of masked pixels.

    Raises InputError if the line noise runs along an axis that the network does not see.
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
    """Return whether the slice distance is much larger than the pixel size."""
    return volume.spacing[-3] >= COARSE * max(volume.spacing[-2:])


def _likeness(volume: Volume) -> float:
    """Return the correlation of neighbouring slices after averaging over small squares."""
    size = (1,) * (len(volume.shape) - 3) + (2, *(min(SQUARE, n) for n in volume.shape[-2:]))
    room = np.array(volume.shape) - np.array(size) + 1
    corners = np.random.default_rng(0).integers(0, room, (SQUARES, len(size)))
    boxes = read_boxes(volume.data, move_into_chunks(corners, size, volume.data), size)
    if not np.isfinite(boxes).all():
        # non-finite values raise an error later
        return 1.0
    first, second = (means - means.mean() for means in boxes.reshape(SQUARES, 2, -1).mean(2).T)
    spread = SQUARES * first.std() * second.std()
    return float(first @ second / spread) if spread else 1.0


def _is_flat(volume: Volume) -> bool:
    """Return whether a stack is not down-sampled along z."""
    return volume.shape[-3] < THIN or _is_coarse(volume)


def require_dimensions_of(model: Model, settings: DenoiseSettings | PatchSettings) -> None:
    """Raise InputError unless a model has the dimensions of the settings."""
    dimensions = model.network.dimensions
    if dimensions != settings.dimensions:
        raise InputError(
            f"The model {settings.model} was trained in {dimensions}D; set dimensions to "
            f"{dimensions}."
        )
