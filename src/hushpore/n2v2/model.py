"""The network of N2V2: a U-Net that cannot make checkerboards.

After Hoeck et al., N2V2: Fixing Noise2Void Checkerboard Artifacts with Modified Sampling Strategies
and a Tweaked Network Architecture, https://doi.org/10.1007/978-3-031-25069-9_33: no residual
connection, no skip connection at the top level, and max-blur-pooling
(https://proceedings.mlr.press/v97/zhang19a.html) in place of max-pooling.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

#: Every spatial axis must be a multiple of this: two levels of down-sampling by two.
MULTIPLE = 4

#: How far an output pixel sees, in pixels, along every axis (a test measures it).
RECEPTIVE_RADIUS = 32


class MaxBlurPool(nn.Module):
    """Maximum over 2 pixels at stride 1, then the kernel [1, 2, 1] / 4 along each axis at stride 2.

    (batch, channels, *size) to (batch, channels, *size / 2).
    """

    kernel: torch.Tensor

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self._max_pool = F.max_pool2d if dimensions == 2 else F.max_pool3d
        self._convolve = F.conv2d if dimensions == 2 else F.conv3d
        self.register_buffer("kernel", _blur_kernel(dimensions))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Halve every spatial axis."""
        channels = x.shape[1]
        kernel = self.kernel.to(x.dtype).expand(channels, 1, *self.kernel.shape)
        return self._convolve(self._max_pool(x, 2, 1), kernel, padding=1, stride=2, groups=channels)


class UNet(nn.Module):
    """U-Net of two levels for N2V2, in 2D or 3D.

    Parameters
    ----------
    dimensions : int
        2 for images (batch, 1, y, x), 3 for volumes (batch, 1, z, y, x).
    features : int, optional
        Channels of the top level.
    """

    def __init__(self, dimensions: int = 2, features: int = 32) -> None:
        super().__init__()
        f = features
        self.dimensions = dimensions
        self.pool = MaxBlurPool(dimensions)
        self.down_top = _two_convolutions(dimensions, 1, f, f)
        self.down = _two_convolutions(dimensions, f, 2 * f, 2 * f)
        self.bottom = _two_convolutions(dimensions, 2 * f, 4 * f, 2 * f)
        self.up = _two_convolutions(dimensions, 4 * f, 2 * f, f)
        self.up_top = _two_convolutions(dimensions, f, f, f)
        self.out = _convolution(dimensions, f, 1, kernel=1)
        self._mode = "bilinear" if dimensions == 2 else "trilinear"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Predict the noise-free image; spatial axes must be multiples of `MULTIPLE`."""
        top = self.down_top(x)  # (batch, f, y, x)
        middle = self.down(self.pool(top))  # (batch, 2 f, y / 2, x / 2)
        low = self.bottom(self.pool(middle))  # (batch, 2 f, y / 4, x / 4)
        middle = self.up(torch.cat([self._upsample(low), middle], 1))
        # no skip connection here: it would carry the noise of single pixels to the output
        features = self.up_top(self._upsample(middle))
        return self._output(features)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`, as PyTorch's own layers do from the global one."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d):
                bound = 1 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.weight, -bound, bound, generator)
                nn.init.uniform_(cast("torch.Tensor", module.bias), -bound, bound, generator)
            elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
                module.reset_parameters()
            elif isinstance(module, MaxBlurPool):
                module.kernel.copy_(_blur_kernel(self.dimensions, "cpu"))

    def _output(self, features: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor
        if features.dtype == torch.bfloat16:
            # the last sum in float32: rounded to bfloat16, grey values would come in coarse steps
            with torch.autocast(features.device.type, enabled=False):
                result = self.out(features.float())
        else:
            result = self.out(features)
        return result

    def _upsample(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2, mode=self._mode)


def build_network(dimensions: int, generator: torch.Generator) -> UNet:
    """Return a network on the CPU whose weights come from `generator` alone."""
    # PyTorch's constructors draw from the global random state, which is not ours to touch
    with torch.device("meta"):
        network = UNet(dimensions)
    network.to_empty(device="cpu")
    network.initialise(generator)
    return network


def _two_convolutions(dimensions: int, inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    norm = nn.BatchNorm2d if dimensions == 2 else nn.BatchNorm3d
    return nn.Sequential(
        _convolution(dimensions, inputs, hidden),
        norm(hidden),
        nn.ReLU(),
        _convolution(dimensions, hidden, outputs),
        norm(outputs),
        nn.ReLU(),
    )


def _convolution(dimensions: int, inputs: int, outputs: int, kernel: int = 3) -> nn.Module:
    convolution = nn.Conv2d if dimensions == 2 else nn.Conv3d
    return convolution(inputs, outputs, kernel, padding=kernel // 2)


def _blur_kernel(dimensions: int, device: str | None = None) -> torch.Tensor:
    line = torch.tensor([1.0, 2.0, 1.0], device=device) / 4
    kernel = line
    for _ in range(dimensions - 1):
        kernel = kernel[..., None] * line
    return kernel
