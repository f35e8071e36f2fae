"""The images of a training: the whole volume on the device, or random blocks of it in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from hushpore.denoising.images import Arrangement, Images

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float64s, Int64s
    from hushpore.base.rescaled import Scaled
    from hushpore.denoising.images import PatchPlaces
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer

#: Minimum number of steps per block, so that reading takes a small share of the time.
STEPS_PER_BLOCK = 100

#: On a GPU a block is used for about as long as reading it takes, at some 2 GB and 1,000 steps per
#: second. Fixed numbers, not measured ones, keep a training reproducible.
_BYTES_PER_STEP = 2 << 20

#: Additional bytes per voxel while a block is normalised.
_WORKING = 8


@dataclass
class BlockSampler:
    """Draws random blocks of a volume that does not fit into memory, one at a time.

    A block consists of whole images in 2D, and of runs of slices in 3D. It depends only on the seed
    and on its number, so that a resumed training gets the same blocks. With training regions,
    blocks are drawn in proportion to the weight of the regions in them.

    On a GPU the next block replaces the old one at the same place in GPU memory, as captured steps
    require.
    """

    source: PlaneReader
    arrangement: Arrangement
    scale: Scale
    backend: Backend
    timer: StageTimer
    budget: float  # maximum size of a block in bytes
    min_rows: int  # rows of a patch: in 3D the minimum number of slices of a block
    seed: int  # of the random numbers
    regions: PatchPlaces | None = None  # allowed positions of patches; None: all
    # `PatchPlaces.row_weights`, if there are regions
    weight: Float64s | None = None
    _number: int = -1
    _images: Images | None = None

    def at(self, step: int) -> Images:
        """Return the block for a step, counted from 0; reads it if it is a new one."""
        number = step // self.steps_per_block
        if self._images is None or number != self._number:
            if not self.backend.is_cuda:
                self._images = None  # its memory is needed for the next
            with self.timer.stage("reading") as run:
                raw = self._read(number)
                run.nbytes = sum(each.nbytes for each in raw.stored)
            self._images, self._number = self._upload(raw), number
        return self._images

    @cached_property
    def steps_per_block(self) -> int:
        """Number of steps per block."""
        if not self.backend.is_cuda:
            return STEPS_PER_BLOCK
        depth, count = self._extent
        voxels = count * self.arrangement.inputs * depth * math.prod(self.source.size[1:])
        return max(STEPS_PER_BLOCK, voxels * self.source.bytes_a_voxel(0) // _BYTES_PER_STEP)

    def in_volume(self, step: int, corners: Int64s) -> Int64s:
        """Return corners (image, first voxel) in a step's block as corners in the volume."""
        chosen, rows, _ = self._drawn(step // self.steps_per_block)
        return np.column_stack([chosen[corners[:, 0]], corners[:, 1] + rows.start, corners[:, 2:]])

    def _read(self, number: int) -> _Raw:
        chosen, rows, shares = self._drawn(number)
        planes, part = self.arrangement.part(chosen)
        stored = [each.stored(planes, rows) for each in self.source.scans]
        return _Raw(stored, planes, part, chosen, rows, shares)

    def _upload(self, raw: _Raw) -> Images:
        with self.timer.stage("upload", nbytes=sum(each.nbytes for each in raw.stored)):
            stored = [self.source.put(each, raw.planes, self.backend) for each in raw.stored]
            channels = self.source.channels[raw.planes]
            if self.backend.is_cuda:
                images = self._replaced(stored, raw.part, channels)
            else:
                values = self.scale.normalise_scans(stored, channels)
                images = Images.of(values, raw.part, len(stored))
        if self.regions is None:
            return images
        with self.timer.stage("regions"):
            places = self.regions.places(raw.chosen, raw.rows, raw.shares)
            return replace(images, places=places.to(self.backend.device))

    def _replaced(self, stored: list[torch.Tensor], part: Arrangement, channels: Int64s) -> Images:
        """Replace the previous block in device memory, plane by plane."""
        images, room = self._images, self._extent[1] * self.arrangement.inputs
        if images is None:
            device, size = stored[0].device, stored[0].shape[1:]
            planes = torch.zeros((len(stored) * room, *size), device=device)
            images = Images.of(planes, part, len(stored))
        elif len(part.members) == len(images.members):
            images.members.copy_(torch.from_numpy(part.members))
        else:
            images = Images.of(images.planes, part, len(stored))
        for number, planes in enumerate(stored):
            for plane, (values, channel) in enumerate(zip(planes, channels, strict=True)):
                normalised = self.scale.normalise(values[None], channel[None])
                images.planes[number * room + plane].copy_(normalised[0])
        return images

    @cached_property
    def _extent(self) -> tuple[int, int]:
        """Number of rows of a block, and maximum number of its images."""
        n_images, size = len(self.arrangement.members), self.source.size
        a_voxel = self.source.bytes_a_voxel(_WORKING) * self.arrangement.inputs
        if self.regions is not None:
            a_voxel += self.regions.voxel_bytes
        fitting = max(int(self.budget / (math.prod(size[1:]) * a_voxel)), 1)
        # the same slices of several images take as much memory as more slices of one image
        depth = size[0] if len(size) == 2 else min(size[0], max(self.min_rows, fitting))
        return depth, max(1, min(n_images, fitting // depth))

    def _drawn(self, number: int) -> tuple[Int64s, slice, Float64s | None]:
        """Return the images of a block, its rows, and the factors of the weights in it."""
        rng = np.random.default_rng((self.seed, number))
        depth, count = self._extent
        if self.weight is not None:
            first_rows = depth - self.min_rows + 1
            chosen, start, shares = draw_weighted_block(self.weight, first_rows, count, rng)
            return chosen, slice(start, start + depth), shares
        start = int(rng.integers(0, self.source.size[0] - depth + 1))
        chosen = np.sort(rng.permutation(len(self.arrangement.members))[:count])
        return chosen, slice(start, start + depth), None


class _Raw(NamedTuple):
    """A block as stored in the file."""

    stored: list[Array | Scaled]  # of each scan
    planes: Int64s
    part: Arrangement  # its images, in terms of these planes
    # see `BlockSampler._drawn`
    chosen: Int64s
    rows: slice
    shares: Float64s | None


def draw_weighted_block(
    weight: Float64s, fitting: int, count: int, rng: np.random.Generator
) -> tuple[Int64s, int, Float64s]:
    """Draw a block such that, on average, patches are drawn in proportion to their weights.

    `weight`: float64, shape (n_images, n_first_rows): see
    `hushpore.denoising.images.PatchPlaces.row_weights`. `fitting`: number of first rows of
    patches that fit into a block. `count`: number of images to draw; an image drawn twice is used
    once with double weight.
    Returns: numbers of the images, in order; first row of the block; factors of the weights in it,
    float64, shape (images, fitting).
    """
    n_images, n_first = weight.shape
    runs = n_first - fitting + 1
    first = np.arange(n_first)
    # positions in the middle are in more runs of rows than those at the ends
    held_by = np.minimum(first, runs - 1) - np.maximum(first - fitting + 1, 0) + 1
    in_run = sliding_window_view(weight / held_by, fitting, axis=1).sum(2)  # (n_images, runs)
    total = in_run.sum(0)
    start = int(rng.choice(runs, p=total / total.sum()))
    of_images = in_run[:, start]
    chosen, times = np.unique(
        rng.choice(n_images, count, p=of_images / of_images.sum()), return_counts=True
    )
    shares = (times / of_images[chosen])[:, None] / held_by[start : start + fitting]
    return chosen, start, shares
