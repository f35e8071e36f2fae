"""Training patches, most of which are drawn in the sample of a scan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore.patches.places import Places

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Float64s, Int64s
    from hushpore.denoising.images import Arrangement
    from hushpore.scan.sample import Sample

#: Weight of a patch outside the sample, relative to one inside: the network sees some of the air.
_OUTSIDE = 0.02

#: Maximum number of patch positions to choose from; in a large volume they are a random selection.
_POSITIONS = 1 << 20


class SamplePlaces:
    """The positions of training patches, most of them in the sample.

    A patch at the surface counts by its share inside, and one outside a little.

    `sample`: of the scan. `arrangement`: of its planes. `size`: of a patch. `seed`: of the random
    selection of positions in a large volume.
    """

    #: Memory for each voxel while positions are determined, in bytes.
    voxel_bytes = 0

    def __init__(
        self, sample: Sample, arrangement: Arrangement, size: tuple[int, ...], seed: int
    ) -> None:
        self._sample, self._size, self._seed = sample, size, seed
        self._planes = arrangement.predicted[:, 0]
        self._plane = sample.shape[-len(size) :]

    def places(self, images: Int64s, rows: slice, shares: Float64s | None = None) -> Places:
        """Return the positions in a part of the scan; see `TrainingRegions.places`."""
        shape = (len(images), rows.stop - rows.start, *self._plane[1:])
        room = [n - m + 1 for n, m in zip(shape, (1, *self._size), strict=True)]
        count = math.prod(room)
        numbers = np.arange(count)
        if count > _POSITIONS:
            numbers = np.random.default_rng(self._seed).integers(0, count, _POSITIONS)
        corners = np.stack(np.unravel_index(numbers, room), 1)
        weights = self._weights(
            images[corners[:, 0]], corners[:, 1:] + [rows.start, *[0] * (len(self._size) - 1)]
        )
        if shares is not None:
            weights = weights * shares[corners[:, 0], corners[:, 1]]
        return Places.from_corners(torch.from_numpy(corners), shape, torch.from_numpy(weights))

    def row_weights(self) -> Generator[float, None, Float64s]:
        """Return the weight of each image and first row; see `TrainingRegions.row_weights`."""
        n_first = self._plane[0] - self._size[0] + 1
        weight = np.zeros((len(self._planes), n_first))
        columns = [
            np.arange(0, n - m + 1, max(m // 4, 1))
            for n, m in zip(self._plane[1:], self._size[1:], strict=True)
        ]
        for image in range(len(weight)):
            rows = np.arange(n_first)
            grid = np.stack(np.meshgrid(rows, *columns, indexing="ij"), -1)
            corners = grid.reshape(-1, len(self._size))
            found = self._weights(np.full(len(corners), image), corners)
            weight[image] = found.reshape(n_first, -1).sum(1)
            yield (image + 1) / len(weight)
        return weight

    def _weights(self, images: Int64s, corners: Int64s) -> Float64s:
        if len(self._size) == 2:
            # a plane is a slice
            corners = np.column_stack([self._planes[images], corners])
        return _OUTSIDE + self._sample.shares(corners, self._size)
