"""Inputs and targets of a training: from one noisy image by more noise or blind spots, or from two.

Recorrupted-to-Recorrupted makes an input and a target from one noisy image.

If the noise model is known, more noise can be simulated. With a noisy image y and simulated noise e
of the same covariance, y + a e and y - e / a have independent noise, even if it is correlated
between neighbouring voxels: a network that predicts one from the other learns the image, as from a
second scan. No pixels are masked, so that even a pore of one voxel that exceeds the noise is kept,
and all pixels of a patch contribute to the training.

After Pang et al., Recorrupted-to-Recorrupted: Unsupervised Deep Learning for Image Denoising,
https://doi.org/10.1109/CVPR46437.2021.00208; here for noise that is correlated, and that may grow
with the grey value.

Blind spots: masked pixels of a patch, which the network must predict from the others.

The masked pixels are stratified: the patch is cut into a fixed grid of cells and one pixel is drawn
in each, so their number never varies and no boolean mask is needed. A masked pixel is replaced by
the median or mean of its neighbours (N2V2, https://doi.org/10.1007/978-3-031-25069-9_33), or by one
of its neighbours (N2V, https://doi.org/10.1109/CVPR.2019.00223).

If the noise is correlated along a line, the network could predict it from the rest of that line.
Then the pixels next to a masked one along the line are masked too (structN2V,
https://doi.org/10.1109/ISBI45749.2020.9098336), and the line is excluded from the median.

Noise2Noise: training on two scans of the same object, each predicted from the other.

If the noise of two scans is independent, a network that predicts one from the other learns what
they have in common: the image. No noise model is needed. The two scans are a repeated scan, or
reconstructions from two halves of the projections.

After Lehtinen et al., Noise2Noise: Learning Image Restoration without Clean Data,
https://doi.org/10.48550/arXiv.1803.04189; for halves of the projections Hendriksen et al.,
Noise2Inverse: Self-supervised Deep Convolutional Denoising for Tomography,
https://doi.org/10.1109/TCI.2020.3019647.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from scipy import fft

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_number
from hushpore.base.volume import Volume
from hushpore.device.transfers import constant, grid
from hushpore.patches.places import flat_index, read_windows
from hushpore.scan.flat_blocks import move_into_chunks, read_boxes
from hushpore.scan.noise_model import NOTABLE, power_spectrum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hushpore.base.arrays import Float64s
    from hushpore.denoising.images import Images
    from hushpore.denoising.plane_reader import Scale
    from hushpore.denoising.settings import DenoiseSettings
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
        strength = strength_of(model, plane)
        if strength is not None:
            strength = strength.to(device)
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


def strength_of(model: NoiseModel, plane: tuple[int, ...]) -> torch.Tensor | None:
    """Return the relative standard deviation of noise at each pixel of a slice, (1, y, x).

    `plane`: shape of a slice.
    Returns: None if the noise is uniform.
    """
    if model.strength is None:
        return None
    cells = torch.from_numpy(model.strength)[None, None]
    return F.interpolate(cells, plane, mode="bilinear")[0]


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


#: Edge of the neighbourhood from which replacement values are taken, in pixels.
WINDOW = 5


def draw_positions(
    size: Sequence[int],
    share: float,
    count: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Draw the pixels to mask: one in each cell of a grid, separately for every patch.

    `size`: spatial shape of a patch. `share`: wanted share of masked pixels; the grid matches it as
    closely as whole cells allow. `generator`, `device`: as for
    `hushpore.patches.places.draw_corners`.
    Returns: int64, shape (count, n_cells, len(size)).
    """
    edges = constant(tuple(size), device)
    cells = tuple(max(1, round(edge * share ** (1 / len(size)))) for edge in size)
    cell = grid(cells, device)
    draw = torch.rand((count, *cell.shape), generator=generator, device=device)
    cell_edge = edges / constant(cells, device)
    # rounding can carry a draw just below 1 into the next cell, or out of the patch
    return ((cell + draw) * cell_edge).long().minimum(edges - 1)


@dataclass(frozen=True)
class Line:
    """The line through a masked pixel along which the noise is correlated."""

    axis: int  # direction: an axis of the patch
    reach: int  # number of pixels masked on either side


@dataclass(frozen=True)
class Replacement:
    """Replacement of masked pixels."""

    # ``"median"`` or ``"mean"`` of the neighbourhood, or ``"uniform"``: any of its pixels
    kind: str = "median"
    window: int = WINDOW  # edge of the neighbourhood, odd
    # direction of correlated noise: the whole line through the pixel is excluded
    line: Line | None = None


def replacement_values(
    patches: torch.Tensor,
    positions: torch.Tensor,
    replacement: Replacement,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the replacement values of the pixels at `positions`.

    The window is cropped at the border of the patch: clamped or mirrored coordinates would let a
    pixel near the border see itself. With an even number of neighbours the median is the mean of
    the two middle ones.

    `patches`: floating point, shape (count, *size). `positions`: int64, shape (count, n_positions,
    len(size)). `generator`: source of random numbers for the kind ``"uniform"``.
    Returns: shape (count, n_positions), dtype of the patches.
    """
    reach = replacement.window // 2
    # values outside the patch sort to the end and are not counted
    padded = torch.nn.functional.pad(patches, [reach] * 2 * (patches.ndim - 1), value=math.inf)
    size = tuple(padded.shape[1:])
    around = constant(_around(replacement, size), patches.device)
    index = flat_index(positions + reach, size)[..., None] + around
    values = padded.flatten(1).gather(1, index.flatten(1)).view_as(index)
    inside = values < math.inf
    n_inside = inside.sum(-1, keepdim=True)
    if replacement.kind == "mean":
        return torch.where(inside, values, 0).sum(-1) / n_inside[..., 0]
    ordered = values.sort(-1).values
    if replacement.kind == "uniform":
        draw = torch.rand(n_inside.shape, generator=generator, device=patches.device)
        # a float32 just below 1, times the number of neighbours, can round up to it
        place = (draw * n_inside).long().minimum(n_inside - 1)
        return ordered.gather(-1, place).squeeze(-1)
    low = ordered.gather(-1, (n_inside - 1) // 2)
    high = ordered.gather(-1, n_inside // 2)
    return ((low + high) / 2).squeeze(-1)


def mask_pixels(
    patches: torch.Tensor,
    positions: torch.Tensor,
    replacement: Replacement | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the patches with the pixels at `positions` replaced.

    With a line, the pixels next to them along the line are replaced as well. Parameters as for
    `replacement_values`; the default replacement is the median of the neighbours.
    """
    replacement = replacement or Replacement()
    if replacement.line is not None:
        positions = _along(positions, replacement.line, patches.shape[1:])
    flat = flat_index(positions, patches.shape[1:])
    new = replacement_values(patches, positions, replacement, generator)
    return patches.flatten(1).scatter(1, flat, new).view_as(patches)


def values_at(patches: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the values at `positions`, shape (count, n_positions)."""
    index = flat_index(positions, patches.shape[1:])
    return patches.flatten(1).gather(1, index.flatten(1)).view_as(index)


def _around(replacement: Replacement, size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the flat index offsets of the candidate pixels."""
    n_axes = len(size)
    reach = range(-(replacement.window // 2), replacement.window // 2 + 1)
    off_axis = [
        axis for axis in range(n_axes) if replacement.line is None or axis != replacement.line.axis
    ]
    strides = [math.prod(size[axis + 1 :]) for axis in range(n_axes)]
    return tuple(
        sum(map(operator.mul, offset, strides))
        for offset in itertools.product(reach, repeat=n_axes)
        if any(offset[axis] for axis in off_axis)
    )


def _along(positions: torch.Tensor, line: Line, size: Sequence[int]) -> torch.Tensor:
    """Return the positions and their neighbours along a line, clipped to the patch."""
    shifts = tuple(
        tuple(shift if axis == line.axis else 0 for axis in range(len(size)))
        for shift in range(-line.reach, line.reach + 1)
    )
    edges = constant(tuple(size), positions.device)
    spread = positions[:, :, None] + constant(shifts, positions.device)
    # positions outside are clipped to the border pixel, which is masked twice with the same value
    return spread.clamp_min(0).minimum(edges - 1).flatten(1, 2)


#: Minimum correlation of averages over small squares for two slices or scans to count as similar;
#: neighbouring slices of a scan have more than 0.9.
ALIKE = 0.5

#: Edge of the squares for the comparison of two scans, in pixels.
_EDGE = 8
#: Number of squares in the comparison.
_SQUARES = 4000
#: Share of the squares with the least image structure, in which the noise is compared.
_FLATTEST = 0.05

#: Minimum correlation of the noise of two scans for it to count as the same.
_SAME = 0.99

#: Minimum difference of the mean grey values for a note, in standard deviations of the scan.
_NOTABLE_SHIFT = 0.05


class Noise2Noise:
    """Makes training pairs with the input from one of two scans and the target from the other."""

    #: Noise variance of an input and of a target, relative to that of a scan.
    input_variance = target_variance = 1.0

    def pairs(
        self,
        images: Images,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the same patches of both scans; which of them is the input is drawn at random.

        `images`, `corners`, `orientations`: as for `Images.windows`.
        Returns: inputs (count, inputs, *size) and targets (count, outputs, *size).
        """
        scan = torch.randint(2, (len(corners),), generator=generator, device=corners.device)
        own = slice(images.first, images.first + images.outputs)
        inputs = images.windows(corners, size, orientations, scan)
        return inputs, images.windows(corners, size, orientations, 1 - scan)[:, own]


def load_second_scan(volume: Volume, settings: DenoiseSettings) -> Volume | None:
    """Return the second scan that the settings name, or None.

    Raises InputError if its shape differs from the volume's, or the volume has several channels.
    """
    values = volume.auxiliary_of(settings, "pair")
    if values is None:
        return None
    other = volume.auxiliary[settings.pair]
    name, source = (other.name, other.source) if isinstance(other, Volume) else (settings.pair, "")
    if tuple(values.shape) != volume.shape:
        raise InputError(
            f"pair: {name} has shape {tuple(values.shape)}, but {volume.name} has {volume.shape}. "
            "Choose a second scan with the same voxel grid."
        )
    n_channels = volume.shape[volume.axes.index("c")] if "c" in volume.axes else 1
    if n_channels > 1:
        raise InputError(
            f"Noise2Noise needs scans with a single channel; {volume.name} has {n_channels} "
            "channels. Choose one channel of both scans."
        )
    return volume.replace(values, name=name, source=source, auxiliary={})


@dataclass(frozen=True)
class Agreement:
    """Comparison of two scans of the same object."""

    # correlation of their averages over small squares: near 1 if they show the same object in the
    # same place
    likeness: float
    # correlation of their noise in flat regions: near 0 if it is independent
    noise_in_common: float
    # mean grey value of the second scan minus that of the first, and standard deviation of the
    # first
    shift: float
    deviation: float

    def notes(self, volume: Volume, pair: Volume) -> Iterator[str]:
        """Yield notes on problems of the pair."""
        if self.likeness < ALIKE:
            yield (
                f"{volume.name} and {pair.name} differ strongly (correlation {self.likeness:.2f} "
                f"after averaging over {_EDGE} x {_EDGE} pixels). Check that they show the same "
                "sample in the same position."
            )
            return
        if self.noise_in_common >= NOTABLE:
            yield (
                f"The noise of {volume.name} and {pair.name} is correlated "
                f"({self.noise_in_common:.2f}), so some of it will remain. Use scans that share no "
                "projections."
            )
        if abs(self.shift) > _NOTABLE_SHIFT * self.deviation:
            brighter = "brighter" if self.shift > 0 else "darker"
            yield (
                f"{pair.name} is {brighter} than {volume.name} by "
                f"{readable_number(abs(self.shift))} on average; the result has their mean grey "
                "value."
            )


def compare_scans(volume: Volume, pair: Volume, seed: int = 0) -> Agreement:
    """Compare two scans of the same object in small squares at random positions.

    `volume`, `pair`: of the same axes and shape, at least 4 pixels in y and x.
    Raises InputError if both scans have the same noise.
    """
    rng = np.random.default_rng(seed)
    edges = [min(_EDGE, n) for n in volume.shape[-2:]]
    size = (1,) * (volume.ndim - 2) + tuple(edges)
    room = np.array(volume.shape) - np.array(size) + 1
    corners = move_into_chunks(rng.integers(0, room, (_SQUARES, len(size))), size, volume.data)
    first, second = (
        read_boxes(each.data, corners, size).reshape(_SQUARES, *edges) for each in (volume, pair)
    )
    both = (first + second) / 2
    # averages over quarters show edges and gradients in spite of the noise
    halves = np.array_split(both, 2, axis=1)
    quarters = [part.mean((1, 2)) for half in halves for part in np.array_split(half, 2, axis=2)]
    variation = np.ptp(quarters, axis=0)
    # the fill value has no noise
    variation[np.ptp(both, axis=(1, 2)) == 0] = np.inf
    flat = np.argsort(variation, kind="stable")[: round(_FLATTEST * _SQUARES)]
    noise = [np.diff(each[flat], 2, axis=2) for each in (first, second)]
    means = [each.mean((1, 2)) - each.mean() for each in (first, second)]
    common = _correlation(*noise)
    if common > _SAME or np.array_equal(first, second):
        raise InputError(
            f"pair: {pair.name} has the same noise as {volume.name}: it is the same scan. Choose a "
            "repeat scan, or the reconstruction from the other half of the projections."
        )
    shift = float(second.mean() - first.mean())
    return Agreement(_correlation(*means), common, shift, float(first.std()))


def _correlation(a: Float64s, b: Float64s) -> float:
    """Return the correlation of values with zero mean; 0 if all are zero."""
    power = np.sqrt(np.mean(a**2) * np.mean(b**2))
    return float(np.mean(a * b) / power) if power else 0.0
