"""What the training learns from: the whole volume on the device, or blocks of it in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hushpore.n2v2.images import Arrangement, Images
from hushpore.n2v2.regions import PLACES_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer
    from hushpore.n2v2.regions import Regions
    from hushpore.n2v2.source import Scale, Source

#: Steps for which a block is kept; reading it should then weigh little.
STEPS_PER_BLOCK = 100

#: Bytes a voxel takes beside its own while a block is normalised.
_WORKING = 8


@dataclass
class BlockSampler:
    """Blocks of a volume that does not fit into memory, one at a time, drawn at random.

    A block is made of whole images in 2D, and of runs of slices in 3D. Which ones is decided by
    the seed and the number of the block alone, so that a training that goes on from a checkpoint
    meets the same. Where patches lie in regions, blocks are drawn by what these hold.
    """

    # the volume, what the network sees of it, its grey scale, and where to put it
    source: Source
    arrangement: Arrangement
    scale: Scale
    backend: Backend
    timer: StageTimer
    budget: float  # bytes that a block may take
    min_rows: int  # rows of a patch: in 3D the slices that a block must have
    seed: int  # start of the random numbers
    regions: Regions | None = None  # where patches may lie; by default anywhere
    # as `Regions.row_weights` returns it, where there are regions
    weight: npt.NDArray[np.float64] | None = None
    _number: int = -1
    _images: Images | None = None

    def at(self, step: int) -> Images:
        """Return the block for a step, counted from 0; reads it where it is another than before."""
        number = step // STEPS_PER_BLOCK
        if self._images is None or number != self._number:
            self._images = None  # its memory is needed for the next
            self._images, self._number = self._read(number), number
        return self._images

    def in_volume(self, step: int, corners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return where in all images places (image, first voxel in it) of a step's block lie."""
        chosen, rows, _ = self._drawn(step // STEPS_PER_BLOCK)
        return np.column_stack([chosen[corners[:, 0]], corners[:, 1] + rows.start, corners[:, 2:]])

    def _read(self, number: int) -> Images:
        chosen, rows, shares = self._drawn(number)
        images = self._load(chosen, rows)
        if self.regions is None:
            return images
        with self.timer.stage("regions"):
            places = self.regions.places(chosen, rows, shares)
            return replace(images, places=places.to(self.backend.device))

    def _drawn(
        self, number: int
    ) -> tuple[npt.NDArray[np.int64], slice, npt.NDArray[np.float64] | None]:
        """Return the images of a block, its rows, and what weights within it are multiplied by."""
        rng = np.random.default_rng((self.seed, number))
        n_images, size = len(self.arrangement.members), self.source.size
        a_voxel = self.source.bytes_a_voxel(_WORKING) * self.arrangement.inputs
        if self.regions is not None:
            a_voxel += PLACES_BYTES
        fitting = max(int(self.budget / (math.prod(size[1:]) * a_voxel)), 1)
        # one run of slices in several images costs as much memory as one long run in one
        depth = size[0] if len(size) == 2 else min(size[0], max(self.min_rows, fitting))
        count = max(1, min(n_images, fitting // depth))
        if self.weight is not None:
            first_rows = depth - self.min_rows + 1
            chosen, start, shares = draw_weighted_block(self.weight, first_rows, count, rng)
            return chosen, slice(start, start + depth), shares
        start = int(rng.integers(0, size[0] - depth + 1))
        chosen = np.sort(rng.permutation(n_images)[:count])
        return chosen, slice(start, start + depth), None

    def _load(self, images: npt.NDArray[np.int64], rows: slice) -> Images:
        with self.timer.stage("reading") as run:
            planes, part = self.arrangement.part(images)
            raw = [each.stored(planes, rows) for each in self.source.scans]
            run.nbytes = nbytes = sum(each.nbytes for each in raw)
        with self.timer.stage("upload", nbytes=nbytes):
            stored = [self.source.put(each, planes, self.backend) for each in raw]
            values = self.scale.normalise_scans(stored, self.source.channels[planes])
            return Images.of(values, part, len(stored))


def draw_weighted_block(
    weight: npt.NDArray[np.float64], fitting: int, count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], int, npt.NDArray[np.float64]]:
    """Draw a block so that, over many, patches are drawn from each place by its weight.

    `weight`: float64, shape (n_images, n_first_rows): see
    `hushpore.n2v2.regions.Regions.row_weights`. `fitting`: first rows of patches that fit into a
    block. `count`: images that are drawn for it; those drawn twice are taken once, with double
    weight.
    Returns: numbers of the images, in order; first row of the block; by what weights within it are
    multiplied, float64, shape (images, fitting).
    """
    n_images, n_first = weight.shape
    runs = n_first - fitting + 1
    first = np.arange(n_first)
    # a place in the middle lies in more runs of rows than one at an end
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
