"""Regions from which training patches are drawn: around given points or labels, or not excluded.

Masks are read in pieces, for any part of the volume, and never need to fit into memory as a whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.provenance import fingerprint
from hushpore.patches.places import Places, no_place, patches_at, window_sums

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Float64s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.denoising.images import Arrangement
    from hushpore.denoising.settings import DenoiseSettings

#: The settings that name a region.
REGIONS = ("train_at", "leave_out")

#: Memory for each voxel while the positions of patches are determined, in bytes.
PLACES_BYTES = 56

#: Number of voxels of a mask that are read in one piece.
_PIECE = 1 << 21

_NONE_LEFT = (
    "There are no training patches: train_at has no points, or all patches around them overlap "
    "leave_out. Add points, or exclude less."
)


def has_regions(settings: DenoiseSettings) -> bool:
    """Whether the settings restrict the training to regions."""
    return any(getattr(settings, name) for name in REGIONS)


def regions_fingerprint(volume: Volume, settings: DenoiseSettings) -> str:
    """Return a fingerprint of the training regions; empty if there are none."""
    found = (volume.auxiliary_of(settings, name) for name in REGIONS)
    return "".join("" if each is None else fingerprint(each) for each in found)


class PatchPlaces(Protocol):
    """Weights of the positions that training patches are drawn from."""

    @property
    def voxel_bytes(self) -> int:
        """Memory for each voxel while the positions are determined, in bytes."""

    def places(self, images: Int64s, rows: slice, shares: Float64s | None = None) -> Places:
        """Return the positions of patches in a part of the volume.

        `images`: int64: numbers of the images of the part, in order. `rows`: range of rows along
        the first axis, with start and stop. `shares`: float64, shape (n_images, n_first_rows):
        factors for the weights of the positions, by image and first row of the patch in the part.
        Returns: over (image, *size) of the part, on the CPU.
        Raises InputError if no patch can be placed.
        """

    def row_weights(self) -> Generator[float, None, Float64s]:
        """Calculate the weights of all positions, summed by image and first row of the patch.

        Yields: the completed share.
        Returns: float64, shape (n_images, n_first_rows).
        Raises InputError if no patch can be placed.
        """


class TrainingRegions:
    """The positions that training patches are drawn from.

    `volume`: with any points, labels or masks that the settings name. `settings`: only ``train_at``
    and ``leave_out`` are used.
    Raises InputError if there are points, but no patch can be placed around any of them.
    """

    #: See `PatchPlaces`.
    voxel_bytes = PLACES_BYTES

    def __init__(
        self,
        volume: Volume,
        settings: DenoiseSettings,
        arrangement: Arrangement,
        size: tuple[int, ...],
    ) -> None:
        self._size = size
        self._plane = volume.shape[-len(size) :]
        self._included = volume.auxiliary_of(settings, "train_at")
        self._excluded = volume.auxiliary_of(settings, "leave_out")
        # masks have one axis more than patches if slices are processed separately
        self._is_stack = volume.n_spatial > len(size)
        n_masks = volume.spatial_shape[0] if self._is_stack else 1
        # planes that are predicted in one image differ only in their channel
        self._mask_of = arrangement.predicted[:, 0] % n_masks
        self._corners: Int64s | None = None
        if self._included is not None and self._included.shape != volume.spatial_shape:
            corners, _ = patches_at(self._included, volume.shape, size)
            corners[:, 0] = arrangement.predicted_by[0][corners[:, 0]]
            self._corners = corners[self._allowed(corners)]
            if not len(self._corners):
                raise InputError(_NONE_LEFT)

    def places(self, images: Int64s, rows: slice, shares: Float64s | None = None) -> Places:
        """Return the positions of patches in a part of the volume; see `PatchPlaces.places`."""
        shape = (len(images), rows.stop - rows.start, *self._plane[1:])
        if self._corners is not None:
            image, first = self._corners[:, 0], self._corners[:, 1]
            inside = (first >= rows.start) & (first + self._size[0] <= rows.stop)
            found = self._corners[np.isin(image, images) & inside]
            found[:, 0] = np.searchsorted(images, found[:, 0])
            found[:, 1] -= rows.start
            weights = None if shares is None else torch.from_numpy(shares[found[:, 0], found[:, 1]])
            return Places.from_corners(torch.from_numpy(found), shape, weights)
        sums = self._sums(images, rows)
        if shares is not None:
            sums = sums * torch.from_numpy(shares.reshape(*shares.shape, *[1] * (sums.ndim - 2)))
        return Places.from_sums(sums, shape)

    def row_weights(self) -> Generator[float, None, Float64s]:
        """Calculate the weights of all rows, reading masks in pieces; see `PatchPlaces`."""
        n_first = self._plane[0] - self._size[0] + 1
        if self._corners is not None:
            weight = np.zeros((len(self._mask_of), n_first))
            np.add.at(weight, (self._corners[:, 0], self._corners[:, 1]), 1)
            return weight
        # images with the same mask have the same weights
        _, one_of_each, back = np.unique(self._mask_of, return_index=True, return_inverse=True)
        weight = np.zeros((len(one_of_each), n_first))
        parts = self._parts(*weight.shape)
        for done, (images, first) in enumerate(parts, start=1):
            rows = slice(first.start, first.stop + self._size[0] - 1)
            weight[images, first] = self._sums(one_of_each[images], rows).flatten(2).sum(2).numpy()
            yield done / len(parts)
        if not weight.any():
            raise no_place((1, *self._size))
        return weight[back.ravel()]

    def _parts(self, n_images: int, n_first: int) -> list[tuple[slice, slice]]:
        """Cut masks into pieces: ranges of images, and of first rows of patches in them."""
        row = math.prod(self._plane[1:])
        # rows are read again for the patches of the next piece, so pieces must not be too thin
        rows = min(n_first, max(_PIECE // row, self._size[0]))
        together = max(1, _PIECE // (row * self._plane[0]))
        return [
            (slice(image, min(image + together, n_images)), slice(at, min(at + rows, n_first)))
            for image in range(0, n_images, together)
            for at in range(0, n_first, rows)
        ]

    def _sums(self, images: Int64s, rows: slice) -> torch.Tensor:
        """Return the weight of every position in a part, (image, *positions along each axis)."""
        forbidden = None if self._excluded is None else self._mask(self._excluded, images, rows)
        if self._included is not None:
            wanted = self._mask(self._included, images, rows)
        else:
            shape = (len(images), rows.stop - rows.start, *self._plane[1:])
            wanted = torch.ones(shape, dtype=torch.bool)
        return window_sums(wanted, (1, *self._size), forbidden)

    def _mask(self, data: Any, images: Int64s, rows: slice) -> torch.Tensor:
        """Read the mask of some images, (image, *size)."""
        numbers, back = np.unique(self._mask_of[images], return_inverse=True)
        found = [data[int(k), rows] if self._is_stack else data[rows] for k in numbers]
        return torch.from_numpy((np.stack([np.asarray(each) for each in found]) != 0)[back])

    def _allowed(self, corners: Int64s) -> Mask:
        """Return which patches are free of excluded voxels."""
        if self._excluded is None:
            return np.ones(len(corners), bool)
        where = corners[:, 1:]
        if self._is_stack:
            where = np.column_stack([self._mask_of[corners[:, 0]], where])
        size = (1, *self._size)[-where.shape[1] :]
        boxes = (tuple(map(slice, at, at + np.array(size))) for at in where)
        return np.array([not np.asarray(self._excluded[box]).any() for box in boxes], bool)
