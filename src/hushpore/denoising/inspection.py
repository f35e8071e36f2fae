"""What the network sees (patches, blind spots, predictions), and the picture of a result."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.events import Job, Note, Progress
from hushpore.denoising.automatic import require_dimensions_of
from hushpore.denoising.pairs import (
    Replacement,
    draw_positions,
    mask_pixels,
    replacement_values,
    values_at,
)
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.denoising.trained_model import load_model, record_model
from hushpore.denoising.training.step import channels_last, choose_precision, mixed_precision
from hushpore.figures.drawing import (
    DPI,
    INK,
    PAPER,
    add_legend,
    add_plots,
    add_title,
    frame,
    limits_of,
    middle_plane,
    new_figure,
    png,
    show_plane,
)
from hushpore.patches.job import sample_patches
from hushpore.patches.places import in_volume
from hushpore.patches.reading import read_patches
from hushpore.patches.result import BlindSpots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hushpore.base.arrays import Array, Float32s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.denoising.result import Denoised
    from hushpore.denoising.trained_model import Model
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer
    from hushpore.patches.settings import PatchSettings


#: Number of voxels for one pass of the network.
_PIECE = 16 * 64 * 64

#: Default replacement of masked pixels.
_REPLACEMENT = Replacement()


def inspect_patches(volume: Volume, settings: PatchSettings, backend: Backend) -> Job:
    """Sample patches, mask pixels as in training, and predict the patches with a model, if given.

    Parameters, events and errors as `hushpore.patches.job.sample_patches`.

    Returns: patches with blind spots; with predictions and losses if the settings name a model.
    """
    model = load_model(settings.model) if settings.model else None
    if model is not None:
        _require_fitting(model, volume, settings)
    try:
        inspect = partial(_inspect_blind_spots, model)
        result = yield from sample_patches(volume, settings, backend, inspect)
    finally:
        backend.release()
    if model is not None:
        record_model(result.provenance, model)
    return result


def _inspect_blind_spots(
    model: Model | None,
    volume: Volume,
    settings: PatchSettings,
    backend: Backend,
    drawn: Int64s,
    patches: Array,
    generator: torch.Generator,
    timer: StageTimer,
) -> Job:
    """Mask pixels of patches and predict them, as in training."""
    if model is None:
        yield Note("Without a trained model there are no predictions, residuals or losses.")
    elif not model.network.architecture.hides_pixels:
        yield Note(
            "The model was trained without masked pixels: it predicts whole patches, and the loss "
            "is over all of their pixels."
        )
    size, count = settings.size, len(patches)
    together = max(1, _PIECE // math.prod(size))
    parts = []
    for start in range(0, count, together):
        part = slice(start, start + together)
        fraction = 0.2 + 0.75 * start / count
        yield Progress("inspecting patches", start, count, "patches", fraction)
        with timer.stage("masking" if model is None else "prediction"):
            values = backend.put(patches[part].astype(np.float32))
            positions = draw_positions(
                size, settings.masked_share, len(values), generator, backend.device
            )
            originals = values_at(values, positions)
            new = replacement_values(values, positions, _REPLACEMENT)
            found = positions.cpu().numpy(), backend.get(originals), backend.get(new)
            predicted: tuple[Any, Any] = None, None
            if model is not None:
                predicted = _predict(model, volume, backend, drawn[part], size, positions)
            parts.append((*found, *predicted))
    columns: Any = zip(*parts, strict=True)
    joined: list[Any] = [None if each[0] is None else np.concatenate(each) for each in columns]
    return BlindSpots(*joined)


def _predict(
    model: Model,
    volume: Volume,
    backend: Backend,
    drawn: Int64s,
    size: tuple[int, ...],
    positions: torch.Tensor,
) -> tuple[Float32s, Float32s]:
    """Predict patches, with masked pixels if the model was trained so."""
    hides = model.network.architecture.hides_pixels
    count = len(drawn)
    arrangement, channels = model.arrange(volume), PlaneReader(volume, len(size)).channels
    first, outputs = arrangement.first, arrangement.outputs
    image_of, output_of = arrangement.predicted_by
    planes = arrangement.members[image_of[drawn[:, 0]]]  # (count, inputs)
    corners = np.column_stack([planes.ravel(), drawn[:, 1:].repeat(planes.shape[1], axis=0)])
    leading = volume.shape[: -len(size)]
    where = in_volume(corners, leading)
    raw = read_patches(volume.data, where, (1,) * len(leading) + size).reshape(-1, *size)
    inputs = model.scale.normalise(backend.put(raw), channels[planes.ravel()])
    inputs = inputs.view(count, -1, *size)
    # a copy, since masked pixels are replaced in place
    noisy = inputs[:, first : first + outputs].flatten(0, 1).clone()
    if hides:
        hidden = mask_pixels(noisy, positions.repeat_interleave(outputs, 0), _REPLACEMENT)
        inputs[:, first : first + outputs] = hidden.view(count, outputs, *size)
    dtype = choose_precision("auto", backend, len(size))
    network = model.network.to(backend.device)
    with torch.inference_mode(), mixed_precision(backend.device.partition(":")[0], dtype):
        predicted = network(channels_last(inputs)).float()
    output = torch.from_numpy(output_of[drawn[:, 0]]).to(backend.device)
    each = torch.arange(count, device=backend.device)
    predicted = predicted[each, output]
    truth = noisy.view(count, outputs, *size)[each, output]
    errors = predicted - truth
    losses = backend.get(
        ((values_at(errors, positions) if hides else errors.flatten(1)) ** 2).mean(1)
    )
    return model.scale.restore(backend.get(predicted), channels[drawn[:, 0]]), losses


def _require_fitting(model: Model, volume: Volume, settings: PatchSettings) -> None:
    architecture = model.network.architecture
    require_dimensions_of(model, settings)
    for edge, multiple in zip(settings.size, architecture.multiples, strict=True):
        if edge % multiple:
            raise InputError(
                f"Patches of {' x '.join(map(str, settings.size))} cannot go through the network: "
                f"every edge must be a multiple of {multiple}. Choose another patch_size."
            )
    model.arrange(volume)


def denoising_picture(noisy: Volume, result: Denoised, dpi: int = DPI) -> bytes:
    """Draw the middle slice before and after denoising, the removed noise, and the loss curves.

    `dpi`: dots per inch; the picture is 14 inches wide.
    Returns: a PNG file.
    Raises InputError if the two differ in shape.
    """
    if noisy.shape != result.volume.shape:
        raise InputError(
            f"The picture needs the noisy volume of shape {result.volume.shape}; got {noisy.shape}."
        )
    before, after = (middle_plane(each).astype("f4") for each in (noisy, result.volume))
    residual = result.provenance["residual"]
    figure = new_figure(14, 4)
    axes = add_plots(figure, 4)
    limits, spread = limits_of(before), 3 * residual["deviation"] or 1.0
    show_plane(axes[0], noisy, noisy.name, before, limits)
    show_plane(axes[1], noisy, "denoised", after, limits)
    removed = _removed_in_words(residual)
    show_plane(axes[2], noisy, removed, before - after, (-spread, spread))
    _draw_curves(axes[3], result)
    add_title(figure, result.headline)
    return png(figure, dpi)


def _removed_in_words(residual: dict[str, Any]) -> str:
    correlation = max(residual["correlation"].values(), key=abs)
    return (
        f"residual: {residual['mean']:+.3g} ± {residual['deviation']:.3g}, "
        f"correlation of neighbours {correlation:+.2f}"
    )


def _draw_curves(axes: Axes, result: Denoised) -> None:
    hides = result.model.network.architecture.hides_pixels
    where = "at hidden pixels" if hides else "against targets with noise"
    axes.set_title(f"squared error {where}", fontsize=10, color=INK)
    if not len(result.losses):
        axes.text(0.5, 0.5, "nothing was trained", ha="center", va="center", fontsize=9)
        axes.set_axis_off()
        return
    for curve, colour, width, name in (
        (result.losses, PAPER[0], 0.8, "training"),
        (result.validation, INK, 1.5, "same patches each time"),
    ):
        if len(curve):
            axes.plot(curve[:, 0], curve[:, 1], color=colour, linewidth=width, label=name)
    frame(axes, "step")
    add_legend(axes)
