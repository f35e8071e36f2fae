"""Examination of the residual (noisy minus denoised) and of the result, and detail restoration.

If the noise is uncorrelated, the residual has mean zero and no correlation between neighbours, and
the result has no more power at the Nyquist frequency, where checkerboards appear, than just below
it.

Detail restoration adds image structure in the residual back to the result. A blind spot does not
see its own pixel, so that sharp edges and fine texture are removed with the noise. Where the local
variance of the residual exceeds that of the noise, the excess share is added back: the local Wiener
filter of Lee (https://doi.org/10.1109/TPAMI.1980.4766994), applied to the residual.

How well the residual (noisy minus denoised) matches the noise model, without a clean image.

The residual of a perfect result is the noise of the scan. If image detail was removed, the residual
has more power than the noise, mostly in blocks with edges; if noise was left, it has less. The
power spectra of blocks of the residual are compared with those of the noise model at the same
places and grey values, in groups of blocks with similar structure and in bands of frequency.

More power than the noise has counts as lost image. Less power P than that of the noise, N, counts
as noise left, of the power (sqrt(N) - sqrt(P))^2, as if a part of the noise had been subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from hushpore.base.events import result_of
from hushpore.base.formatting import readable_number
from hushpore.denoising.plane_reader import pieces
from hushpore.scan.flat_blocks import (
    FEWEST,
    equal_limit,
    move_into_chunks,
    read_boxes,
    share_of_equal,
)
from hushpore.scan.noise_model import neighbour_correlation, power_spectrum

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import pandas as pd

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.denoising.plane_reader import PlaneReader, Scale
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


#: Number of groups of blocks, by the structure of the result in them.
_GROUPS = 8

#: Minimum number of blocks, and minimum edge of a block.
_FEWEST, _LEAST_EDGE = 40, 8

#: Minimum noise variance at a grey value, relative to that at the mean grey value.
_LEAST_VARIANCE = 0.1


@dataclass(frozen=True)
class NoiseMatch:
    """Comparison of the residual with the noise model.

    Attributes
    ----------
    share : float
        1 if the residual is exactly like the noise, else ``1 / (1 + image_lost + noise_left)``.
    image_lost, noise_left : float
        Power of the image in the residual, and of the noise in the result, over that of the noise.
    frequencies : list of float
        Middles of the bands, in cycles per voxel.
    noise, flat, edges : list of float
        Power of the noise model, and of the residual in the half of the blocks with the least
        structure and in the quarter with the most, over the mean power of the noise, in each band.
    """

    share: float
    image_lost: float
    noise_left: float
    frequencies: list[float]
    noise: list[float]
    flat: list[float]
    edges: list[float]


def match_noise(
    residual: Float64s, denoised: Float64s, middles: Float64s, model: NoiseModel
) -> NoiseMatch | None:
    """Compare blocks of the residual with a noise model.

    Parameters
    ----------
    residual, denoised : numpy.ndarray
        The same blocks of both, shape (n, depth, edge, edge), the residual with a mean of zero.
    middles : numpy.ndarray
        Their middles in y and x, relative to the edges of a slice, shape (n, 2).
    model : NoiseModel
        The noise of the scan.

    Returns
    -------
    NoiseMatch or None
        None without noise or residual, if the noise model is uncertain, or with too few blocks.
    """
    count, edge = len(residual), residual.shape[-1]
    if not model.deviation or model.doubts or not residual.any():
        return None
    if count < _FEWEST or edge < _LEAST_EDGE:
        return None
    window = _window(edge)
    found = np.abs(fft.fft2(residual * window)) ** 2
    band = _bands(edge)
    power = np.stack([found[..., band == b].sum(-1).mean(1) for b in range(edge // 2)], -1)
    noise = windowed_spectrum(model.autocovariance, edge)
    expected = np.array([noise[band == b].sum() for b in range(edge // 2)])
    strength = _strength(model, denoised.mean((1, 2, 3)), middles)
    order = np.argsort(denoised.std((1, 2, 3)), kind="stable")
    groups = np.array_split(order, _GROUPS)
    there, asked = (
        np.stack([each[group].sum(0) for group in groups])
        for each in (power, strength[:, None] * expected)
    )
    lost = np.maximum(there - asked, 0.0).sum() / asked.sum()
    left = (np.maximum(np.sqrt(asked) - np.sqrt(there), 0.0) ** 2).sum() / asked.sum()
    cells = np.bincount(band.ravel())
    mean = noise.mean()
    flat, edges = (
        power[part].sum(0) / strength[part].sum() / cells / mean
        for part in (order[: count // 2], order[-(count // 4) :])
    )
    return NoiseMatch(
        float(1 / (1 + lost + left)),
        float(lost),
        float(left),
        *(
            [float(value) for value in line]
            for line in ((np.arange(edge // 2) + 0.5) / edge, expected / cells / mean, flat, edges)
        ),
    )


def windowed_spectrum(autocovariance: Float64s, edge: int) -> Float64s:
    """Return the expected power of noise in a windowed square, on the grid of `scipy.fft.fft2`.

    `autocovariance`: of `NoiseModel`, in 2D or 3D. `edge`: of the square, in pixels.
    """
    within = autocovariance
    if within.ndim == 3:
        within = within[len(within) // 2]
    shape = (2 * edge, 2 * edge)
    overlap = fft.irfft2(np.abs(fft.rfft2(_window(edge), shape)) ** 2, shape)
    around = np.zeros(shape)
    lags = (np.arange(-(n // 2), n // 2 + 1) % (2 * edge) for n in within.shape)
    around[np.ix_(*lags)] = within
    power = np.maximum(fft.fft2(around * overlap).real[::2, ::2], 0.0)
    total = edge**2 * overlap[0, 0] * within[tuple(n // 2 for n in within.shape)]
    # correct the variance for the negative values that were set to zero
    scaled: Float64s = power * (total / power.sum())
    return scaled


def _window(edge: int) -> Float64s:
    line = np.hanning(edge + 2)[1:-1]
    return np.outer(line, line)


def _bands(edge: int) -> Int64s:
    """Return the band of each frequency of a square; the last has the corners too."""
    line = fft.fftfreq(edge) * edge
    radius: Int64s = np.hypot(line[:, None], line).astype(np.int64)
    return np.minimum(radius, edge // 2 - 1)


def _strength(model: NoiseModel, values: Float64s, middles: Float64s) -> Float64s:
    """Return the noise variance of blocks, relative to that of the model at the mean grey value."""
    variance = model.deviation**2
    strength = np.ones(len(values))
    if model.slope:
        strength = np.maximum((model.offset + model.slope * values) / variance, _LEAST_VARIANCE)
    if model.strength is not None:
        places = (middles * model.strength.shape).astype(np.int64)
        strength = strength * model.strength[tuple(places.T)].astype(np.float64) ** 2
    return strength


#: Edge of the grid of simulated noise, and number of frequencies of a spectrum.
_GRID, _FREQUENCIES = 32, 17


def noise_curves(model: NoiseModel) -> pd.DataFrame:
    """Return the curves of a noise model: measured, and from simulated noise.

    Returns: ``curve`` (``"correlation"`` or ``"spectrum"``), ``axis``, ``at`` (distance in voxels,
    or frequency in cycles per voxel), ``measured``, ``drawn`` (simulated) and ``error``, the
    standard error of a measured correlation. A spectrum is along one axis, averaged over the
    others; for white noise it is 1 everywhere.
    """
    import pandas as pd

    reach = model.reach
    grid = (_GRID,) * len(reach)
    drawn = fft.irfftn(power_spectrum(model.autocovariance, grid), grid)
    tables = []
    for axis, name in enumerate("zyx"[-len(reach) :]):
        if not reach[axis]:
            continue
        lags = np.arange(reach[axis] + 1)
        line = tuple(lags + r if k == axis else r for k, r in enumerate(reach))
        near = tuple(lags if k == axis else 0 for k in range(len(reach)))
        measured, found = model.correlation[line], drawn[near] / (drawn.flat[0] or 1.0)
        error = model.correlation_error[line]
        frequencies = np.linspace(0, 0.5, _FREQUENCIES)
        for curve, at, of_both, errors in (
            ("correlation", lags, (measured, found), error),
            ("spectrum", frequencies, (_transform(measured), _transform(found)), np.nan),
        ):
            columns = {"curve": curve, "axis": name, "at": at, "measured": of_both[0]}
            tables.append(pd.DataFrame({**columns, "drawn": of_both[1], "error": errors}))
    return pd.concat(tables, ignore_index=True)


def _transform(correlation: Float64s) -> Float64s:
    """Return the spectrum of a correlation at distances from zero on; 1 for white noise."""
    lags, frequencies = np.arange(1, len(correlation)), np.linspace(0, 0.5, _FREQUENCIES)
    waves = np.cos(2 * np.pi * np.multiply.outer(frequencies, lags))
    spectrum: Float64s = correlation[0] + 2 * waves @ correlation[1:]
    return spectrum


#: Standard deviations of the Gaussians and edges of the medians that a network is compared with.
_GAUSSIANS, _MEDIANS = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6), (3, 5)

#: Weights of total variation in standard deviations of the noise, number of its steps, and maximum
#: number of planes: it takes as long as all other filters.
_TV_WEIGHTS, _TV_STEPS, _FEW_PLANES = (0.7, 1.4), 50, 8

#: Strength of the added noise, relative to that of the scan; edge of the squares whose errors are
#: compared; and excess of the network from which a filter is better, in standard errors and in
#: variances of the noise.
_ADDED, _SQUARE, _SURE, _LEAST_EXCESS = 0.1, 16, 3.0, 0.005


@dataclass(frozen=True)
class FilterComparison:
    """Comparison of a network with the best of some filters."""

    best: str  # description of the filter
    call: str  # of SciPy or scikit-image, which applies it to a scan of grey values
    # mean square error of the network minus that of the filter, and its standard error, over the
    # variance of the noise; estimated without a clean image
    excess: float
    error: float
    in_flat: bool  # whether it is that in flat regions, because elsewhere the network is better

    @property
    def is_better(self) -> bool:
        """Whether the filter is better than the network, by more than chance."""
        return self.excess > max(_SURE * self.error, _LEAST_EXCESS)


def _total_variation(planes: Float32s, weight: float) -> Float32s:
    """Return planes after a total variation filter, each by itself."""
    from skimage.restoration import denoise_tv_chambolle

    tv: Callable[..., Float32s] = denoise_tv_chambolle
    return np.stack([tv(each, weight, max_num_iter=_TV_STEPS) for each in planes])


def _squares_of(values: Float32s) -> list[list[Float32s]]:
    """Return the squares of planes in rows, all planes of one together."""
    rows, columns = (max(n // _SQUARE, 1) for n in values.shape[1:])
    return [np.array_split(line, columns, 2) for line in np.array_split(values, rows, 1)]


def compare_with_filters(
    predict: Callable[[int, Float32s], Float32s],
    parts: Sequence[Float32s],
    kept: Sequence[slice],
    noise: NoiseModel,
    scale: Scale,
    strength: Float32s | None = None,
) -> FilterComparison:
    """Compare a network with filters, without a clean image.

    The mean square errors are Stein's unbiased risk estimates: the mean square difference of result
    and scan, plus twice the covariance of result and noise, minus the variance of the noise. The
    covariance is measured by adding a little more noise (Ramani, Blu, Unser, Monte-Carlo SURE,
    https://doi.org/10.1109/TIP.2008.2001404), here of the correlation of that of the scan.

    `predict`: returns the planes `kept` of a part, given its number and values. `parts`: of the
    scan, normalised, (z, y, x). `kept`: planes that are compared. `noise`, `scale`: of the scan.
    `strength`: relative standard deviation of the noise at each pixel of a plane; None: uniform.
    Returns: the comparison everywhere, or in flat regions if a filter is better there.
    """
    from scipy.ndimage import gaussian_filter, maximum_filter, median_filter, uniform_filter

    (mean,), (std,) = scale.mean, scale.std
    ways: dict[str, Callable[[Float32s], Float32s]] = {}
    calls: dict[str, str] = {}
    for sigma in _GAUSSIANS:
        name, call = f"(sigma {sigma:g} pixels)", f"scipy.ndimage.gaussian_filter(scan, {sigma:g}, "
        calls[f"Gaussian filter {name}"] = f"{call}axes=(-2, -1))"
        ways[f"Gaussian filter {name}"] = partial(gaussian_filter, sigma=(0, sigma, sigma))
        if len(parts[0]) > 1:
            calls[f"Gaussian filter in 3D {name}"] = f"{call}axes=(-3, -2, -1))"
            ways[f"Gaussian filter in 3D {name}"] = partial(gaussian_filter, sigma=sigma)
    for n in _MEDIANS:
        name = f"median filter ({n} pixels)"
        calls[name] = f"scipy.ndimage.median_filter(scan, {n}, axes=(-2, -1))"
        ways[name] = partial(median_filter, size=(1, n, n))
    if noise.diagnosis.is_independent and max(map(len, parts)) <= _FEW_PLANES:
        # it takes correlated noise for edges
        for weight in _TV_WEIGHTS:
            name = f"total variation filter (weight {weight:g} standard deviations of the noise)"
            calls[name] = (
                "skimage.restoration.denoise_tv_chambolle(image.astype(float), "
                f"{weight * noise.deviation:.4g}, max_num_iter={_TV_STEPS})"
            )
            ways[name] = partial(_total_variation, weight=weight * noise.deviation / std)
    rng = np.random.default_rng(0)
    errors: dict[str, list[Float64s]] = {name: [] for name in ("", *ways)}
    structure: list[Float64s] = []
    for number, (part, own) in enumerate(zip(parts, kept, strict=True)):
        size = part.shape[-noise.autocovariance.ndim :]
        root = np.sqrt(power_spectrum(noise.autocovariance / std**2, size))
        axes = tuple(range(-len(size), 0))
        white = fft.rfftn(rng.standard_normal(part.shape), axes=axes)
        added = fft.irfftn(white * root, size, axes=axes)
        if noise.slope:
            slope = noise.slope * std / (noise.offset + noise.slope * mean)
            local = uniform_filter(part, (1, 5, 5))
            added *= np.sqrt(np.maximum(1 + slope * local, _LEAST_VARIANCE))
        if strength is not None:
            added *= strength
        more, noisy, added = (part + _ADDED * added).astype(np.float32), part[own], added[own]
        for name, each in errors.items():
            before, after = (
                ways[name](x)[own] if name else predict(number, x) for x in (part, more)
            )
            error = (before - noisy) ** 2 + 2 / _ADDED * added * (after - before)
            means = [[square.mean() for square in line] for line in _squares_of(error)]
            each.append(np.ravel(means))
            if not name:
                # of the squares around as well: wide filters spread the edges there
                varies = [[square.std() for square in line] for line in _squares_of(before)]
                structure.append(maximum_filter(varies, 3).ravel())
    flat = np.concatenate(structure)
    for most in (np.inf, np.median(flat)):
        found = {name: np.concatenate(each)[flat <= most] for name, each in errors.items()}
        best = min(ways, key=lambda name: float(found[name].mean()))
        excess = (found[""] - found[best]) * (std / noise.deviation) ** 2
        chance = float(excess.std()) / math.sqrt(excess.size)
        in_flat = bool(most < np.inf)
        compared = FilterComparison(best, calls[best], float(excess.mean()), chance, in_flat)
        if compared.is_better:
            break
    return compared
