"""How well the noise of a scan is known from the scan alone.

The half of the grid of simulated scans that nothing was tuned on (see `_scans`), where the noise is
known; photographs with white noise; a real scan of snow, of which nothing is known; and the time
for a large volume. Needs ``../shared/data``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft
from tifffile import imread

from benchmarks._missing import require_files
from benchmarks._photos import DATA, SIGMA, test_photos
from benchmarks._scans import cases, made
from hushpore import Volume
from hushpore.scan.noise import estimate_noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.scan.noise_model import NoiseModel

#: Edge of the large volume.
LARGE = 512


def measure() -> Iterator[dict[str, object]]:
    """Deviation found over the true one, and the largest error of a correlation, of every case."""
    figures: dict[str, object] = {}
    (snow,) = require_files(DATA / "ct", "snow.tif", "any scan of snow")
    photos_with_noise, scans = test_photos(), []
    for case in cases("held out"):
        scan = made(case)
        model, seconds = timed(scan.scan)
        truth = autocovariance(scan.noise, scan.core, model.reach)
        scans.append(compared(model, truth, seconds))
        figures[case.name] = scans[-1]
        yield figures
    figures["all scans"] = summary(scans)
    photos = []
    for _, noisy in photos_with_noise:
        model, seconds = timed(noisy)
        white = np.zeros_like(model.autocovariance)
        white[model.reach] = SIGMA**2
        photos.append(compared(model, white, seconds))
    figures["photographs"] = summary(photos)
    values = imread(snow)
    model, _ = timed(values)
    figures["snow"] = {
        "deviation": round(model.deviation, 1),
        "deviation of the values": round(float(values.std()), 1),
        "correlation of neighbours": neighbours(model),
        "doubts": model.doubts,
    }
    scan = made(cases("held out")[0]).scan
    times = [-(-LARGE // n) for n in scan.shape]
    large = np.tile(scan, times)[:LARGE, :LARGE, :LARGE]
    figures[f"seconds at {LARGE} cubed"] = timed(large)[1]
    yield figures


def timed(values: npt.NDArray[np.generic]) -> tuple[NoiseModel, float]:
    """Estimate the noise; also the seconds of processor time."""
    began = time.process_time()
    model = estimate_noise(Volume(values))
    return model, round(time.process_time() - began, 2)


def compared(model: NoiseModel, truth: npt.NDArray[np.float64], seconds: float) -> dict[str, float]:
    """Return what was found beside the truth, an autocovariance at the same lags."""
    variance = truth[model.reach]
    errors = np.abs(model.correlation - truth / variance)
    return {
        "found over true": round(model.deviation / float(np.sqrt(variance)), 3),
        "its error": round(model.deviation_error / model.deviation, 3),
        "worst correlation": round(float(errors.max()), 3),
        "blocks": model.blocks,
        "doubts": len(model.doubts),
        "seconds": seconds,
    }


def neighbours(model: NoiseModel) -> list[float]:
    """Return the correlation of direct neighbours along each axis."""
    steps = np.eye(len(model.reach), dtype=int) + model.reach
    return [round(float(model.correlation[tuple(step)]), 2) for step in steps]


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    """Return how many of several cases are good, and the worst of them."""
    off = [abs(each["found over true"] - 1) for each in found]
    lags = [each["worst correlation"] for each in found]
    return {
        "cases": len(found),
        "deviation within 10 %": sum(each <= 0.1 for each in off),
        "worst deviation": round(max(off), 3),
        "every correlation within 0.05": sum(each <= 0.05 for each in lags),
        "within 0.1": sum(each <= 0.1 for each in lags),
        "worst correlation": max(lags),
        "median correlation": round(float(np.median(lags)), 3),
        "most seconds": max(each["seconds"] for each in found),
    }


def autocovariance(
    noise: npt.NDArray[np.float32], core: npt.NDArray[np.bool_], reach: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Return the autocovariance of noise that is known, over all pairs of voxels in the core."""
    mask = np.broadcast_to(core, noise.shape)
    values = np.where(mask, noise - noise[mask].mean(), 0).astype(np.float32)
    shape = [fft.next_fast_len(n + r, True) for n, r in zip(noise.shape, reach, strict=True)]
    near = np.ix_(*(np.arange(-r, r + 1) for r in reach))
    sums, pairs = (
        fft.irfftn(np.abs(fft.rfftn(each, shape)) ** 2, shape)[near]
        for each in (values, mask.astype(np.float32))
    )
    return (sums / pairs).astype(np.float64)
