"""Noise2Noise: training on two scans of the same object, each predicted from the other.

If the noise of two scans is independent, a network that predicts one from the other learns what
they have in common: the image. No noise model is needed. The two scans are a repeated scan, or
reconstructions from two halves of the projections.

After Lehtinen et al., Noise2Noise: Learning Image Restoration without Clean Data,
https://doi.org/10.48550/arXiv.1803.04189; for halves of the projections Hendriksen et al.,
Noise2Inverse: Self-supervised Deep Convolutional Denoising for Tomography,
https://doi.org/10.1109/TCI.2020.3019647.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_number
from hushpore.base.volume import Volume
from hushpore.scan.flat_blocks import move_into_chunks, read_boxes
from hushpore.scan.noise_model import NOTABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushpore.base.arrays import Float64s
    from hushpore.denoising.images import Images
    from hushpore.denoising.settings import DenoiseSettings

#: Minimum correlation of averages over small squares for two slices or scans to count as similar;
#: neighbouring slices of a scan have more than 0.9.
ALIKE = 0.5

#: Edge of the squares for the comparison of two scans, in pixels.
_EDGE = 8
#: Number of squares in the comparison.
_SQUARES = 4000
#: Share of the squares with the least image structure, in which the noise is compared.
_FLATTEST = 0.05

#: Minimum correlation of the noise of two scans for it to count as the same.
_SAME = 0.99

#: Minimum difference of the mean grey values for a note, in standard deviations of the scan.
_NOTABLE_SHIFT = 0.05


class Noise2Noise:
    """Makes training pairs with the input from one of two scans and the target from the other."""

    #: Noise variance of an input and of a target, relative to that of a scan.
    input_variance = target_variance = 1.0

    def pairs(
        self,
        images: Images,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the same patches of both scans; which of them is the input is drawn at random.

        `images`, `corners`, `orientations`: as for `Images.windows`.
        Returns: inputs (count, inputs, *size) and targets (count, outputs, *size).
        """
        scan = torch.randint(2, (len(corners),), generator=generator, device=corners.device)
        own = slice(images.first, images.first + images.outputs)
        inputs = images.windows(corners, size, orientations, scan)
        return inputs, images.windows(corners, size, orientations, 1 - scan)[:, own]


def load_second_scan(volume: Volume, settings: DenoiseSettings) -> Volume | None:
    """Return the second scan that the settings name, or None.

    Raises InputError if its shape differs from the volume's, or the volume has several channels.
    """
    values = volume.auxiliary_of(settings, "pair")
    if values is None:
        return None
    other = volume.auxiliary[settings.pair]
    name, source = (other.name, other.source) if isinstance(other, Volume) else (settings.pair, "")
    if tuple(values.shape) != volume.shape:
        raise InputError(
            f"pair: {name} has shape {tuple(values.shape)}, but {volume.name} has {volume.shape}. "
            "Choose a second scan with the same voxel grid."
        )
    n_channels = volume.shape[volume.axes.index("c")] if "c" in volume.axes else 1
    if n_channels > 1:
        raise InputError(
            f"Noise2Noise needs scans with a single channel; {volume.name} has {n_channels} "
            "channels. Choose one channel of both scans."
        )
    return volume.replace(values, name=name, source=source, auxiliary={})


@dataclass(frozen=True)
class Agreement:
    """Comparison of two scans of the same object."""

    # correlation of their averages over small squares: near 1 if they show the same object in the
    # same place
    likeness: float
    # correlation of their noise in flat regions: near 0 if it is independent
    noise_in_common: float
    # mean grey value of the second scan minus that of the first, and standard deviation of the
    # first
    shift: float
    deviation: float

    def notes(self, volume: Volume, pair: Volume) -> Iterator[str]:
        """Yield notes on problems of the pair."""
        if self.likeness < ALIKE:
            yield (
                f"{volume.name} and {pair.name} differ strongly (correlation {self.likeness:.2f} "
                f"after averaging over {_EDGE} x {_EDGE} pixels). Check that they show the same "
                "sample in the same position."
            )
            return
        if self.noise_in_common >= NOTABLE:
            yield (
                f"The noise of {volume.name} and {pair.name} is correlated "
                f"({self.noise_in_common:.2f}), so some of it will remain. Use scans that share no "
                "projections."
            )
        if abs(self.shift) > _NOTABLE_SHIFT * self.deviation:
            brighter = "brighter" if self.shift > 0 else "darker"
            yield (
                f"{pair.name} is {brighter} than {volume.name} by "
                f"{readable_number(abs(self.shift))} on average; the result has their mean grey "
                "value."
            )


def compare_scans(volume: Volume, pair: Volume, seed: int = 0) -> Agreement:
    """Compare two scans of the same object in small squares at random positions.

    `volume`, `pair`: of the same axes and shape, at least 4 pixels in y and x.
    Raises InputError if both scans have the same noise.
    """
    rng = np.random.default_rng(seed)
    edges = [min(_EDGE, n) for n in volume.shape[-2:]]
    size = (1,) * (volume.ndim - 2) + tuple(edges)
    room = np.array(volume.shape) - np.array(size) + 1
    corners = move_into_chunks(rng.integers(0, room, (_SQUARES, len(size))), size, volume.data)
    first, second = (
        read_boxes(each.data, corners, size).reshape(_SQUARES, *edges) for each in (volume, pair)
    )
    both = (first + second) / 2
    # averages over quarters show edges and gradients in spite of the noise
    halves = np.array_split(both, 2, axis=1)
    quarters = [part.mean((1, 2)) for half in halves for part in np.array_split(half, 2, axis=2)]
    variation = np.ptp(quarters, axis=0)
    # the fill value has no noise
    variation[np.ptp(both, axis=(1, 2)) == 0] = np.inf
    flat = np.argsort(variation, kind="stable")[: round(_FLATTEST * _SQUARES)]
    noise = [np.diff(each[flat], 2, axis=2) for each in (first, second)]
    means = [each.mean((1, 2)) - each.mean() for each in (first, second)]
    common = _correlation(*noise)
    if common > _SAME or np.array_equal(first, second):
        raise InputError(
            f"pair: {pair.name} has the same noise as {volume.name}: it is the same scan. Choose a "
            "repeat scan, or the reconstruction from the other half of the projections."
        )
    shift = float(second.mean() - first.mean())
    return Agreement(_correlation(*means), common, shift, float(first.std()))


def _correlation(a: Float64s, b: Float64s) -> float:
    """Return the correlation of values with zero mean; 0 if all are zero."""
    power = np.sqrt(np.mean(a**2) * np.mean(b**2))
    return float(np.mean(a * b) / power) if power else 0.0
