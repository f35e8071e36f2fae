"""The same network as one would write it at first, of PyTorch's own layers and optimiser alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

from benchmarks.denoise_step import bare_step
from hushpore.n2v2.training.step import channels_last

if TYPE_CHECKING:
    from collections.abc import Callable


class PlainUNet(nn.Module):
    """N2V2's U-Net of two levels and 32 features in 2D."""

    blur: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.down_top = _block(1, 32, 32)
        self.down = _block(32, 64, 64)
        self.bottom = _block(64, 128, 64)
        self.up = _block(128, 64, 32)
        self.up_top = _block(32, 32, 32)
        self.out = nn.Conv2d(32, 1, 1)
        self.doubled = nn.Upsample(scale_factor=2, mode="bilinear")
        line = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("blur", torch.outer(line, line)[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Predict images (batch, 1, y, x)."""
        middle = self.down(self._pool(self.down_top(x)))
        low = self.bottom(self._pool(middle))
        joined = torch.cat([self.doubled(low), middle], 1)
        result: torch.Tensor = self.out(self.up_top(self.doubled(self.up(joined))))
        return result

    def _pool(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        largest = F.max_pool2d(x, 2, 1)
        return F.conv2d(largest, self.blur.repeat(n, 1, 1, 1), stride=2, padding=1, groups=n)


def plain_step(device: str, dtype: torch.dtype) -> Callable[[], object]:
    """Return a bare training step of it.

    In float32 it is laid out as PyTorch does by itself, in bfloat16 with the channels last.
    """
    network = PlainUNet().to(device)
    batch = torch.randn(16, 1, 64, 64, device=device)
    if dtype != torch.float32:
        network, batch = network.to(memory_format=torch.channels_last), channels_last(batch)
    return bare_step(network, batch, dtype)


def _block(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, hidden, 3, padding=1),
        nn.BatchNorm2d(hidden),
        nn.ReLU(),
        nn.Conv2d(hidden, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
