"""Counts: recorrupted by sharing them out between an input and a target.

The noise of a few counts is far from normal, but it can be parted exactly. Of Poisson counts each
one goes into the input with a fixed probability, else into the target: both are Poisson counts
again, independent of each other, and a network that predicts the one from the other learns their
mean. It holds down to a fraction of a count a voxel.

After Monroy, Bacca, Tachella, Generalized Recorrupted-to-Recorrupted: Self-Supervised Learning
Beyond Gaussian Noise, https://doi.org/10.48550/arXiv.2412.04648.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hushpore.n2v2.images import Images
    from hushpore.n2v2.source import Scale

#: The share of the counts that goes into the input: with more it is more like the scan, with less
#: the target is.
KEPT = 0.8


@dataclass(frozen=True)
class Thinning:
    """Shares the counts of a scan out between inputs and targets."""

    first: float  # the normalised value of no count
    unit: float  # the normalised difference of one

    #: Variance of the noise of an input and of a target, over that of the scan.
    input_variance = 1 / KEPT
    target_variance = 1 / (1 - KEPT)

    @classmethod
    def of(cls, count: float, scale: Scale) -> Thinning:
        """Return what shares counts out.

        `count`: the grey value of one. `scale`: of one channel.
        """
        (mean,), (std,) = scale.mean, scale.std
        return cls(-mean / std, count / std)

    @property
    def noise(self) -> tuple[float, float]:
        """Deviation at the mean grey value, and by how much the variance grows from there."""
        # of counts the variance is the mean, and there are none at the first value
        return math.sqrt(-self.first * self.unit), -1 / self.first

    def pairs(
        self,
        images: Images,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read patches, and share the counts of each out between an input and a target.

        `images`, `corners`, `orientations`: as for `Images.windows`.
        Returns: inputs (count, inputs, *size) and targets (count, outputs, *size).
        """
        noisy = images.windows(corners, size, orientations)
        # where not all values were looked at, some may be below none
        counts = ((noisy - self.first) / self.unit).round().clamp_min(0)
        kept = torch.binomial(counts, torch.full_like(counts, KEPT), generator)
        own = slice(images.first, images.first + images.outputs)
        return (
            self.first + self.unit / KEPT * kept,
            self.first + self.unit / (1 - KEPT) * (counts - kept)[:, own],
        )
