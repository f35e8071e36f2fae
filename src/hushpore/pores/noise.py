"""The noise of a scan relative to the contrast between its pores and solid.

Noise makes specks of a few voxels that look like small pores. The denoiser measures it in the
same way (`hushpore.scan.noise`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.tables.totals import RELIABLE
from hushpore.pores.void.threshold import make_histogram, measured
from hushpore.scan.histogram import examine
from hushpore.scan.sample import find_sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.work import Threshold
    from hushpore.scan.noise_model import NoiseModel

#: Largest part of a volume in which noise is measured, in voxels, and fewest voxels along y and x.
_PART, _FEWEST = 1 << 24, 12

#: Share of the contrast that the spread of the solid must reach for its noise to be measured: at
#: less, no voxel passes a threshold half-way because of noise.
_HARMLESS = 0.1

#: Share of air around the sample from which the noise is measured inside the sample only.
_MUCH_AIR = 0.5

#: Edge of the simulated noise, by the number of axes.
_SIMULATED = {2: 1024, 3: 96}

#: Size of a pore, in voxels, that is not called a speck, however strong the noise: specks of noise
#: above some 35 % of the contrast join to large clusters.
_LARGEST = 64


def find_noise(
    volume: Volume,
    settings: PoreSettings,
    threshold: Threshold,
    exterior_share: float,
    padding: float | None,
    threads: KernelThreads,
) -> dict[str, Any]:
    """Find how strong noise is, if it can matter, as entries of the record.

    The middle of the volume is read, which is the same in memory, on disk and on a cluster.

    `threshold`: of the job. `exterior_share`: fraction of the volume in the exterior. `padding`:
    grey value of the padding, if any.
    Returns: ``noise_deviation``; ``noise_share``, its ratio to the contrast; and, without
    hysteresis, ``smallest_pore``, the voxels of the smallest pore that is hardly a speck of noise.
    Empty for a denoised volume, a mask, a local threshold, and if noise is harmless.
    """
    is_grey = volume.dtype != np.bool_ and threshold.only_values is None
    if volume.is_denoised or not is_grey or threshold.value is None:
        return {}
    part: Volume | None = None
    groups = threshold.groups
    if groups is None:
        part = middle_of(volume)
        values = measured(part.data.reshape(-1, *part.shape[-2:]), padding)
        if not np.isfinite(values).all() or not values.size or values.min() == values.max():
            return {}
        histogram = make_histogram(np.atleast_2d(values), threads)
        groups = examine(histogram, threshold.value, settings.pores_are == "bright")
    contrast = abs(groups.solid - groups.pore)
    if not groups.second or groups.noise < _HARMLESS * contrast or not math.isfinite(contrast):
        return {}
    part = part or middle_of(volume)
    if min(part.shape[-2:]) < _FEWEST or not np.isfinite(part.data).all():
        return {}
    # SciPy's transforms take time to import, and most scans are segmented without this
    from hushpore.scan.noise import estimate_noise

    sample = find_sample(part) if exterior_share >= _MUCH_AIR else None
    noise = estimate_noise(part, sample=sample, brief=True)
    if not noise.deviation:
        return {}
    found = {"noise_deviation": noise.deviation, "noise_share": noise.deviation / contrast}
    # a stricter threshold removes specks whatever their size
    if settings.hysteresis is None:
        distance = abs(groups.solid - threshold.value) / noise.deviation
        found["smallest_pore"] = _above_specks(
            noise, distance, volume.n_spatial, settings.connectivity == "faces"
        )
    return found


def with_minimum(
    settings: PoreSettings, volume: Volume, threshold: Threshold, noise: Mapping[str, Any]
) -> PoreSettings:
    """Return the settings with an automatic minimum pore size replaced by its number of voxels.

    A mask has no noise, so all its pores count. `noise`: as `find_noise` returns it.
    """
    if settings.minimum_voxels is not None:
        return settings
    is_mask = volume.dtype == np.bool_ or threshold.only_values is not None
    least = 1 if is_mask else noise.get("smallest_pore", RELIABLE)
    return dataclasses.replace(settings, minimum_voxels=least)


def _above_specks(noise: NoiseModel, distance: float, n_axes: int, faces_only: bool) -> int:
    """Return the size, in voxels, that 999 of 1,000 specks of noise in the solid are below.

    Such noise is simulated and segmented. `distance`: of the threshold from the grey value of the
    solid, in standard deviations. At least `RELIABLE` and at most `_LARGEST`.
    """
    from scipy import fft, ndimage

    shape = (_SIMULATED[n_axes],) * n_axes
    white = np.random.default_rng(0).standard_normal(shape)
    root = np.sqrt(noise.spectrum(shape)) / noise.deviation
    simulated = fft.irfftn(fft.rfftn(white) * root, shape)
    specks, count = ndimage.label(
        simulated > distance, ndimage.generate_binary_structure(n_axes, 1 if faces_only else n_axes)
    )
    if not count:
        return RELIABLE
    sizes = np.bincount(specks.ravel())[1:]
    below = int(np.quantile(sizes, 0.999, method="inverted_cdf"))
    return min(max(below + 1, RELIABLE), _LARGEST)


def middle_of(volume: Volume, most: int | None = None) -> Volume:
    """Return the middle of a volume, of at most `most` voxels (by default `_PART`), in memory."""
    edges = list(volume.shape)
    while math.prod(edges) > (most or _PART):
        longest = int(np.argmax(edges))
        edges[longest] = -(-edges[longest] // 2)
    at = []
    for length, edge in zip(volume.shape, edges, strict=True):
        first = (length - edge) // 2
        at.append(slice(first, first + edge))
    return volume.replace(np.ascontiguousarray(volume.data[tuple(at)]), origin=())
