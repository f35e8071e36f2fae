"""Recorrupted-to-Recorrupted: makes a training input and a target from one noisy image.

If the noise model is known, more noise can be simulated. With a noisy image y and simulated noise e
of the same covariance, y + a e and y - e / a have independent noise, even if it is correlated
between neighbouring voxels: a network that predicts one from the other learns the image, as from a
second scan. No pixels are masked, so that even a pore of one voxel that exceeds the noise is kept,
and all pixels of a patch contribute to the training.

After Pang et al., Recorrupted-to-Recorrupted: Unsupervised Deep Learning for Image Denoising,
https://doi.org/10.1109/CVPR46437.2021.00208; here for noise that is correlated, and that may grow
with the grey value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from scipy import fft

from hushpore.device.transfers import constant
from hushpore.patches.sampling import read_windows
from hushpore.scan.noise_model import power_spectrum

if TYPE_CHECKING:
    from hushpore.denoising.images import Images
    from hushpore.denoising.plane_reader import Scale
    from hushpore.scan.noise_model import NoiseModel

#: Noise added to an input, relative to that of the scan. Less makes the input more like the scan,
#: more makes the target so: from 0.5 to 1 results differed by at most 0.4 dB.
ADDED = 0.7

#: Minimum noise variance, relative to that at the mean grey value.
_LEAST_VARIANCE = 0.01

#: Edge of the square over which grey values are averaged to get the local noise variance.
_SMOOTH = 5


@dataclass(frozen=True, eq=False)
class Recorruption:
    """Simulates noise like that of a scan, and makes inputs and targets with it."""

    # factors that turn random numbers into a spectrum of the noise, on the grid of
    # `torch.fft.rfftn` over its own axes, float32
    root: torch.Tensor
    grid: tuple[int, ...]  # shape of the noise simulated for one patch
    block: tuple[int, ...]  # part of it that is used: consecutive slices, y and x
    # the variance at a normalised grey value, over that at the mean, is 1 + slope * value
    slope: float = 0.0
    # relative standard deviation at each pixel of a slice, float32, (1, y, x); None: uniform
    strength: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        model: NoiseModel,
        scale: Scale,
        size: tuple[int, ...],
        context: int,
        device: str,
        plane: tuple[int, ...],
    ) -> Recorruption:
        """Return a recorruption for the noise of a scan.

        `model`, `scale`: noise and grey scale of one channel. `size`: spatial shape of a patch.
        `context`: number of neighbouring planes on either side. `device`: of the random numbers.
        `plane`: shape of a slice.
        """
        (mean,), (std,) = scale.mean, scale.std
        variance = model.autocovariance / std**2
        block = size if len(size) == 3 else (2 * context + 1, *size)
        if variance.ndim == 3 and block[0] == 1:
            variance = variance[variance.shape[0] // 2]
        # the noise field is periodic; a part shorter by the reach has no periodic correlation
        reach = [n // 2 for n in variance.shape]
        edges = [n + r for n, r in zip(block[-variance.ndim :], reach, strict=True)]
        grid = (*block[: -variance.ndim], *(fft.next_fast_len(n, True) for n in edges))
        root = torch.from_numpy(power_spectrum(variance, grid[-variance.ndim :])).sqrt().float()
        slope = 0.0
        if model.slope:
            slope = model.slope * std / (model.offset + model.slope * mean)
        # each frequency counts twice, except those without a counterpart along x
        root *= math.sqrt(math.prod(grid[-root.ndim :]) / 2)
        root[..., 0] *= math.sqrt(2)
        if not grid[-1] % 2:
            root[..., -1] *= math.sqrt(2)
        strength = None
        if model.strength is not None:
            cells = torch.from_numpy(model.strength)[None, None]
            strength = F.interpolate(cells, plane, mode="bilinear")[0].to(device)
        return cls(root.to(device), grid, block, slope, strength)

    @property
    def input_variance(self) -> float:
        """Noise variance of an input, relative to that of the scan."""
        return 1 + ADDED**2

    @property
    def target_variance(self) -> float:
        """Noise variance of a target, relative to that of the scan."""
        return 1 + 1 / ADDED**2

    def draw(self, count: int, generator: torch.Generator | None) -> torch.Tensor:
        """Draw normalised noise for some patches, with the strength at the mean grey value.

        Returns: float32, shape (count, *block).
        """
        # random numbers are drawn as a spectrum, which saves half of the transforms: the transform
        # of white noise is white noise. Axis by axis, so that the cut-off part is not transformed
        # further
        shape = (count, *self.grid[:-1], self.root.shape[-1], 2)
        parts = torch.randn(shape, generator=generator, device=self.root.device)
        field = torch.view_as_complex(parts.mul_(self.root[..., None]))
        for axis in range(1 - self.root.ndim, 0):
            field = torch.fft.ifft(field, dim=axis - 1).narrow(axis - 1, 0, self.block[axis - 1])
        drawn: torch.Tensor = torch.fft.irfft(field, self.grid[-1])
        return drawn[..., : self.block[-1]].contiguous()

    def pairs(
        self,
        images: Images,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read patches, and make an input and a target from each.

        `images`, `corners`, `orientations`: as for `Images.windows`.
        Returns: inputs (count, inputs, *size) and targets (count, outputs, *size).
        """
        noisy = images.windows(corners, size, orientations)
        noise = self._noise(images, corners, size, orientations, generator) * varies(noisy)
        if self.slope:
            noise = noise * self._strength(noisy)
        if self.strength is not None:
            at = F.pad(corners[:, -2:], (1, 0))
            here = read_windows(self.strength, at, size[-2:], orientations[:, -3:])
            noise = noise * here.view(len(here), *[1] * (noise.ndim - 3), *size[-2:])
        own = slice(images.first, images.first + images.outputs)
        return noisy + ADDED * noise, noisy[:, own] - noise[:, own] / ADDED

    def _noise(
        self,
        images: Images,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        generator: torch.Generator | None,
    ) -> torch.Tensor:
        """Draw noise for each plane that is seen, in the orientation of its patch."""
        count = len(corners)
        # in 3D a plane is a whole block
        field = self.draw(count, generator).view(count, -1, *size)
        planes = field.shape[1]
        # a plane that is seen twice, at the ends of a stack, has the same noise both times
        members = images.members[corners[:, 0]]
        beside = members - members[:, images.first, None] + planes // 2
        first = torch.arange(0, count * planes, planes, device=field.device)[:, None]
        numbers = (first + beside).reshape(-1, 1)
        origin = constant((0,) * len(size), field.device).expand(len(numbers), -1)
        turned = orientations.repeat_interleave(members.shape[1], 0)
        drawn = read_windows(field.flatten(0, 1), torch.cat([numbers, origin], 1), size, turned)
        return drawn.view(count, -1, *size)

    def _strength(self, noisy: torch.Tensor) -> torch.Tensor:
        """Return the noise standard deviation at grey values, relative to that at the mean.

        The grey values are local averages, which hardly depend on the noise itself.
        """
        planes = noisy.flatten(0, -3)[None]
        # PyTorch's own average pooling takes seven times as long on the CPU
        ones = torch.ones_like(planes[0, :1, None, :1, :1]).expand(-1, -1, _SMOOTH, _SMOOTH)
        sums = F.conv2d(
            planes, ones.expand(planes.shape[1], -1, -1, -1), padding=_SMOOTH // 2,
            groups=planes.shape[1],
        )  # fmt: skip
        counts = F.conv2d(torch.ones_like(planes[:, :1]), ones, padding=_SMOOTH // 2)
        smooth = (sums / counts).view_as(noisy)
        return smooth.mul_(self.slope).add_(1).clamp_min_(_LEAST_VARIANCE).sqrt_()


def varies(noisy: torch.Tensor) -> torch.Tensor:
    """Return the mask of voxels with noise: False inside regions of a single value (padding).

    `noisy`: shape (..., y, x).
    Returns: bool; False if all 3 x 3 pixels around a pixel are equal.
    """
    pairs = noisy[..., 1:] == noisy[..., :-1]
    rows = _both(pairs, (1, 0), (0, 1))
    pairs = rows[..., 1:, :] & rows[..., :-1, :] & (noisy[..., 1:, :] == noisy[..., :-1, :])
    return ~_both(pairs, (0, 0, 1, 0), (0, 0, 0, 1))


def _both(pairs: torch.Tensor, before: tuple[int, ...], after: tuple[int, ...]) -> torch.Tensor:
    """Return the pixels that equal both neighbours along an axis; at the ends the only one."""
    return F.pad(pairs, before, value=True) & F.pad(pairs, after, value=True)
