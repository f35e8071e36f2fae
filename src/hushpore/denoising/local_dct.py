"""Denoising by a local discrete cosine transform, the initial estimate of a network.

There are two passes. In the first, every square of 8 x 8 pixels is transformed, coefficients that
noise can explain are set to zero, and the squares are transformed back and averaged, with more
weight for those with few coefficients. In the second, a Wiener filter, the coefficients of squares
of 16 x 16 pixels of the noisy image are weighted by their strength in the result of the first pass.
The only assumption about images is that few cosines make up a small square. Textures and straight
edges, which a network learns late, are kept from the start.

After Yu, Sapiro, DCT image denoising: a simple and effective image denoising algorithm,
https://doi.org/10.5201/ipol.2011.ys-dct; the weights after Guleryuz, Weighted averaging for
denoising with overcomplete dictionaries, https://doi.org/10.1109/TIP.2007.908078; the second pass
as in Dabov et al., Image denoising by sparse 3-D transform-domain collaborative filtering,
https://doi.org/10.1109/TIP.2007.901238, without its search for similar squares. For white noise,
whose variance may grow with the grey value.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from scipy import fft
from torch import nn

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s

#: Edge and spacing of the squares in either pass, in pixels.
FIRST, SECOND = (8, 2), (16, 4)

#: Radius of the receptive field, in pixels.
RADIUS = FIRST[0] + SECOND[0] - 2

#: Maximum memory for each pixel of an image, in bytes.
BYTES = 320

#: Coefficients below the first multiple of the noise standard deviation are set to zero, those
#: above the second are kept.
_REMOVED, _KEPT = 2.5, 3.1

#: Minimum noise variance, relative to that at the mean grey value.
_LEAST_VARIANCE = 0.01

#: Lower limit of divisors, which prevents divisions by zero if there is no noise.
_LEAST = 1e-20


class LocalDCT(nn.Module):
    """Denoises images (batch, channels, y, x) by a local cosine transform, in two passes."""

    # noise standard deviation at the mean grey value; at another grey value the variance is 1 +
    # slope * value times its square
    deviation: torch.Tensor
    slope: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Squares(*FIRST), Squares(*SECOND)
        self.register_buffer("deviation", torch.zeros(()))
        self.register_buffer("slope", torch.zeros(()))

    def reset(self) -> None:
        """Return to the state before the noise is known: nothing is removed."""
        self.first.reset()
        self.second.reset()
        self.deviation.zero_()
        self.slope.zero_()

    def set_noise(self, deviation: float, slope: float = 0.0) -> None:
        """Set the noise of the images.

        `deviation`: noise standard deviation at the mean grey value. `slope`: growth of the
        variance with the grey value, relative to the variance at the mean.
        """
        self.deviation.fill_(deviation)
        self.slope.fill_(slope)

    @torch.no_grad()
    def forward(self, images: torch.Tensor, noise: float = 1.0) -> torch.Tensor:
        """Return denoised images, float32, of the same shape.

        `images`: edges must be multiples of 4, or the far edge is treated differently from the near
        one. `noise`: noise standard deviation of these images, relative to that of `set_noise`.
        """
        with torch.autocast(images.device.type, enabled=False):
            planes = images.float().flatten(0, 1)[:, None]
            coefficients = self.first(planes)
            deviation = self._deviation(coefficients, noise)
            # a ramp instead of a step: rounding differences could carry a coefficient across a step
            steepness = 1 / ((_KEPT - _REMOVED) * deviation).clamp_min_(_LEAST)
            share = coefficients.abs().sub_(_REMOVED * deviation).mul_(steepness).clamp_(0, 1)
            sparse = self.first.join(coefficients, share, planes.shape[-2:])

            expected = self.second(sparse)
            variance = self._deviation(expected, noise).square_()
            energy = expected.square_()
            share = energy.div_((energy + variance).clamp_min_(_LEAST))
            result = self.second.join(self.second(planes), share, planes.shape[-2:])
            return result.view(images.shape)

    def _deviation(self, coefficients: torch.Tensor, noise: float) -> torch.Tensor:
        """Return the noise standard deviation in each square, from its mean grey value."""
        mean = coefficients[:, :1] / math.sqrt(coefficients.shape[1])
        return relative_deviation(mean, self.slope).mul_(self.deviation * noise)


class Squares(nn.Module):
    """The cosine transform of all squares of images (planes, 1, y, x), and its inverse.

    `edge`, `stride`: edge and spacing of the squares, in pixels.
    """

    basis: torch.Tensor  # the cosines, (coefficients, pixels of a square)

    def __init__(self, edge: int, stride: int) -> None:
        super().__init__()
        self.edge, self.stride = edge, stride
        self.register_buffer("basis", torch.from_numpy(_cosines(edge)).float())

    def reset(self) -> None:
        """Calculate the cosines."""
        self.basis.copy_(torch.from_numpy(_cosines(self.edge)))

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Return the coefficients of every square, (planes, coefficients, squares)."""
        # so that a pixel at the border lies in as many squares as any other
        padded = F.pad(planes, (self.edge - self.stride,) * 4, "replicate")
        return self.basis @ F.unfold(padded, self.edge, stride=self.stride)

    def join(
        self, coefficients: torch.Tensor, share: torch.Tensor, size: torch.Size
    ) -> torch.Tensor:
        """Return images (planes, 1, *size) from the coefficients of all squares, times `share`.

        Squares with less remaining noise have more weight. The mean of a square is kept in full.
        `coefficients` and `share` are overwritten.
        """
        edge, stride = self.edge, self.stride
        share[:, :1].fill_(1)
        coefficients.mul_(share)
        weight = 1 / share.square_().sum(1, keepdim=True)
        squares = (self.basis.T @ coefficients).mul_(weight)
        padded = (size[0] + 2 * (edge - stride), size[1] + 2 * (edge - stride))
        total = F.fold(squares, padded, edge, stride=stride)
        inner = slice(edge - stride, stride - edge)
        # pixels that lie in the same squares have the same weights
        several = edge // stride
        grid = weight.view(-1, 1, *(each // stride + several - 1 for each in size))
        sums = F.avg_pool2d(grid, several, 1, divisor_override=1)
        return total[..., inner, inner] / F.interpolate(sums, scale_factor=stride)


def relative_deviation(values: torch.Tensor, slope: float | torch.Tensor) -> torch.Tensor:
    """Return the noise standard deviation at normalised grey values, relative to that at the mean.

    `slope`: growth of the variance with the grey value, relative to the variance at the mean.
    """
    return values.mul(slope).add_(1).clamp_min_(_LEAST_VARIANCE).sqrt_()


def _cosines(edge: int) -> Float64s:
    """Return the cosines of squares, orthonormal, shape (coefficients, pixels)."""
    lines = fft.dct(np.eye(edge), norm="ortho", axis=0)
    return np.kron(lines, lines)
