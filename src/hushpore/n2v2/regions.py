"""Where the denoiser may train: about given points or labels, and not in regions left out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.record import fingerprint
from hushpore.patches.places import Places, corners_at, window_sums

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.n2v2.images import Arrangement
    from hushpore.n2v2.settings import DenoiseSettings

#: The settings that name a region.
REGIONS = ("train_at", "leave_out")


def has_regions(settings: DenoiseSettings) -> bool:
    """Whether the settings say where to train."""
    return any(getattr(settings, name) for name in REGIONS)


def training_places(
    volume: Volume, settings: DenoiseSettings, arrangement: Arrangement, size: tuple[int, ...]
) -> Places | None:
    """Return the places that training patches are drawn from, or None: anywhere.

    Parameters
    ----------
    volume : Volume
        With what the settings name beside it.
    settings : DenoiseSettings
        Of which ``train_at`` and ``leave_out`` are looked at.
    arrangement : Arrangement
        How planes make up images.
    size : tuple of int
        Shape of a patch.

    Returns
    -------
    Places or None
        Over (image, *size of an image), on the CPU.

    Raises
    ------
    InputError
        If no patch can be placed.
    """
    at = volume.beside_of(settings, "train_at")
    without = volume.beside_of(settings, "leave_out")
    if at is None and without is None:
        return None
    n_spatial = len(size)
    shape = (len(arrangement.members), *volume.shape[-n_spatial:])
    forbidden = None
    if without is not None:
        forbidden = _of_images(np.asarray(without) != 0, volume, arrangement, n_spatial)
    if at is None:
        every = torch.ones(shape, dtype=torch.bool)
        return Places.weighted(every, (1, *size), forbidden)
    if at.shape == volume.spatial_shape:
        wanted = _of_images(np.asarray(at) != 0, volume, arrangement, n_spatial)
        return Places.weighted(wanted, (1, *size), forbidden)
    corners = _about_points(at, volume, arrangement, size)
    if forbidden is not None:
        held = window_sums(forbidden, (1, *size))
        corners = corners[held[tuple(corners.T)] == 0]
    if not len(corners):
        raise InputError(
            "There is no patch to train on: train_at has no points, or all of their patches reach "
            "into leave_out."
        )
    return Places.of(corners, shape)


def regions_fingerprint(volume: Volume, settings: DenoiseSettings) -> str:
    """Return what tells these regions from others; empty where there are none."""
    found = (volume.beside_of(settings, name) for name in REGIONS)
    return "".join("" if each is None else fingerprint(each) for each in found)


def _of_images(
    mask: npt.NDArray[np.bool_], volume: Volume, arrangement: Arrangement, n_spatial: int
) -> torch.Tensor:
    """Return a mask of the volume for every image: where any of what it predicts is masked."""
    planes = np.broadcast_to(mask, volume.shape).reshape(-1, *volume.shape[-n_spatial:])
    return torch.from_numpy(planes[arrangement.predicted].any(axis=1))


def _about_points(
    points: npt.NDArray[Any], volume: Volume, arrangement: Arrangement, size: tuple[int, ...]
) -> torch.Tensor:
    """Return the patches about points: image, and first voxel in it."""
    n_spatial = len(size)
    leading = volume.shape[:-n_spatial]
    # points that do not say which time or channel lie in the first
    missing = np.zeros((len(points), volume.ndim - points.shape[1]))
    where = torch.from_numpy(np.hstack([missing, points]))
    corners, _ = corners_at(where, volume.shape, (1,) * len(leading) + size)
    strides = [math.prod(leading[axis + 1 :]) for axis in range(len(leading))]
    planes = (corners[:, : len(leading)] * torch.tensor(strides, dtype=torch.int64)).sum(1)
    image_of = np.empty(arrangement.predicted.size, np.int64)
    outputs = arrangement.predicted.shape[1]
    image_of[arrangement.predicted.ravel()] = np.arange(len(arrangement.predicted)).repeat(outputs)
    images = torch.from_numpy(image_of)[planes]
    return torch.cat([images[:, None], corners[:, len(leading) :]], 1)
