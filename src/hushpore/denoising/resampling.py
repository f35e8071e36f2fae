"""Down- and up-sampling of images in a U-Net, with explicit gradients.

PyTorch's own gradients would be slow here: that of a depthwise convolution in bfloat16 takes the
CPU forty times as long as the convolution itself, a maximum with indices stores eight bytes per
pixel, and on CUDA the gradient of an interpolation depends on the order of threads. The gradients
here are the same sums, made of operations that are fast and deterministic everywhere: the gradient
of the blur is an interpolation, that of the interpolation a blur.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.autograd.function import once_differentiable

from hushpore.device.transfers import constant

#: Kernels of the blur and of the gradient of an interpolation, along axes that are halved (2) and
#: along the others (1).
_BLUR = {2: (0.25, 0.5, 0.25), 1: (1.0,)}
_GATHER = {2: (0.25, 0.75, 0.75, 0.25), 1: (1.0,)}


def blur_kernel(steps: tuple[int, ...], device: str | None = None) -> torch.Tensor:
    """Return [1, 2, 1] / 4 along each axis whose step is 2, and [1] along the others."""
    return torch.tensor(_outer(tuple(_BLUR[step] for step in steps)), device=device)


def max_blur_pool(x: torch.Tensor, kernel: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
    """Take the maximum over 2 pixels at stride 1, then blur at stride 2, with zeros around.

    `x`: shape (batch, channels, *size), even along axes whose step is 2. `kernel`: as `blur_kernel`
    gives it. `steps`: 1 or 2 for each axis; where it is 1 nothing happens.
    Returns: shape (batch, channels, *size / steps).
    """
    for axis in _halved(steps):
        x = _applied(_Maximum, x, axis)
    return _applied(_Blur, x, kernel, steps)


def upsample(x: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
    """Double the axes whose step is 2 by linear interpolation, with corners not aligned.

    `x`: shape (batch, channels, *size). `steps`: 1 or 2 for each axis.
    Returns: shape (batch, channels, *size * steps).
    """
    return _applied(_Upsample, x, steps)


def _applied(function: Any, x: torch.Tensor, *more: Any) -> torch.Tensor:
    """Apply a function with its gradient, or without it for export and prediction."""
    result: torch.Tensor
    if torch.is_grad_enabled() and x.requires_grad:
        result = function.apply(x, *more)
    else:
        result = function.plain(x, *more)
    return result


class _Maximum(torch.autograd.Function):
    """The larger of each pixel and the next one along an axis, which becomes one pixel shorter."""

    @staticmethod
    def plain(x: torch.Tensor, axis: int) -> torch.Tensor:
        return torch.maximum(*_neighbours(x, axis))

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, axis: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.axis = axis
        return _Maximum.plain(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        first, following = _neighbours(x, ctx.axis)
        # if both are equal, the first gets the gradient, as in PyTorch's own pooling. The gradient
        # of ReLU selects the larger one in the fewest passes over memory
        to_following = torch.ops.aten.threshold_backward(gradient, following - first, 0)
        result = torch.empty_like(x)
        first, second = _neighbours(result, ctx.axis)
        torch.sub(gradient, to_following, out=first)
        result.narrow(ctx.axis, x.shape[ctx.axis] - 1, 1).zero_()
        second.add_(to_following)
        return result, None


class _Blur(torch.autograd.Function):
    """Depthwise convolution with `blur_kernel` at stride 2."""

    @staticmethod
    def plain(x: torch.Tensor, kernel: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
        padding = tuple(step - 1 for step in steps)
        return _depthwise(x, kernel, steps, padding)

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, kernel: torch.Tensor, steps: tuple[int, ...]
    ) -> torch.Tensor:
        ctx.size, ctx.steps = x.shape[2:], steps
        return _Blur.plain(x, kernel, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # an input pixel at the place of an output pixel gets half of its gradient, one between two
        # of them a quarter of each: half of a linear interpolation
        half = gradient * 0.5 ** len(_halved(ctx.steps))
        mode = _linear(len(ctx.size))
        return F.interpolate(half, ctx.size, mode=mode, align_corners=True), None, None


class _Upsample(torch.autograd.Function):
    """Linear interpolation to twice as many pixels."""

    @staticmethod
    def plain(x: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
        scale = tuple(float(step) for step in steps)
        return F.interpolate(x, scale_factor=scale, mode=_linear(len(steps)))

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
        ctx.steps = steps
        return _Upsample.plain(x, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # an input pixel contributes 3/4 of its value to the two output pixels inside it, and 1/4 to
        # the next one on either side; at the border, its whole value to the outermost one
        padding = [step - 1 for step in reversed(ctx.steps) for _ in range(2)]
        padded = F.pad(gradient, padding, mode="replicate")
        kernel = constant(_outer(tuple(_GATHER[step] for step in ctx.steps)), gradient.device)
        return _depthwise(padded, kernel, ctx.steps, (0,) * len(ctx.steps)), None


def _depthwise(
    x: torch.Tensor, kernel: torch.Tensor, stride: tuple[int, ...], padding: tuple[int, ...]
) -> torch.Tensor:
    channels = x.shape[1]
    weight = kernel.to(x.dtype).expand(channels, 1, *kernel.shape)
    convolve = F.conv2d if kernel.ndim == 2 else F.conv3d
    return convolve(x, weight, stride=stride, padding=padding, groups=channels)


def _neighbours(x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of all pixels except the last, and of all except the first, along an axis."""
    count = x.shape[axis] - 1
    return x.narrow(axis, 0, count), x.narrow(axis, 1, count)


def _halved(steps: tuple[int, ...]) -> list[int]:
    """Return the axes of (batch, channels, *size) whose step is 2, the last one first."""
    return [axis + 2 for axis in reversed(range(len(steps))) if steps[axis] == 2]


def _linear(n_axes: int) -> str:
    return "bilinear" if n_axes == 2 else "trilinear"


def _outer(lines: tuple[tuple[float, ...], ...], factor: float = 1.0) -> tuple[Any, ...]:
    """Return the outer product of lines as nested tuples."""
    first, rest = lines[0], lines[1:]
    return tuple(_outer(rest, factor * each) if rest else factor * each for each in first)
