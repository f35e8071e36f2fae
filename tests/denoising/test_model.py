"""Compared with PyTorch's own pooling, convolution and interpolation, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

from hushpore import InputError
from hushpore.denoising.model import (
    Architecture,
    MaxBlurPool,
    UNet,
    blur_kernel,
    build_network,
    fuse_batch_norm,
    max_blur_pool,
    upsample,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def network(dimensions: int = 2) -> UNet:
    return build_network(dimensions, torch.Generator().manual_seed(0)).eval()


def test_it_has_the_size_of_the_published_n2v2_network() -> None:
    # two levels, 32 features: CAREamics 0.3.5 counts as many
    assert sum(p.numel() for p in UNet(2).parameters()) == 324_513


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_output_has_the_shape_of_the_input(dimensions: int) -> None:
    x = torch.zeros(2, 1, *(8, 16, 12)[-dimensions:])
    assert network(dimensions)(x).shape == x.shape


@pytest.mark.parametrize("dimensions", [2, 3])
def test_pooling_is_a_maximum_and_a_normalised_blur(dimensions: int) -> None:
    pool = MaxBlurPool((2,) * dimensions)
    assert pool.kernel.sum() == 1
    flat = pool(torch.full((1, 3, *[8] * dimensions), 5.0))
    assert flat.shape == (1, 3, *[4] * dimensions)
    inner = (slice(None), slice(None), *[slice(1, -1)] * dimensions)
    assert torch.equal(flat[inner], torch.full_like(flat[inner], 5.0))


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_output_at_some_pixels_is_that_of_the_whole_image(dimensions: int) -> None:
    architecture = Architecture(dimensions, inputs=3, outputs=2)
    net = build_network(architecture, torch.Generator().manual_seed(0)).eval()
    x = torch.rand(2, 3, *(8, 16, 12)[-dimensions:])
    positions = torch.tensor([[[0] * dimensions, [3] * dimensions], [[7] * dimensions] * 2])
    with torch.no_grad():
        whole, found = net(x), net.output_at(net.features(x), positions)
    assert found.shape == (2, 2, 2)
    for n in range(2):
        for k in range(2):
            expected = whole[(n, slice(None), *positions[n, k])]
            torch.testing.assert_close(found[n, :, k], expected)


def test_a_flat_network_leaves_z_as_it_is() -> None:
    net = build_network(Architecture(3, flat=True), torch.Generator().manual_seed(0)).eval()
    x = torch.zeros(1, 1, 5, 16, 12)
    assert net(x).shape == x.shape
    pooled = MaxBlurPool((1, 2, 2))(torch.rand(1, 2, 5, 16, 12))
    assert pooled.shape == (1, 2, 5, 8, 6)
    one = torch.rand(1, 1, 1, 16, 12)
    torch.testing.assert_close(
        MaxBlurPool((1, 2, 2))(one)[:, :, 0], MaxBlurPool((2, 2))(one[:, :, 0])
    )


def test_n2v_has_a_skip_connection_at_the_top_and_plain_pooling() -> None:
    net = build_network(Architecture(2, "n2v"), torch.Generator().manual_seed(0)).eval()
    x = torch.rand(1, 1, 16, 16)
    torch.testing.assert_close(net.pool(x), torch.nn.functional.max_pool2d(x, 2))
    with torch.no_grad():
        net.up[-1][-2].weight.zero_()
        net.up[-1][-2].bias.zero_()
    assert not torch.equal(net(x), net(torch.rand(1, 1, 16, 16)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimensions": 4},
        {"method": "care"},
        {"inputs": 0},
        {"inputs": 2, "outputs": 3},
        {"features": 10**9},
        {"features": "32"},
        {"levels": 0},
        {"levels": 30},
    ],
)
def test_no_other_network_is_built(wrong: dict[str, object]) -> None:
    with pytest.raises((InputError, TypeError)):
        Architecture(**wrong)


def test_nothing_reaches_the_output_but_through_the_pooling() -> None:
    """Without the lower levels there is no way from the input to the output: no residual, no skip.

    With the low path silenced (its last features held at zero), the output no longer depends on
    the input, which a connection around it would show.
    """
    net = network()
    with torch.no_grad():
        net.up[-1][-2].weight.zero_()
        net.up[-1][-2].bias.zero_()
    a, b = net(torch.rand(1, 1, 16, 16)), net(torch.rand(1, 1, 16, 16))
    assert torch.equal(a, b)


@pytest.mark.parametrize(("method", "levels"), [("n2v2", 1), ("n2v2", 2), ("n2v", 2), ("n2v2", 3)])
def test_an_output_pixel_sees_no_further_than_stated(method: str, levels: int) -> None:
    architecture = Architecture(2, method, features=4, levels=levels)
    net = build_network(architecture, torch.Generator().manual_seed(0)).eval().double()
    (radius, _), (multiple, _) = architecture.radii, architecture.multiples
    assert (radius, multiple) == {1: (12, 2), 2: (32, 4), 3: (72, 8)}[levels]
    middle = 96
    x = torch.zeros(1, 1, 2 * middle, 2 * middle, dtype=torch.float64, requires_grad=True)
    reach = 0
    for offset in range(multiple):  # the pooling grid makes the reach depend on the position
        at = middle + offset
        gradient = torch.autograd.grad(net(x)[0, 0, at, at], x)[0][0, 0]
        rows = gradient.abs().sum(1).nonzero()
        reach = max(reach, int((rows - at).abs().max()))
    assert radius - 2 * multiple < reach <= radius


def test_along_a_flat_axis_it_sees_no_further_than_its_convolutions() -> None:
    flat = Architecture(3, flat=True, features=2)
    net = build_network(flat, torch.Generator().manual_seed(0)).eval().double()
    x = torch.rand(1, 1, 31, 8, 8, dtype=torch.float64, requires_grad=True)
    gradient = torch.autograd.grad(net(x)[0, 0, 15].sum(), x)[0][0, 0]
    rows = gradient.abs().sum((1, 2)).nonzero()
    assert int((rows - 15).abs().max()) <= 10
    assert flat.radii == (10, 32, 32)


def test_weights_come_from_the_seed_and_the_global_state_is_untouched() -> None:
    before = torch.get_rng_state()
    first, again = (build_network(2, torch.Generator().manual_seed(1)) for _ in range(2))
    for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(before, torch.get_rng_state())


def test_first_weights_are_spread_as_pytorch_spreads_them() -> None:
    torch_layer = torch.nn.Conv2d(64, 64, 3)
    ours = network().down[1][3]
    assert ours.weight.abs().max() <= torch_layer.weight.abs().max() * 1.01
    assert ours.weight.detach().std() == pytest.approx(
        float(torch_layer.weight.detach().std()), rel=0.02
    )


def trained_like(architecture: Architecture) -> UNet:
    """Return a network whose normalisations have statistics and weights of their own."""
    generator = torch.Generator().manual_seed(0)
    network = build_network(architecture, generator)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            for values in (module.weight.data, module.bias.data, module.running_mean):
                values.normal_(generator=generator)
            module.running_var.uniform_(0.1, 3, generator=generator)
    return network.eval()


@pytest.mark.parametrize(
    "architecture",
    [
        Architecture(2),
        Architecture(2, "n2v", inputs=3, outputs=2, features=8),
        Architecture(3, features=8),
        Architecture(3, flat=True, features=8),
    ],
    ids=["2D", "N2V", "3D", "flat"],
)
def test_a_network_with_fused_batch_norm_computes_the_same(architecture: Architecture) -> None:
    network = trained_like(architecture)
    size = (8, 16, 12)[-architecture.dimensions :]
    x = torch.randn(2, architecture.inputs, *size, generator=torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        # in float64 the truth, which both approach alike
        exact = UNet(architecture).eval().double()
        exact.load_state_dict(network.state_dict())
        truth = exact(x.double()).float()
        scale = float(truth.std())
        torch.testing.assert_close(fuse_batch_norm(network)(x), truth, rtol=1e-4, atol=1e-4 * scale)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_nothing_is_left_to_normalise() -> None:
    modules = fuse_batch_norm(trained_like(Architecture(2))).modules()
    assert not any(isinstance(each, nn.BatchNorm2d) for each in modules)


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
