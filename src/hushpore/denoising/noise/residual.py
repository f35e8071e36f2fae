"""Examination of the residual (noisy minus denoised) and of the result, and detail restoration.

If the noise is uncorrelated, the residual has mean zero and no correlation between neighbours, and
the result has no more power at the Nyquist frequency, where checkerboards appear, than just below
it.

Detail restoration adds image structure in the residual back to the result. A blind spot does not
see its own pixel, so that sharp edges and fine texture are removed with the noise. Where the local
variance of the residual exceeds that of the noise, the excess share is added back: the local Wiener
filter of Lee (https://doi.org/10.1109/TPAMI.1980.4766994), applied to the residual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import result_of
from hushpore.base.formatting import readable_number
from hushpore.denoising.noise.match import NoiseMatch, match_noise
from hushpore.denoising.plane_reader import pieces
from hushpore.scan.flat_blocks import (
    FEWEST,
    equal_limit,
    move_into_chunks,
    read_boxes,
    share_of_equal,
)
from hushpore.scan.noise_model import neighbour_correlation

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.denoising.plane_reader import PlaneReader
    from hushpore.scan.noise_model import NoiseDiagnosis, NoiseModel
    from hushpore.scan.sample import Sample

#: Edge of the blocks for spectra, and maximum number of blocks.
BLOCK, _BLOCKS = 16, 1500

#: Thresholds for notes: mean of the residual in standard deviations, correlation of neighbours in
#: excess of that of the noise, and power at the Nyquist frequency relative to that just below.
NOTABLE_MEAN, NOTABLE_CORRELATION, NOTABLE_PATTERN = 0.05, 0.15, 2.0

#: Standard deviation of the Gaussian for the local variance of the residual in y and x, in pixels.
REACH = 3.0
#: Radius of that Gaussian, in pixels: four standard deviations, as in SciPy.
MARGIN = 12


#: Note if detail cannot be restored.
NOT_RESTORED = (
    "No detail was restored: the noise of neighbouring voxels is correlated and cannot be "
    "distinguished from detail."
)


@dataclass(frozen=True)
class Residual:
    """Statistics of the residual, and its problems."""

    # of noisy minus denoised, in grey values
    mean: float
    deviation: float
    correlation: dict[str, float]  # of neighbouring voxels of the residual, for each spatial axis
    # for y and x: power of the result at the Nyquist frequency, relative to that at three quarters
    # of it: below 1 for images, far above 1 for checkerboards
    nyquist: dict[str, float]
    match: NoiseMatch | None = None  # comparison with the noise model; None if it is uncertain
    problems: tuple[str, ...] = ()  # each in a sentence


def examine_residual(
    source: PlaneReader,
    denoised: Any,
    noise: NoiseModel,
    seed: int = 0,
    moments: tuple[float, float] | None = None,
    sample: Sample | None = None,
) -> Residual:
    """Compare a result with its input.

    `source`: the noisy volume. `denoised`: of the same shape; both are read piece by piece.
    `noise`: noise of the noisy volume. `seed`: of the random choice of blocks. `moments`: mean and
    standard deviation of the residual, if known. `sample`: only blocks inside it are examined.
    """
    mean, deviation = moments or result_of(residual_moments(source, denoised))
    rng, volume = np.random.default_rng(seed), source.volume
    noisy_blocks, blocks, middles = _draw_pairs(volume, denoised, rng, sample)
    residual = noisy_blocks - blocks - mean
    axes = {"z": 1, "y": 2, "x": 3}
    if residual.shape[1] == 1 or source.volume.n_spatial == 2:
        del axes["z"]
    correlation = {name: neighbour_correlation(residual, axis) for name, axis in axes.items()}
    match = None
    # channels have different noise, but one noise model
    if "c" not in volume.axes or volume.shape[volume.axes.index("c")] == 1:
        # padding has no noise
        has_noise = share_of_equal(noisy_blocks) <= equal_limit(noisy_blocks)
        match = match_noise(residual[has_noise], blocks[has_noise], middles[has_noise], noise)
    found = Residual(mean, deviation, correlation, nyquist_energy(blocks[:, 0]), match)
    return replace(found, problems=tuple(_problems(found, noise.diagnosis)))


def nyquist_energy(images: Array) -> dict[str, float]:
    """Return the power of images at the Nyquist frequency, relative to three quarters of it.

    `images`: shape (n, edge, edge), the edge a multiple of 8.
    Returns: for y and x; 0 if there is no power at all.
    """
    edge = images.shape[-1]
    window = np.hanning(edge + 2)[1:-1]
    centred = images - images.mean((1, 2), keepdims=True)
    power = np.abs(np.fft.fft2(centred * np.outer(window, window))) ** 2
    mean = power.mean(0)
    half, below = edge // 2, 3 * edge // 8
    found = {}
    for axis, lines in (("y", mean), ("x", mean.T)):
        base = float(lines[below].mean())
        found[axis] = float(lines[half].mean()) / base if base > 0 else 0.0
    return found


def _problems(found: Residual, noise: NoiseDiagnosis) -> list[str]:
    problems = []
    if found.deviation and abs(found.mean) > NOTABLE_MEAN * found.deviation:
        mean = f"{'+' if found.mean > 0 else ''}{readable_number(found.mean)}"
        problems.append(
            f"The removed noise has a mean of {mean} (standard deviation "
            f"{readable_number(found.deviation)}) instead of 0: grey values have shifted."
        )
    left = {
        axis: value
        for axis, value in found.correlation.items()
        if value - max(noise.correlation.get(axis, 0.0), 0.0) > NOTABLE_CORRELATION
    }
    if left:
        *others, last = left
        axes = f"{', '.join(others)} and {last}" if others else last
        problems.append(
            f"The removed part contains structure along {axes} that noise does not have "
            f"(correlation of neighbouring voxels {max(left.values()):.2f}): image detail was lost."
        )
    pattern = max(found.nyquist.values())
    if pattern > NOTABLE_PATTERN:
        problems.append(
            f"The result has a checkerboard pattern ({pattern:.1f} times as much power at the "
            "Nyquist frequency as just below it). Use method='n2v2', which avoids it."
        )
    return problems


def residual_moments(
    source: PlaneReader, denoised: Any
) -> Generator[float, None, tuple[float, float]]:
    """Return mean and standard deviation of the residual; yields the share that is read."""
    total = square = 0.0
    parts = pieces(source)
    for done, (planes, rows) in enumerate(parts, start=1):
        values = source.read(planes, rows).astype(np.float64)
        for plane, noisy in zip(planes, values, strict=True):
            difference = noisy - np.asarray(denoised[source.index(int(plane), rows)])
            total += float(difference.sum())
            square += float(np.vdot(difference, difference))
        yield done / len(parts)
    count = math.prod(source.volume.shape)
    mean = total / count
    return mean, math.sqrt(max(square / count - mean**2, 0.0))


def restore_detail_in_place(
    source: PlaneReader, denoised: Any, noise: NoiseDiagnosis
) -> Generator[float, None, None]:
    """Add detail back to a result in place; yields the completed share.

    `denoised`: of the shape of the volume; read and written piece by piece. `noise`: diagnosis of
    the noise, which must be uncorrelated.
    """
    if len(source.size) == 2:
        # whole slices, so that no neighbourhood is cut off
        parts = [(np.array([plane]), slice(0, source.size[0])) for plane in range(source.count)]
    else:
        parts = pieces(source)
    for number, (planes, rows) in enumerate(parts, start=1):
        noisy = source.read(planes, rows).astype(np.float32)
        for plane, values in zip(planes, noisy, strict=True):
            where = source.index(int(plane), rows)
            denoised[where] = restore_detail(values, np.asarray(denoised[where]), noise)
        yield number / len(parts)


def restore_detail(noisy: Float32s, denoised: Float32s, noise: NoiseDiagnosis) -> Float32s:
    """Return denoised slices (..., y, x) with detail of the residual added back."""
    from scipy.ndimage import gaussian_filter

    residual = noisy - denoised
    reach, far = ((0,) * (residual.ndim - 2) + (each, each) for each in (REACH, MARGIN))
    smooth = gaussian_filter(residual**2, reach, radius=far)
    variance = np.maximum(smooth, np.finfo(np.float32).tiny)
    # without subtracting the mean of the residual, which is removed signal too
    share = np.maximum(1 - noise.variance_at(denoised) / variance, 0)
    result: Float32s = denoised + share * residual
    return result


def _draw_pairs(
    volume: Volume, denoised: Any, rng: np.random.Generator, sample: Sample | None
) -> tuple[Float64s, Float64s, Float64s]:
    """Read the same random blocks of both, (n, depth, edge, edge), the edge at most `BLOCK`.

    Returns: also their middles in y and x, relative to the edges of a slice, (n, 2).
    """
    shape, noisy = volume.shape, volume.data
    edge = min(BLOCK, *(n // 8 * 8 for n in shape[-2:])) or min(shape[-2:])
    depth = 2 if len(shape) > 2 and shape[-3] > 1 else 1
    size = ((1,) * (len(shape) - 3) + (depth, edge, edge))[-len(shape) :]
    room = [n - m + 1 for n, m in zip(shape, size, strict=True)]
    count = min(_BLOCKS, 4 * math.prod(room))
    corners = rng.integers(0, room, (count, len(shape)))
    if sample is not None:
        more = rng.integers(0, room, (int(count * (1 / sample.share - 1)), len(shape)))
        corners, inside = _inside(sample, np.concatenate([corners, more]), size)
        sample = sample if inside else None
    corners = move_into_chunks(corners, size, noisy)
    if sample is not None:
        # moved into chunks, some blocks have left the sample
        corners, _ = _inside(sample, corners, size)
    first, second = (
        read_boxes(data, corners, size).reshape(-1, depth, edge, edge) for data in (noisy, denoised)
    )
    return first, second, (corners[:, -2:] + edge / 2) / shape[-2:]


def _inside(sample: Sample, corners: Int64s, size: tuple[int, ...]) -> tuple[Int64s, bool]:
    """Return the blocks inside a sample and True; all and False if these are hardly any."""
    inside = sample.hold(corners, size)
    return (corners[inside], True) if inside.sum() >= FEWEST else (corners, False)
