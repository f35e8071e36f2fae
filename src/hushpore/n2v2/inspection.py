"""The job that shows what the network sees: patches, their blind spots, and its predictions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.events import Job, Note, Progress
from hushpore.n2v2.masking import (
    Replacement,
    draw_positions,
    mask_pixels,
    replacement_values,
    values_at,
)
from hushpore.n2v2.plan import require_dimensions_of
from hushpore.n2v2.source import Source
from hushpore.n2v2.trained import load_model
from hushpore.n2v2.training.step import channels_last, choose_precision, mixed_precision
from hushpore.patches.job import sample_patches
from hushpore.patches.places import in_volume
from hushpore.patches.reading import read_patches
from hushpore.patches.result import BlindSpots

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer
    from hushpore.n2v2.trained import Model
    from hushpore.patches.settings import PatchSettings

#: Voxels that go through the network at once.
_PIECE = 16 * 64 * 64

#: How the denoiser hides pixels where its settings leave it open.
_REPLACEMENT = Replacement()


def inspect_patches(volume: Volume, settings: PatchSettings, backend: Backend) -> Job:
    """Sample patches and hide pixels in them as the denoiser does; predict them under a model.

    Parameters, events and errors as `hushpore.patches.job.sample_patches`.

    Returns: with blind spots; with predictions and losses where the settings name a model.
    """
    model = load_model(settings.model) if settings.model else None
    if model is not None:
        _require_fitting(model, volume, settings)
    try:
        result = yield from sample_patches(volume, settings, backend, _BlindSpotInspector(model))
    finally:
        backend.release()
    return result


class _BlindSpotInspector:
    """Masks pixels of patches and predicts them, as the network does in its training."""

    def __init__(self, model: Model | None) -> None:
        self._model = model

    def __call__(
        self,
        volume: Volume,
        settings: PatchSettings,
        backend: Backend,
        drawn: npt.NDArray[np.int64],
        patches: npt.NDArray[Any],
        generator: torch.Generator,
        timer: StageTimer,
    ) -> Job:
        if self._model is None:
            yield Note(
                "No trained model was given: predictions, residuals and losses are left out."
            )
        size, count = settings.size, len(patches)
        together = max(1, _PIECE // math.prod(size))
        parts = []
        for start in range(0, count, together):
            part = slice(start, start + together)
            fraction = 0.2 + 0.75 * start / count
            yield Progress("looking at patches", start, count, "patches", fraction)
            with timer.stage("prediction" if self._model is not None else "masking"):
                positions = draw_positions(
                    size, settings.masked_share, len(patches[part]), generator, backend.device
                )
                parts.append(self._masked(volume, backend, drawn[part], patches[part], positions))
        return BlindSpots(*(_joined(each) for each in zip(*parts, strict=True)))

    def _masked(
        self,
        volume: Volume,
        backend: Backend,
        drawn: npt.NDArray[np.int64],
        patches: npt.NDArray[Any],
        positions: torch.Tensor,
    ) -> tuple[Any, ...]:
        """Return positions, originals, replacements, predictions and losses of some patches."""
        values = backend.put(patches.astype(np.float32))
        originals, new = (
            values_at(values, positions),
            replacement_values(values, positions, _REPLACEMENT),
        )
        found = positions.cpu().numpy(), backend.get(originals), backend.get(new)
        if self._model is None:
            return *found, None, None
        return *found, *self._predict(volume, backend, drawn, patches.shape[1:], positions)

    def _predict(
        self,
        volume: Volume,
        backend: Backend,
        drawn: npt.NDArray[np.int64],
        size: tuple[int, ...],
        positions: torch.Tensor,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Predict patches with their pixels hidden, as a training step does."""
        assert self._model is not None
        model, count = self._model, len(drawn)
        arrangement, channels = model.arrange(volume), Source(volume, len(size)).channels
        first, outputs = arrangement.first, arrangement.outputs
        image_of, output_of = arrangement.predicted_by
        planes = arrangement.members[image_of[drawn[:, 0]]]  # (count, inputs)
        corners = np.column_stack([planes.ravel(), drawn[:, 1:].repeat(planes.shape[1], axis=0)])
        raw = _read(volume, corners, size)
        inputs = model.scale.normalise(backend.put(raw), channels[planes.ravel()])
        inputs = inputs.view(count, -1, *size)
        # a copy, for the hidden ones take its place
        noisy = inputs[:, first : first + outputs].flatten(0, 1).clone()
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
        errors = values_at(predicted, positions) - values_at(truth, positions)
        losses = backend.get((errors**2).mean(1))
        return model.scale.restore(backend.get(predicted), channels[drawn[:, 0]]), losses


def _read(
    volume: Volume, corners: npt.NDArray[np.int64], size: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Read patches at (plane, first voxel)."""
    leading = volume.shape[: -len(size)]
    found: npt.NDArray[Any]
    found = read_patches(volume.data, in_volume(corners, leading), (1,) * len(leading) + size)
    return found.reshape(-1, *size)


def _joined(parts: tuple[Any, ...]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


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
