"""Compared with PyTorch's own pooling, convolution and interpolation, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from hushpore.denoising.resampling import blur_kernel, max_blur_pool, upsample

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = [(2, 2), (2, 2, 2), (1, 2, 2)]


def image(steps: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *(6, 8, 4)[-len(steps) :], dtype=dtype, generator=generator)
    return x.requires_grad_()


def torch_pool(x: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
    pool, convolve = (F.max_pool2d, F.conv2d) if len(steps) == 2 else (F.max_pool3d, F.conv3d)
    kernel = torch.ones((), dtype=x.dtype)
    for step in steps:
        line = [0.25, 0.5, 0.25] if step == 2 else [1.0]
        kernel = kernel[..., None] * torch.tensor(line, dtype=x.dtype)
    channels = x.shape[1]
    padding = tuple(step - 1 for step in steps)
    kernel = kernel.expand(channels, 1, *kernel.shape)
    return convolve(pool(x, steps, 1), kernel, stride=steps, padding=padding, groups=channels)


def torch_upsample(x: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
    mode = "bilinear" if len(steps) == 2 else "trilinear"
    return F.interpolate(x, scale_factor=tuple(float(step) for step in steps), mode=mode)


def our_pool(x: torch.Tensor, steps: tuple[int, ...]) -> torch.Tensor:
    return max_blur_pool(x, blur_kernel(steps), steps)


PAIRS = pytest.mark.parametrize(
    ("ours", "theirs"), [(our_pool, torch_pool), (upsample, torch_upsample)], ids=["pool", "up"]
)


@PAIRS
@pytest.mark.parametrize("steps", STEPS)
def test_it_is_what_pytorch_composes(
    ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor], steps: tuple[int, ...]
) -> None:
    x = image(steps)
    found, expected = ours(x, steps), theirs(x, steps)
    torch.testing.assert_close(found, expected)
    gradient = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, gradient), torch.autograd.grad(expected, x, gradient)
    )


@PAIRS
def test_without_a_gradient_the_result_is_the_same(
    ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor]
) -> None:
    x = image((2, 2))
    with torch.no_grad():
        plain = ours(x, (2, 2))
    assert torch.equal(plain, ours(x, (2, 2)))
    assert not plain.requires_grad


def test_of_equal_pixels_the_first_gets_the_gradient() -> None:
    """As in PyTorch; in bfloat16 many pixels are equal."""
    x = torch.randint(0, 3, (1, 2, 8, 8)).double().requires_grad_()
    gradient = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    found = torch.autograd.grad(our_pool(x, (2, 2)), x, gradient)
    torch.testing.assert_close(found, torch.autograd.grad(torch_pool(x, (2, 2)), x, gradient))


@PAIRS
def test_bfloat16_stays_bfloat16_and_channels_stay_last(
    ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor]
) -> None:
    exact = image((2, 2))
    x = exact.detach().bfloat16().contiguous(memory_format=torch.channels_last).requires_grad_()
    found = ours(x, (2, 2))
    assert found.dtype == torch.bfloat16
    assert found.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(found.float().square().sum(), x)
    assert gradient.dtype == torch.bfloat16
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    rounded = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(theirs(rounded, (2, 2)).square().sum(), rounded)
    torch.testing.assert_close(gradient.double(), expected, rtol=0.03, atol=0.03)
