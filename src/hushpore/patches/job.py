"""The patch job: draws positions, reads patches, calculates features and forms groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.events import Job, Note, Progress, Remedy
from hushpore.base.provenance import make_provenance
from hushpore.base.volume import require_values
from hushpore.patches.places import (
    Places,
    draw_corners,
    draw_groups,
    draw_stratified,
    foreground,
    gradient_magnitude,
    grid_corners,
    in_volume,
    patch_features,
    patches_at,
)
from hushpore.patches.reading import read_patches
from hushpore.patches.result import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.arrays import Int64s
    from hushpore.base.volume import Volume
    from hushpore.device.backend import Backend
    from hushpore.patches.settings import PatchSettings

#: Maximum number of patches of a grid or of points.
MAX_PATCHES = 100_000

#: Neighbours in time and in other channels are no neighbours: they are so many voxels away.
_FAR = 1e9


def sample_patches(
    volume: Volume,
    settings: PatchSettings,
    backend: Backend,
    inspect: Callable[..., Job] | None = None,
) -> Job:
    """Draw patches from a volume, read them, and calculate their features.

    With the same seed and size the first patches of the sampler ``"uniform"`` are the first batch
    of a training. Later batches differ, because noise and orientations are drawn in between.

    `inspect`: a generator function that masks pixels and predicts them: called with volume,
    settings, backend, the planes and first voxels of the patches as `draw_patches` gives them, the
    patches, the random generator and the timer. It yields events and returns `BlindSpots`.
    Yields: Progress, Note, Timing.
    Returns: `Patches`.
    Raises InputError if a patch does not fit into the volume, or a setting cannot be used.
    """
    size = settings.size
    if volume.n_spatial < settings.dimensions:
        raise InputError(f"{volume.name} is a 2D image ({volume.facts}). Use dimensions=2.")
    require_room(volume, size)
    timer = backend.timer()
    yield Progress("sampling", 0, settings.n_patches, "patches", 0.0)
    # drawing on the backend's own generator gives what the denoiser draws there first
    generator = torch.Generator(backend.device).manual_seed(settings.seed)
    notes: list[Note] = []
    with timer.stage("sampling"):
        drawn = draw_patches(volume, settings, backend, generator, notes)
        corners = in_volume(drawn, volume.shape[: -len(size)])
    yield from notes
    yield Progress("reading", 0, len(corners), "patches", 0.1)
    with timer.stage("extraction"):
        window = (1,) * (volume.ndim - len(size)) + size
        patches = read_patches(volume.data, corners, window).reshape(-1, *size)
    with timer.stage("features"):
        features = patch_features(patches)
    blind = None
    if inspect is not None:
        blind = yield from inspect(volume, settings, backend, drawn, patches, generator, timer)
        if blind.losses is not None:
            features["loss"] = blind.losses.astype(np.float64)
    with timer.stage("grouping"):
        groups = _groups(corners, volume, settings)
    timing = timer.timing()
    yield timing
    yield Progress("sampling", len(corners), len(corners), "patches", 1.0)
    provenance = make_provenance("patches", volume, settings, backend.description, timing, notes)
    return Patches(
        corners, patches, size, features, groups, blind, volume, provenance["timings"], provenance
    )


def draw_patches(
    volume: Volume,
    settings: PatchSettings,
    backend: Backend,
    generator: torch.Generator,
    notes: list[Note],
) -> Int64s:
    """Return the plane and the first voxel in it of each patch, as the settings say.

    Planes, along the axes that a patch has, are numbered over all leading axes of the volume.

    Returns: int64, shape (n_patches, 1 + dimensions).
    """
    n_spatial = settings.dimensions
    leading, plane = volume.shape[:-n_spatial], volume.shape[-n_spatial:]
    shape, size = (int(np.prod(leading)), *plane), (1, *settings.size)
    count, device = settings.n_patches, backend.device
    match settings.sampler:
        case "uniform":
            corners = draw_corners(shape, size, count, generator, device)
        case "stratified":
            corners = draw_stratified(shape, size, count, generator, device)
        case "grid":
            _require_few(_grid_count(shape, size, settings.overlap))
            overlap = [min(settings.overlap, edge - 1) for edge in size]
            corners = grid_corners(shape, size, overlap, device)
        case "points":
            return _at_points(volume, settings, notes)
        case _:
            weights = _weights(volume, settings, backend, notes).reshape(shape)
            corners = Places.from_weights(weights, size).draw(count, generator)
    return corners.cpu().numpy()


def require_room(volume: Volume, size: tuple[int, ...]) -> None:
    """Check that a patch fits into a volume.

    Raises InputError if it does not; names the setting to change.
    """
    shape = volume.shape[-len(size) :]
    if any(length < edge for length, edge in zip(shape, size, strict=True)):
        image = " x ".join(str(n) for n in shape)
        patch = " x ".join(str(n) for n in size)
        too_small = f"The slices of {volume.name} ({image} pixels) are"
        setting = "patch_size"
        if len(size) == 3:
            too_small = f"{volume.name} ({image} voxels) is"
            setting = "patch_depth or patch_size"
        raise InputError(f"{too_small} smaller than a patch ({patch}). Choose a smaller {setting}.")


def _weights(
    volume: Volume, settings: PatchSettings, backend: Backend, notes: list[Note]
) -> torch.Tensor:
    """Return the weight of every voxel, in the shape of the volume."""
    if settings.sampler != "weights":
        values = backend.put(require_values(volume))
        if settings.sampler == "foreground":
            return foreground(values)
        return gradient_magnitude(values, settings.dimensions)
    given = np.asarray(volume.auxiliary_of(settings, "weights"))
    if given.dtype.kind in "iu":
        if settings.weights_are_labels:
            # the number of a label is its name, not how much it weighs
            given = given != 0
        else:
            if np.unique(given[given != 0]).size > 1:
                text = f"The weights are integers ({given.dtype}), used as values."
                labels = Remedy("Treat as labels", {"weights_are_labels": True})
                notes.append(Note(text, subject="result", remedy=labels))
            # PyTorch compares no unsigned ones of more than 8 bits
            given = given.astype(np.int64)
    weights = backend.put(np.ascontiguousarray(given))
    return weights.expand(volume.shape)


def _at_points(volume: Volume, settings: PatchSettings, notes: list[Note]) -> Int64s:
    points = np.asarray(volume.auxiliary_of(settings, "points"), np.float64)
    if not len(points):
        raise InputError("There are no points. Add one for each patch.")
    _require_few(len(points))
    drawn, moved = patches_at(points, volume.shape, settings.size)
    if moved:
        text = f"{moved} of {len(points)} patches were shifted to lie inside {volume.name}."
        notes.append(Note(text, subject="result"))
    return drawn


def _groups(corners: Int64s, volume: Volume, settings: PatchSettings) -> Int64s:
    if settings.group_size == 1:
        return np.empty((0, 1), np.int64)
    steps = np.array([_FAR] * (volume.ndim - volume.n_spatial) + list(volume.spacing))
    how = (settings.n_groups, settings.group_size, settings.n_neighbours, settings.seed)
    return draw_groups(corners * steps, *how)


def _grid_count(shape: Sequence[int], size: Sequence[int], overlap: int) -> int:
    along = [
        -(-(length - edge) // (edge - min(overlap, edge - 1))) + 1
        for length, edge in zip(shape, size, strict=True)
    ]
    return int(np.prod(along, dtype=object))


def _require_few(count: int) -> None:
    if count > MAX_PATCHES:
        raise InputError(
            f"The settings give {count:,} patches; at most {MAX_PATCHES:,} are supported. Choose "
            "larger patches, less overlap or fewer points."
        )
