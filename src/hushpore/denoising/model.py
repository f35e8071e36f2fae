"""The network of N2V2, a U-Net without checkerboard artefacts; and that of N2V for comparison.

After Hoeck et al., N2V2: Fixing Noise2Void Checkerboard Artifacts with Modified Sampling Strategies
and a Tweaked Network Architecture, https://doi.org/10.1007/978-3-031-25069-9_33: no residual
connection, no skip connection at the top level, and max-blur-pooling
(https://proceedings.mlr.press/v97/zhang19a.html) in place of max-pooling.

Down- and up-sampling of images in a U-Net, with explicit gradients.

PyTorch's own gradients would be slow here: that of a depthwise convolution in bfloat16 takes the
CPU forty times as long as the convolution itself, a maximum with indices stores eight bytes per
pixel, and on CUDA the gradient of an interpolation depends on the order of threads. The gradients
here are the same sums, made of operations that are fast and deterministic everywhere: the gradient
of the blur is an interpolation, that of the interpolation a blur.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.fusion import fuse_conv_bn_eval

from hushpore.base.errors import InputError
from hushpore.denoising.settings import LEVELS
from hushpore.device.transfers import constant
from hushpore.patches.places import flat_index

#: Maximum number of levels in a model file.
MOST_LEVELS = 6

#: Training methods.
METHODS = ("r2r", "n2n", "n2v2", "n2v")

#: Quantiles of `UNet.activity` at which the input share is fitted: more closely spaced at large
#: values, as at edges.
SHARE_QUANTILES = (
    0, 0.25, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998,
)  # fmt: skip

#: Number of grey values, evenly spaced, at which the correction of the output is fitted. With 6 or
#: more, voxels of one phase that noise makes darker and brighter are corrected apart, which puts
#: noise back (up to 2.9 dB in strong noise).
CORRECTED_AT = 3

#: Minimum mean square of normalised values.
_LEAST_ENERGY = 1e-12

#: Number of pixels whose features are converted to float32 at once: 4 MB.
_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Architecture:
    """All parameters that are needed to build a network."""

    # 2 for images (batch, inputs, y, x), 3 for volumes (batch, inputs, z, y, x)
    dimensions: int = 2
    # ``"n2v2"``; ``"r2r"`` and ``"n2n"``: the same with the input as a skip connection at the top
    # level, for training without masked pixels; or ``"n2v"``: max-pooling and a skip connection at
    # the top level, as in the original Noise2Void (https://doi.org/10.1109/CVPR.2019.00223)
    method: str = "n2v2"
    # in 3D: no down-sampling along z, for thin stacks or large slice distances
    flat: bool = False
    inputs: int = 1  # number of images seen together: channels, or neighbouring slices
    outputs: int = 1  # number of them that are predicted
    features: int = 32  # channels of the top level
    levels: int = LEVELS  # number of levels below the top level

    def __post_init__(self) -> None:
        numbers = self.inputs, self.features, self.levels
        whole = all(isinstance(each, int) for each in numbers)
        if (
            self.dimensions not in (2, 3)
            or self.method not in METHODS
            or not whole
            or not 1 <= self.outputs <= self.inputs <= 64
            or not 1 <= self.features <= 512
            or not 1 <= self.levels <= MOST_LEVELS
        ):
            raise InputError(f"This network architecture is not supported: {self}.")

    @property
    def hides_pixels(self) -> bool:
        """Whether the training masks pixels."""
        return self.method in ("n2v2", "n2v")

    @property
    def steps(self) -> tuple[int, ...]:
        """Down-sampling factor of one level along each axis: 2, or 1 for none."""
        return (1, 2, 2) if self.flat and self.dimensions == 3 else (2,) * self.dimensions

    @property
    def multiples(self) -> tuple[int, ...]:
        """Multiples for the lengths of the axes."""
        return tuple(step**self.levels for step in self.steps)

    @property
    def radii(self) -> tuple[int, ...]:
        """Radius of the receptive field along each axis, in pixels (a test measures it)."""
        found = []
        for step in self.steps:
            # four convolutions of radius 1 on each level, two at the bottom, in pixels of the level
            edges = [int(step**level) for level in range(self.levels + 1)]
            convolutions = 4 * sum(edges[:-1]) + 2 * edges[-1]
            # maximum and blur in down-sampling, interpolation in up-sampling
            between = 4 * sum(edges[:-1]) if step == 2 else 0
            found.append(convolutions + between)
        return tuple(found)


class MaxBlurPool(nn.Module):
    """Maximum over 2 pixels at stride 1, then the kernel [1, 2, 1] / 4 along each axis at stride 2.

    Input (batch, channels, *size), output (batch, channels, *size / 2). Axes whose step is 1 are
    unchanged.

    `steps`: 1 or 2 for each axis.
    """

    kernel: torch.Tensor

    def __init__(self, steps: tuple[int, ...]) -> None:
        super().__init__()
        self.steps = steps
        self.register_buffer("kernel", blur_kernel(steps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Halve every spatial axis whose step is 2."""
        return max_blur_pool(x, self.kernel, self.steps)


class UNet(nn.Module):
    """U-Net for R2R, N2V2 or N2V, in 2D or 3D.

    `architecture`: its parameters; a number means that many dimensions, with all other parameters
    at their defaults.
    """

    # for training without masked pixels: correction of the output, (outputs, CORRECTED_AT), at
    # its values, (CORRECTED_AT,), and shares of the input in the result, (n_shares,), at values of
    # `activity`, (n_shares,); see `Learner.fit_correction_and_shares`
    offset: torch.Tensor
    offset_at: torch.Tensor
    input_shares: torch.Tensor
    share_at: torch.Tensor

    def __init__(self, architecture: Architecture | int = 2) -> None:
        super().__init__()
        if isinstance(architecture, int):
            architecture = Architecture(architecture)
        self.architecture = a = architecture
        n, f = a.dimensions, a.features
        # channels of the skip connection at the top level
        skipped = {"r2r": a.inputs, "n2n": a.inputs, "n2v2": 0, "n2v": f}[a.method]
        if a.method == "n2v":
            self.pool: nn.Module = (nn.MaxPool2d if n == 2 else nn.MaxPool3d)(a.steps)
        else:
            self.pool = MaxBlurPool(a.steps)
        widths = [f * 2**level for level in range(a.levels + 1)]
        ins = [a.inputs, *widths[:-2]]
        pairs = zip(ins, widths, strict=False)
        self.down = nn.ModuleList([_two_convolutions(n, i, own, own) for i, own in pairs])
        self.bottom = _two_convolutions(n, widths[-2], widths[-1], widths[-2])
        # from the bottom up: up-sampled features, concatenated with those of the skip connection
        inner = reversed(widths[1:-1])
        self.up = nn.ModuleList([_two_convolutions(n, 2 * w, w, w // 2) for w in inner])
        self.up_top = _two_convolutions(n, f + skipped, f, f)
        self.out: nn.Conv2d | nn.Conv3d = _convolution(n, f, a.outputs, kernel=1)
        if not a.hides_pixels:
            self.register_buffer("offset", torch.zeros(a.outputs, CORRECTED_AT))
            self.register_buffer("offset_at", torch.zeros(CORRECTED_AT))
            self.register_buffer("input_shares", torch.zeros(len(SHARE_QUANTILES)))
            self.register_buffer("share_at", torch.zeros(len(SHARE_QUANTILES)))

    @property
    def dimensions(self) -> int:
        """2 or 3."""
        return self.architecture.dimensions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Predict the noise-free image; edges are multiples of `Architecture.multiples`."""
        output = self.output(self.features(x))
        if not self.architecture.hides_pixels:
            output = self.shifted(output)
            difference = self.own(x) - output
            output = output + self._share_of(self.activity(difference, output)) * difference
        return output

    def removed(self, own: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Return the removed noise, (batch, outputs, *size), from predicted inputs and output."""
        output = self.shifted(output)
        difference = own - output
        return (1 - self._share_of(self.activity(difference, output))) * difference

    def shifted(self, output: torch.Tensor) -> torch.Tensor:
        """Return the output, (batch, outputs, *size), with its shifts corrected."""
        place = self.places_of(output)
        below = place.long().clamp_max(CORRECTED_AT - 2)
        own = torch.arange(len(self.offset), device=output.device).view(-1, *(1,) * self.dimensions)
        low, high = self.offset[own, below], self.offset[own, below + 1]
        return output + torch.lerp(low, high, place - below)

    def places_of(self, output: torch.Tensor) -> torch.Tensor:
        """Return where values lie among `offset_at`, from 0 to its last index."""
        step = (self.offset_at[-1] - self.offset_at[0]) / (CORRECTED_AT - 1)
        return ((output - self.offset_at[0]) / step).clamp(0, CORRECTED_AT - 1)

    def activity(self, difference: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the local activity, which determines the share of the input.

        The activity is the mean square of the removed noise over 3 x 3 pixels, plus the variance of
        the prediction: at edges and small pores the errors of the network are largest.
        """
        variance = local_mean(output.square()) - local_mean(output).square()
        energy = local_mean(difference.square()) + variance.clamp_min(0)
        return energy.clamp_min(_LEAST_ENERGY).log()

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """Return the predicted ones of the inputs, which are in the middle."""
        first = (self.architecture.inputs - self.architecture.outputs) // 2
        return x[:, first : first + self.architecture.outputs]

    @property
    def input_share(self) -> float:
        """The mean share of the input in the result; 0 if the training masks pixels."""
        if self.architecture.hides_pixels:
            return 0.0
        mass = np.diff([*SHARE_QUANTILES, 1.0])
        return float(mass @ self.input_shares.cpu().numpy())

    def _share_of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the share of the input at values of `activity`, by linear interpolation."""
        at, shares = self.share_at, self.input_shares
        above = torch.bucketize(value, at, out_int32=True).clamp(1, len(at) - 1)
        low, high = at[above - 1], at[above]
        part = ((value - low) / (high - low)).clamp(0, 1)
        return torch.lerp(shares[above - 1], shares[above], part)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features, whose weighted sum is the output: (batch, features, *size)."""
        steps = self.architecture.steps
        top = self.down[0](x)  # (batch, f, y, x)
        # no skip connection at the top level in N2V2: it would carry noise of single pixels to the
        # output
        skipped = {"n2v2": [], "n2v": [top]}.get(self.architecture.method, [x])
        low = top
        del top  # the largest tensor: without training, freeing it lowers the peak memory
        between = []
        for convolutions in list(self.down)[1:]:
            low = convolutions(self.pool(low))  # (batch, 2 f, y / 2, x / 2), and so on
            between.append(low)
        low = self.bottom(self.pool(low))
        for convolutions in self.up:
            low = convolutions(torch.cat([upsample(low, steps), between.pop()], 1))
        upper = upsample(low, steps)
        beside = [each.to(upper.dtype) for each in skipped]
        result: torch.Tensor = self.up_top(torch.cat([upper, *beside], 1) if beside else upper)
        return result

    def output_at(self, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the output at some pixels only, which is enough for training.

        `features`: as from `features`; copied unless channels are last in memory.
        `positions`: int64, shape (batch, n_positions, n_axes).
        Returns: float32, shape (batch, outputs, n_positions).
        """
        rows = features.movedim(1, -1).flatten(0, -2)  # (pixels of all, features)
        count = rows.shape[0] // len(positions)
        first = constant(tuple(range(0, rows.shape[0], count)), positions.device)
        index = flat_index(positions, features.shape[2:]) + first[:, None]
        chosen = rows.index_select(0, index.flatten()).to(self.out.weight.dtype)
        output = F.linear(chosen, self.out.weight.flatten(1), self.out.bias)
        return output.view(*index.shape, -1).movedim(-1, 1)

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
                module.kernel.copy_(blur_kernel(module.steps, "cpu"))
        if not self.architecture.hides_pixels:
            self.offset.zero_()
            self.offset_at.copy_(torch.arange(float(CORRECTED_AT)))
            self.input_shares.zero_()
            self.share_at.copy_(torch.arange(len(SHARE_QUANTILES)))

    def output(self, features: torch.Tensor) -> torch.Tensor:
        """Return the output of features (batch, features, *size), at every pixel."""
        if features.dtype != torch.bfloat16:
            result: torch.Tensor = self.out(features)
            return result
        # the last sum is in float32: rounded to bfloat16, grey values would come in coarse steps.
        # In parts: the features of a whole tile in float32 would set the peak memory
        rows = features.movedim(1, -1)
        with torch.autocast(features.device.type, enabled=False):
            weight, bias = self.out.weight.flatten(1), self.out.bias
            parts = torch.split(rows.flatten(0, -2), _AT_ONCE)
            output = torch.cat([F.linear(part.float(), weight, bias) for part in parts])
        return output.view(*rows.shape[:-1], -1).movedim(-1, 1)


def local_mean(values: torch.Tensor) -> torch.Tensor:
    """Return the mean over 3 x 3 pixels, of the same shape; at the border over fewer pixels."""
    planes = values.flatten(0, -3)[:, None]
    return F.avg_pool2d(planes, 3, 1, 1, count_include_pad=False).view_as(values)


def build_network(architecture: Architecture | int, generator: torch.Generator) -> UNet:
    """Return a network on the CPU whose weights depend only on `generator`."""
    # PyTorch's constructors would change the global random state
    with torch.device("meta"):
        network = UNet(architecture)
    # like `to_empty`, which would import symbolic algebra for half a second
    weights = network.state_dict()
    empty = {name: torch.empty(each.shape, dtype=each.dtype) for name, each in weights.items()}
    network.load_state_dict(empty, assign=True)
    network.initialise(generator)
    return network


def fuse_batch_norm(network: UNet) -> UNet:
    """Return an equivalent network with fewer operations, for prediction only.

    In evaluation mode, a batch normalisation is a factor and an offset for each channel, which the
    preceding convolution can include. The weights are combined in float64.

    `network`: in evaluation mode; not changed.
    Returns: a network on the same device; for the GPU of a Mac, which has no float64, on the CPU.
    """
    result = copy.deepcopy(network)
    if network.out.weight.device.type == "mps":
        result = result.cpu()
    for block in (each for each in result.modules() if isinstance(each, nn.Sequential)):
        for number, normalisation in enumerate(block):
            if isinstance(normalisation, nn.BatchNorm2d | nn.BatchNorm3d):
                before = block[number - 1]
                assert isinstance(before, nn.Conv2d | nn.Conv3d)
                fused = fuse_conv_bn_eval(before.double(), normalisation.double())
                block[number - 1], block[number] = fused.float(), nn.Identity()
    return result


class _Uncounted:
    """Batch normalisation without the unused batch counter, which costs an operation per layer."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training,
            self.momentum, self.eps,
        )  # fmt: skip


class _BatchNorm2d(_Uncounted, nn.BatchNorm2d):
    pass


class _BatchNorm3d(_Uncounted, nn.BatchNorm3d):
    pass


def _two_convolutions(dimensions: int, inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    norm = _BatchNorm2d if dimensions == 2 else _BatchNorm3d
    return nn.Sequential(
        _convolution(dimensions, inputs, hidden),
        norm(hidden),
        nn.ReLU(inplace=True),
        _convolution(dimensions, hidden, outputs),
        norm(outputs),
        nn.ReLU(inplace=True),
    )


def _convolution(
    dimensions: int, inputs: int, outputs: int, kernel: int = 3
) -> nn.Conv2d | nn.Conv3d:
    convolution = nn.Conv2d if dimensions == 2 else nn.Conv3d
    return convolution(inputs, outputs, kernel, padding=kernel // 2)


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
