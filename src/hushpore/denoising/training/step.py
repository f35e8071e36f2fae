"""One training step, which reads nothing on the host.

Sampling, masking or pairing, the network, its gradient, the optimiser and the running average are
only queued on the device. A test runs the whole step on PyTorch's ``meta`` device, where reading a
value raises an error.
"""

from __future__ import annotations

import contextlib
import copy
import math
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hushpore.base.errors import InputError
from hushpore.denoising.model import CORRECTED_AT, SHARE_QUANTILES
from hushpore.denoising.pairs import Replacement, draw_positions, mask_pixels, values_at
from hushpore.device.transfers import constant
from hushpore.patches.places import draw_corners, draw_orientations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hushpore.denoising.images import Images
    from hushpore.denoising.model import UNet
    from hushpore.device.backend import Backend

#: Just below 32 MiB: the largest block from which the C library adapts its thresholds.
_LARGE = 2**25 - 2**16

#: Batches for the fit of the input shares, and approximate number of pixels for quantiles.
_SHARE_BATCHES, _QUANTILES_OF = 8, 1 << 20

#: Quantiles of the output between which it is corrected, and least distance of their values.
_OUTERMOST, _LEAST_RANGE = (0.005, 0.995), 1e-6

#: Share of the noise variance below which nothing is removed: the gain would be 0.09 dB.
_NOTHING = 0.02

#: Decay of the running average of the weights, once it has warmed up.
AVERAGE_DECAY = 0.995


class PairMaker(Protocol):
    """Makes pairs of noisy patches, for training without masked pixels.

    The two patches of a pair have independent noise, so that the noise of the target cannot be
    predicted.
    """

    @property
    def input_variance(self) -> float:
        """Noise variance of an input, relative to that of the scan."""

    @property
    def target_variance(self) -> float:
        """Noise variance of a target, relative to that of the scan."""

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


@dataclass(frozen=True)
class BatchSampler:
    """Draws the batches of a training."""

    size: tuple[int, ...]  # spatial shape of a patch
    count: int  # patches in a batch
    share: float  # masked fraction
    generator: torch.Generator | None  # source of all random numbers, on the device of the image
    # replacement of masked pixels, and the direction of line noise
    replacement: Replacement = field(default_factory=Replacement)
    # makes inputs and targets, for training without masked pixels
    pair_maker: PairMaker | None = None

    @property
    def voxels(self) -> int:
        """Number of voxels in a batch."""
        return self.count * math.prod(self.size)

    def corners(self, images: Images) -> torch.Tensor:
        """Draw the positions of the patches of a batch: int64, shape (count, 1 + len(size))."""
        if images.places is not None:
            return images.places.draw(self.count, self.generator)
        return draw_corners(
            images.shape, (1, *self.size), self.count, self.generator, images.device
        )

    def places(self, images: Images) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw the positions and the orientations of the patches of a batch."""
        corners = self.corners(images)
        turned = draw_orientations(
            self.count, len(self.size), self.generator, images.device,
            exchange=self.replacement.line is None,
        )  # fmt: skip
        return corners, turned

    def halved(self) -> BatchSampler | None:
        """Return a sampler with half the batch size, or None if it is 1."""
        return replace(self, count=self.count // 2) if self.count > 1 else None


class Adam:
    """Adam (https://arxiv.org/abs/1412.6980), as one operation over all weights.

    PyTorch's own class uses the same operation, but imports PyTorch's compiler on first use, which
    delays the first training step by as long as importing PyTorch.

    `moments`: the state of each parameter: "step", "exp_avg" and "exp_avg_sq", as in PyTorch.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.moments = [
            {
                "step": torch.zeros((), device=each.device),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }
            for each in self.parameters
        ]
        self._counts, self._first, self._second = (
            [each[name] for each in self.moments] for name in ("step", "exp_avg", "exp_avg_sq")
        )

    def zero_grad(self) -> None:
        """Discard the gradients of the previous step."""
        for each in self.parameters:
            each.grad = None

    @torch.no_grad()
    def step(self, rate: float | torch.Tensor) -> None:
        """Update the weights; every weight must have a gradient.

        `rate`: learning rate; as a tensor it can change between replays of a captured step.
        """
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        update: Any = torch._fused_adam_  # two signatures, of which one is described
        torch._foreach_add_(self._counts, 1)
        update(
            self.parameters, gradients, self._first, self._second, [], self._counts, lr=rate,
            beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


class RunningAverage:
    """A running average of a network's weights and statistics.

    `network`: the network that is trained. `average`: a copy of it, which holds the average.
    """

    def __init__(self, network: UNet, average: UNet) -> None:
        # the fixed blur kernels are buffers too, and the same in both
        self._of, self._in = _lists_of(network), _lists_of(average)

    @torch.no_grad()
    def update(self, weight: float | torch.Tensor) -> None:
        """Update the average with the current network.

        `weight`: of the current network; as a tensor it can change between replays.
        """
        for present, average in zip(self._of, self._in, strict=True):
            if isinstance(weight, torch.Tensor):
                difference = torch._foreach_sub(present, average)
                torch._foreach_mul_(difference, weight)
                torch._foreach_add_(average, difference)
            else:
                torch._foreach_lerp_(average, present, weight)


class LowPrecisionWeights:
    """Copies of the convolution weights in bfloat16, made by a single operation per step.

    Another single operation casts the gradients back. PyTorch would cast each weight and each
    gradient separately. The results are identical.
    """

    def __init__(self, network: UNet, dtype: torch.dtype) -> None:
        names = [
            name
            for part, module in network.named_modules()
            if isinstance(module, torch.nn.Conv2d | torch.nn.Conv3d) and module is not network.out
            for name in (f"{part}.weight", f"{part}.bias")
        ]
        self._weights: list[torch.Tensor] = [network.get_parameter(name) for name in names]
        self._copies = [each.detach().to(dtype).requires_grad_() for each in self._weights]
        self._gradients = [torch.zeros_like(each) for each in self._weights]
        self._features = _Features(network)
        self._by_name = {
            f"network.{name}": each for name, each in zip(names, self._copies, strict=True)
        }

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of the network with its current weights."""
        with torch.no_grad():
            torch._foreach_copy_(self._copies, self._weights)
        features: torch.Tensor = torch.func.functional_call(self._features, self._by_name, (x,))
        return features

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Assign the gradients of the copies to the weights."""
        torch._foreach_copy_(self._gradients, [_gradient_of(each) for each in self._copies])
        for weight, gradient, copied in zip(
            self._weights, self._gradients, self._copies, strict=True
        ):
            weight.grad, copied.grad = gradient, None


class _Features(torch.nn.Module):
    """The features of a network, as a module whose weights can be substituted."""

    def __init__(self, network: UNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network.features(x)


def _gradient_of(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None, "every weight was used"
    return weight.grad


class Learner:
    """A network, the running average of its weights, and the optimiser.

    `dtype`: float32, or bfloat16 for mixed precision. `backend`: the device, for captured steps.
    `keeps_patch_losses`: whether a step records the loss of each patch.
    """

    keeps_patch_losses = False
    # float32, shape (batch, n_axes + 1), on the device: position of each patch of the last recorded
    # batch (`BatchSampler.corners`), and its loss
    patch_losses: torch.Tensor | None = None

    def __init__(
        self, network: UNet, dtype: torch.dtype = torch.float32, backend: Backend | None = None
    ) -> None:
        # freeing a large block makes the C library of Linux keep more memory; otherwise it would
        # return memory to the system and get it again page by page in every step
        torch.empty(_LARGE, dtype=torch.uint8)
        self.network = network
        self.average = copy.deepcopy(network).eval()
        self.dtype = dtype
        device = network.out.weight.device
        self._replays = None if backend is None else backend.graph_replays("training steps")
        # learning rate, and weight in the average; on the device they can change between replays
        self._rate: float | torch.Tensor = 0.0
        self._weight: float | torch.Tensor = 0.0
        if self._replays is not None:
            self._rate, self._weight = torch.zeros(2, device=device)
        self.optimizer = Adam(network.parameters())
        self._averaging = RunningAverage(network, self.average)
        self._low = None if dtype == torch.float32 else LowPrecisionWeights(network, dtype)

    def step(
        self, images: Images, batch_sampler: BatchSampler, rate: float, step: int
    ) -> torch.Tensor:
        """Train on one batch and return its loss, as a tensor on the device.

        `step`: number of this step, from 0.
        """
        # a small decay at first, so that the average soon forgets the initial weights
        weight = 1 - min(AVERAGE_DECAY, (1 + step) / (10 + step))
        if isinstance(self._rate, torch.Tensor) and isinstance(self._weight, torch.Tensor):
            self._rate.fill_(rate)
            self._weight.fill_(weight)
        else:
            self._rate, self._weight = rate, weight
        if self._replays is None or self.keeps_patch_losses:
            loss = self._train(images, batch_sampler)
        else:
            # a weak reference, so that old blocks of a volume are freed
            key = (weakref.ref(images), batch_sampler.size, batch_sampler.count)
            loss = self._replays.call(
                key, lambda: self._train(images, batch_sampler), generator=batch_sampler.generator
            )
        return loss

    def _train(self, images: Images, batch_sampler: BatchSampler) -> torch.Tensor:
        loss = self._loss(self.network, images, batch_sampler)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self._low is not None:
            self._low.take_gradients()
        self.optimizer.step(self._rate)
        self._averaging.update(self._weight)
        return loss.detach()

    @torch.no_grad()
    def validate(self, images: Images, batch_sampler: BatchSampler) -> torch.Tensor:
        """Return the loss of the averaged network on a batch, as a tensor on the device."""
        return self._loss(self.average, images, batch_sampler)

    @torch.no_grad()
    def fit_correction_and_shares(self, images: Images, batch_sampler: BatchSampler) -> None:
        """Fit the correction of the averaged network, and the share of its input in the output.

        First the mean of the removed noise becomes 0 at each grey value of the output: air, pores
        and solid are shifted differently, most so after a short training. After such a training,
        especially with little noise, the scan may be closer to the true image than the prediction,
        and a weighted sum of both is closer than either. The weight of the input is a least-squares
        fit over some batches, whose targets have independent noise, so that the noise of the input
        does not count. It depends on the local difference between input and prediction, and on the
        local variation of the prediction (`UNet.activity`): at edges and small pores it is larger.
        Regions that the network predicts well are unchanged.

        `images`, `batch_sampler`: as for `step`, with a `PairMaker`.
        """
        network, pair_maker = self.average, batch_sampler.pair_maker
        assert pair_maker is not None
        looked_at, applied = [], []
        for _ in range(_SHARE_BATCHES):
            corners, turned = batch_sampler.places(images)
            inputs, targets = pair_maker.pairs(
                images, corners, batch_sampler.size, turned, batch_sampler.generator
            )
            output = self._predicted(network, inputs)
            looked_at.append((network.own(inputs), targets, output))
            # the network is applied to the scan, which has less noise than the training inputs
            scan = images.windows(corners, batch_sampler.size, turned)
            applied.append((network.own(scan), self._predicted(network, scan)))
        own, output = self._in_the_middle(images, batch_sampler)
        some = output.flatten()[:: max(1, output.numel() // _QUANTILES_OF)]
        low, high = torch.quantile(some, torch.tensor(_OUTERMOST, device=some.device))
        at = torch.linspace(0, 1, CORRECTED_AT, device=some.device)
        network.offset_at.copy_(low + at * (high - low).clamp_min(_LEAST_RANGE))
        network.offset.copy_(_mean_correction(own - output, network.places_of(output)))
        found = []
        for own, targets, unshifted in looked_at:
            output = network.shifted(unshifted)
            difference = own - output
            energy = network.activity(difference, output)
            found.append([difference * (targets - output), difference.square(), energy])
        product, square, energy = (torch.cat(each).flatten() for each in zip(*found, strict=True))
        quantiles = torch.tensor(SHARE_QUANTILES, device=energy.device)
        some = energy[:: max(1, len(energy) // _QUANTILES_OF)]
        edges = torch.quantile(some, quantiles)[1:]
        group = torch.bucketize(energy, edges)

        def sums(values: torch.Tensor) -> torch.Tensor:
            zero = torch.zeros(len(quantiles), device=values.device)
            return zero.index_add_(0, group, values)

        # the rest of the difference is noise, which is stronger in training inputs than in the scan
        earned = sums(product).clamp_min(0)
        noise = (sums(square) - earned).clamp_min(0) / pair_maker.input_variance
        shares = (earned / (earned + noise)).nan_to_num(0.0)
        at = (sums(energy) / sums(torch.ones_like(energy))).nan_to_num(0.0)
        network.input_shares.copy_(shares)
        # groups may be empty, but their positions must be increasing
        rising = 1e-3 * torch.arange(len(quantiles), device=at.device)
        network.share_at.copy_(torch.cummax(at - rising, 0).values + rising)
        # with optimal shares the removed power equals the gain. If it is tiny, it is mostly image
        # structure that the network does not know
        gone = torch.cat([network.removed(*each) for each in applied]).square().mean()
        is_nothing = gone < _NOTHING * noise.sum() / len(energy)
        network.input_shares.copy_(torch.where(is_nothing, 1.0, network.input_shares))

    def _in_the_middle(
        self, images: Images, batch_sampler: BatchSampler
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scan and output of the averaged network, (patches, outputs, pixels).

        The patches are cut out of larger ones: the network sees the border of a patch, and shifts
        the grey values there, unlike in a whole slice.
        """
        network, size = self.average, batch_sampler.size
        architecture, room = network.architecture, images.shape[1:]
        rules = zip(size, architecture.radii, architecture.multiples, room, strict=True)
        larger: tuple[int, ...] = tuple(
            min(n + 2 * (-(-radius // step) * step), most // step * step)
            for n, radius, step, most in rules
        )
        # a patch may be turned by a quarter
        larger = (*larger[:-2], *(min(larger[-2:]),) * 2)
        before = [(most - n) // 2 for most, n in zip(larger, size, strict=True)]
        middle = tuple(slice(start, start + n) for start, n in zip(before, size, strict=True))
        last = constant(tuple(n - m for n, m in zip(room, larger, strict=True)), images.device)
        found = []
        for _ in range(_SHARE_BATCHES):
            corners, turned = batch_sampler.places(images)
            within = corners[:, 1:] - constant(tuple(before), images.device)
            corners = torch.cat([corners[:, :1], within.clamp_min(0).minimum(last)], 1)
            scan = images.windows(corners, larger, turned)
            for few in torch.split(scan, max(1, len(scan) // 4)):
                output = self._predicted(network, few)
                found.append([x[:, :, *middle].flatten(2) for x in (network.own(few), output)])
        own, output = (torch.cat(each) for each in zip(*found, strict=True))
        return own, output

    def _loss(self, network: UNet, images: Images, batch_sampler: BatchSampler) -> torch.Tensor:
        draw, how = batch_sampler.generator, batch_sampler.replacement
        corners, turned = batch_sampler.places(images)
        if batch_sampler.pair_maker is not None:
            inputs, targets = batch_sampler.pair_maker.pairs(
                images, corners, batch_sampler.size, turned, draw
            )
            output = self._predicted(network, inputs)
            errors = (output - targets).square().flatten(1).mean(1)
            self._keep_patch_losses(corners, errors)
            return errors.mean()
        patches = images.windows(corners, batch_sampler.size, turned)  # (batch, inputs, *size)
        positions = draw_positions(
            batch_sampler.size, batch_sampler.share, batch_sampler.count, draw, images.device
        )
        # mask all predicted planes at the same positions: their noise may be correlated
        hidden_at = positions.repeat_interleave(images.outputs, 0)
        first, last = images.first, images.first + images.outputs
        noisy = patches[:, first:last].flatten(0, 1)  # (batch * outputs, *size)
        hidden = mask_pixels(noisy, hidden_at, how, draw).view(
            -1, images.outputs, *batch_sampler.size
        )
        inputs = torch.cat([patches[:, :first], hidden, patches[:, last:]], 1)
        features = self._features_of(network, inputs)
        found = network.output_at(features, positions).flatten(0, 1)
        truth = values_at(noisy, hidden_at)
        if self.keeps_patch_losses:
            errors = (found.detach() - truth).square().view(batch_sampler.count, -1).mean(1)
            self._keep_patch_losses(corners, errors)
        return torch.nn.functional.mse_loss(found, truth)

    def _predicted(self, network: UNet, inputs: torch.Tensor) -> torch.Tensor:
        return network.output(self._features_of(network, inputs))

    def _features_of(self, network: UNet, inputs: torch.Tensor) -> torch.Tensor:
        compute = network.features
        if network is self.network and self._low is not None:
            compute = self._low.features
        with mixed_precision(inputs.device.type, self.dtype):
            return compute(channels_last(inputs))

    def _keep_patch_losses(self, corners: torch.Tensor, errors: torch.Tensor) -> None:
        if self.keeps_patch_losses:
            # float32 is exact for integers up to 2**24, more than any axis has
            losses = errors.detach().float()[:, None]
            self.patch_losses = torch.cat([corners.float(), losses], 1)


def _mean_correction(errors: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the mean error near each place, or 0 if it is within three standard errors of 0.

    `errors`: (patches, outputs, pixels). `places`: of the same shape, 0 to `CORRECTED_AT` - 1.
    Returns: (outputs, `CORRECTED_AT`). Where there are no pixels, the mean is that of the nearest.
    """
    index = places.round().long()
    sums, counts = (
        torch.zeros(*errors.shape[:2], CORRECTED_AT, device=errors.device).scatter_add_(2, index, x)
        for x in (errors, torch.ones_like(errors))
    )
    apart = torch.arange(CORRECTED_AT, device=errors.device)
    near = torch.exp(-4.0 * (apart[:, None] - apart).abs())
    sums, counts = sums @ near, counts @ near
    total = counts.sum(0)
    mean = sums.sum(0) / total
    # patches differ by more than the noise of single pixels
    variance = (sums - mean * counts).square().sum(0) / total.square()
    return mean * (1 - 9 * variance / mean.square().clamp_min(1e-12)).clamp_min(0)


def choose_precision(wanted: str, backend: Backend, dimensions: int = 2) -> torch.dtype:
    """Return the number format of the network: bfloat16 on devices that are fast at it.

    Raises InputError if bfloat16 is requested for 3D on a CPU without AMX tiles: there PyTorch 2.13
    is not reproducible, and the loss is sometimes NaN.
    """
    # PyTorch has no public function for it
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    if dimensions == 3 and not backend.is_cuda:
        if wanted == "bfloat16" and has_tiles:
            return torch.bfloat16
        if wanted == "bfloat16":
            raise InputError(
                "In 3D on a CPU without AMX, precision='bfloat16' is not reliable in PyTorch. Use "
                "precision='float32' or precision='auto'."
            )
        return torch.float32
    if wanted != "auto":
        dtype: torch.dtype = getattr(torch, wanted)
        return dtype
    # without AMX tiles a bfloat16 step took 1.3 to 1.4 times as long as in float32, even with
    # AVX512-BF16
    is_fast = has_tiles
    if backend.is_cuda:
        is_fast = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if is_fast else torch.float32


def mixed_precision(device: str, dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which the network computes in `dtype`."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    # no weight is used twice, and cached casts would be missing when a captured step is replayed
    return torch.autocast(device, dtype, cache_enabled=False)


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """Return images (batch, channels, *size) with channels last in memory, except on a Mac."""
    if images.device.type == "mps":
        return images.contiguous()
    layout = torch.channels_last if images.ndim == 4 else torch.channels_last_3d
    return images.contiguous(memory_format=layout)


def _lists_of(network: torch.nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the weights, and the statistics of batches."""
    buffers = [buffer for name, buffer in network.named_buffers() if "running_" in name]
    return list(network.parameters()), buffers
