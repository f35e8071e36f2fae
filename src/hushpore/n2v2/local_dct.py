"""Denoising by a local discrete cosine transform: what a network may start from.

Every square of 8 x 8 pixels is transformed, coefficients that noise explains are set to zero, and
the squares are put together again, those with few coefficients counting most. It knows nothing of
what images look like but that few cosines make up a small square; textures and straight edges,
which a network learns late, it keeps at once.

After Yu, Sapiro, DCT image denoising: a simple and effective image denoising algorithm,
https://doi.org/10.5201/ipol.2011.ys-dct; the weights after Guleryuz, Weighted averaging for
denoising with overcomplete dictionaries, https://doi.org/10.1109/TIP.2007.908078. For noise that is
independent from pixel to pixel, and may grow with the grey value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from scipy import fft
from torch import nn

if TYPE_CHECKING:
    import numpy.typing as npt

#: Edge of a square, in pixels, and how far apart two squares are.
EDGE, STRIDE = 8, 2

#: Bytes that it takes for a pixel of an image on its way through, at most.
BYTES = 300

#: Coefficients up to so many deviations of the noise are set to zero.
_THRESHOLD = 2.5

#: Deviation of a coefficient that is never set to zero.
_KEPT = -1.0

#: The variance of the noise is nowhere less than this, as a share of that at the mean grey value.
_LEAST_VARIANCE = 0.01


class LocalDCT(nn.Module):
    """Denoises images (batch, channels, y, x) by thresholding a local cosine transform."""

    # the cosines, (coefficients, pixels of a square); the deviation of the noise in each of the
    # coefficients at the mean grey value, which is zero, or below zero where one is always kept, as
    # the first, the mean, is; the variance is 1 + slope * value times that at another
    basis: torch.Tensor
    deviation: torch.Tensor
    slope: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("basis", torch.from_numpy(_cosines()).float())
        self.register_buffer("deviation", torch.full((EDGE**2,), _KEPT))
        self.register_buffer("slope", torch.zeros(()))

    def reset(self) -> None:
        """Put everything where it is before the noise is known: nothing is removed."""
        self.basis.copy_(torch.from_numpy(_cosines()))
        self.deviation.fill_(_KEPT)
        self.slope.zero_()

    def set_noise(self, deviation: float, slope: float = 0.0) -> None:
        """Say what noise images have.

        `deviation`: at the mean grey value. `slope`: by how much the variance grows with the grey
        value, as a share of that at the mean.
        """
        self.deviation[1:] = deviation
        self.slope.fill_(slope)

    @torch.no_grad()
    def forward(self, images: torch.Tensor, noise: float = 1.0) -> torch.Tensor:
        """Return images without the noise, float32, of the same shape.

        `noise`: deviation of the noise of these images, over that which was set.
        """
        with torch.autocast(images.device.type, enabled=False):
            # (planes, 1, y, x), with whole squares about each pixel
            planes = F.pad(images.float().flatten(0, 1)[:, None], (EDGE - 1,) * 4, "replicate")
            size = planes.shape[-2:]
            coefficients = self.basis @ F.unfold(planes, EDGE, stride=STRIDE)
            mean = coefficients[:, :1] / EDGE
            strength = relative_deviation(mean, self.slope)
            limits = (_THRESHOLD * noise) * self.deviation[:, None]
            is_kept = coefficients.abs() > strength * limits
            weight = 1 / is_kept.sum(1, keepdim=True).float()
            squares = self.basis.T @ coefficients.mul_(is_kept).mul_(weight)
            total = F.fold(squares, size, EDGE, stride=STRIDE)
            weights = F.fold(weight.expand_as(squares), size, EDGE, stride=STRIDE)
            inner = slice(EDGE - 1, 1 - EDGE)
            return (total / weights)[..., inner, inner].view(images.shape)


def relative_deviation(values: torch.Tensor, slope: float | torch.Tensor) -> torch.Tensor:
    """Return the deviation of the noise at normalised grey values, over that at the mean.

    `slope`: by how much the variance grows with the grey value, as a share of that at the mean.
    """
    return values.mul(slope).add_(1).clamp_min_(_LEAST_VARIANCE).sqrt_()


def _cosines() -> npt.NDArray[np.float64]:
    """Return the cosines of squares, orthonormal, shape (coefficients, pixels)."""
    lines = fft.dct(np.eye(EDGE), norm="ortho", axis=0)
    return np.kron(lines, lines)
