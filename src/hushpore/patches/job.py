"""The job that samples patches, the way the denoiser does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from hushpore.base.errors import InputError
from hushpore.base.events import Job, Progress
from hushpore.base.record import make_record
from hushpore.patches.sampling import draw_corners

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.device.backend import Backend
    from hushpore.patches.settings import PatchSettings


@dataclass(frozen=True, eq=False)
class Patches:
    """Sampled patches.

    Attributes
    ----------
    corners : numpy.ndarray
        int64, shape (n_patches, volume.ndim): first voxel of each patch on every axis.
    patches : numpy.ndarray
        Shape (n_patches, y, x), dtype of the volume.
    patch_shape : tuple of int
        (y, x) of a patch; a patch lies in one slice.
    volume : Volume
        Where they come from.
    timings : dict of str to float
        Seconds by stage.
    provenance : dict
        The record of the job.
    """

    corners: npt.NDArray[np.int64]
    patches: npt.NDArray[Any]
    patch_shape: tuple[int, int]
    volume: Volume
    timings: dict[str, float]
    provenance: dict[str, Any]

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        edge = " x ".join(str(n) for n in self.patch_shape)
        return f"{len(self.corners)} patches of {edge} px"


def sample_patches(volume: Volume, settings: PatchSettings, backend: Backend) -> Job:
    """Draw patches uniformly from all slices of a volume.

    With the same seed and size these are the first patches that the denoiser trains on in 2D.

    Raises
    ------
    InputError
        If a slice is smaller than a patch.
    """
    require_room(volume, (settings.patch_size,) * 2, "patch_size")
    timer = backend.timer()
    yield Progress("sampling", 0, settings.n_patches, "patches", 0.0)
    with timer.stage("sampling"):
        # drawing on the backend's own generator gives what the denoiser draws there
        generator = torch.Generator(backend.device).manual_seed(settings.seed)
        slices = volume.array().reshape(-1, *volume.shape[-2:])
        size = (settings.patch_size, settings.patch_size)
        corners = draw_corners(
            slices.shape, (1, *size), settings.n_patches, generator, backend.device
        )
    with timer.stage("extraction"):
        # windows are views: only the patches themselves are read
        n, y, x = corners.cpu().numpy().T
        patches = sliding_window_view(slices, size, axis=(1, 2))[n, y, x]
    # a 2D image has no leading axes to find the slice on
    leading = np.unravel_index(n, (1, *volume.shape[:-2]))[1:]
    positions = np.stack([*leading, y, x], axis=1)
    timing = timer.timing()
    yield Progress("sampling", settings.n_patches, settings.n_patches, "patches", 1.0)
    record = make_record("patches", volume, settings, backend.name, timing)
    return Patches(positions, patches, size, volume, record["timings"], record)


def require_room(volume: Volume, size: tuple[int, ...], setting: str) -> None:
    """Check that a patch fits into a volume.

    Raises
    ------
    InputError
        If it does not; names the setting to change.
    """
    shape = volume.shape[-len(size) :]
    if any(length < edge for length, edge in zip(shape, size, strict=True)):
        image = " x ".join(str(n) for n in shape)
        patch = " x ".join(str(n) for n in size)
        raise InputError(
            f"{volume.name} is smaller than a patch: {image} against {patch}. "
            f"Choose a smaller {setting}, or a larger image."
        )
