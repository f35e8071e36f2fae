"""What the training learns from: the whole volume on the device, or blocks of it in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.n2v2.images import Arrangement, Images

if TYPE_CHECKING:
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer
    from hushpore.n2v2.source import Scale, Source

#: Steps for which a block is kept; reading it should then weigh little.
STEPS_EACH = 100

#: Bytes a voxel takes beside its own while a block is normalised.
_WORKING = 8


@dataclass
class Blocks:
    """Blocks of a volume that does not fit into memory, one at a time, drawn at random.

    A block is made of whole images in 2D, and of runs of slices in 3D. Which ones is decided by
    the seed and the number of the block alone, so that a training that goes on from a checkpoint
    meets the same.

    Attributes
    ----------
    source, arrangement, scale, backend, timer
        The volume, what the network sees of it, its grey scale, and where to put it.
    budget : float
        Bytes that a block may take.
    least : int
        Slices that a block must have in 3D: the depth of a patch.
    seed : int
        Start of the random numbers.
    """

    source: Source
    arrangement: Arrangement
    scale: Scale
    backend: Backend
    timer: StageTimer
    budget: float
    least: int
    seed: int
    _number: int = -1
    _images: Images | None = None

    def at(self, step: int) -> Images:
        """Return the block for a step, counted from 0; reads it where it is another than before."""
        number = step // STEPS_EACH
        if self._images is None or number != self._number:
            self._images = None  # its memory is needed for the next
            self._images, self._number = self._read(number), number
        return self._images

    def _read(self, number: int) -> Images:
        rng = np.random.default_rng((self.seed, number))
        n_images, size = len(self.arrangement.members), self.source.size
        per_row = math.prod(size[1:]) * (self.source.dtype.itemsize + _WORKING)
        rows = max(int(self.budget / (per_row * self.arrangement.inputs)), 1)
        if len(size) == 2:
            count = max(1, rows // size[0])
            return self._load(np.sort(rng.permutation(n_images)[:count]), slice(0, size[0]))
        # one run of slices in several images costs as much memory as one long run in one
        depth = min(size[0], max(self.least, rows))
        start = int(rng.integers(0, size[0] - depth + 1))
        count = max(1, min(n_images, rows // depth))
        chosen = np.sort(rng.permutation(n_images)[:count])
        return self._load(chosen, slice(start, start + depth))

    def _load(self, images: np.ndarray, rows: slice) -> Images:
        with self.timer.stage("reading") as run:
            planes, part = self.arrangement.part(images)
            raw = self.source.stored(planes, rows)
            run.nbytes = raw.nbytes
        with self.timer.stage("upload", nbytes=raw.nbytes):
            there = self.source.put(raw, planes, self.backend)
            values = self.scale.normalise(there, self.source.channels[planes])
            return Images.of(values, part)
