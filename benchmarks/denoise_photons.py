"""Photon noise, down to two counts: beside filters, and what stabilising its variance is worth.

The variance of photon noise is its mean. The transform of Anscombe makes it one nearly everywhere
from about four counts on; what is denoised there is brought back by the unbiased inverse of
Makitalo and Foi (https://doi.org/10.1109/TIP.2011.2121085), for that of the formula would be too
dark. That a value is a count is known here: a product would have to estimate it.

A stack of crops of photographs of Train400, each with counts of its own. Counted in steps, the
figures do not depend on what else the machine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter

import hushpore
from benchmarks._photos import clean_training_photos, psnr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

#: Counts where a photograph is white.
COUNTS = (2, 5, 10, 30, 100)

#: Crops, their edge, and of how many photographs one is taken: odd ones, so that even ones are
#: there to choose by.
CROPS, EDGE, EVERY = 8, 128, 10

#: Steps of a training, and patches in each.
STEPS, BATCH = 150, 8

#: Deviations of Gaussians and edges of medians of which the best is taken for each photograph.
DEVIATIONS, EDGES = np.arange(0.5, 5, 0.25), (3, 5, 7)


def measure() -> Iterator[dict[str, object]]:
    """Mean PSNR of the crops by counts, and how far the mean of their grey values has shifted."""
    clean = clean_training_photos()[1::EVERY][:CROPS, :EDGE, :EDGE].astype(np.float32)
    figures: dict[str, object] = {"crops": len(clean), "steps": STEPS, "patches a step": BATCH}
    for counts in COUNTS:
        figures[f"{counts} counts"] = _of_counts(clean, counts)
        yield dict(figures)


def anscombe(counts: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Return counts so transformed that their variance is about one."""
    return (2 * np.sqrt(np.maximum(counts, 0) + 3 / 8)).astype(np.float32)


def inverse_anscombe(mean: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the mean of counts of which the mean of the transformed ones is known."""
    d = np.maximum(mean.astype(np.float64), 2 * np.sqrt(3 / 8))
    root = np.sqrt(3 / 2)
    result: npt.NDArray[np.float64] = (
        d**2 / 4 + root / (4 * d) - 11 / (8 * d**2) + 5 * root / (8 * d**3) - 1 / 8
    )
    return np.maximum(result, 0)


def _of_counts(clean: npt.NDArray[np.float32], counts: int) -> dict[str, object]:
    noisy = np.random.default_rng(counts).poisson(clean * (counts / 255)).astype(np.float32)

    def quality(stack: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        grey = stack * (255 / counts)
        return np.array([psnr(each, truth) for each, truth in zip(grey, clean, strict=True)])

    def best(
        filtered: Callable[[Any], npt.NDArray[np.floating]], strengths: Any
    ) -> npt.NDArray[np.float64]:
        return np.max([quality(filtered(each)) for each in strengths], axis=0)

    gaussian = best(lambda s: gaussian_filter(noisy, (0, s, s)), DEVIATIONS)
    plain = hushpore.denoise(noisy, steps=STEPS, batch_size=BATCH)
    stable = hushpore.denoise(anscombe(noisy), steps=STEPS, batch_size=BATCH)
    found = {
        "denoised": np.asarray(plain.volume.data),
        "stabilised and denoised": inverse_anscombe(np.asarray(stable.volume.data)),
    }
    methods = [each.model.network.architecture.method for each in (plain, stable)]
    values = {
        "noisy": quality(noisy),
        "best Gaussian": gaussian,
        "best median": best(lambda n: median_filter(noisy, (1, n, n)), EDGES),
        "best Gaussian, stabilised": best(
            lambda s: inverse_anscombe(gaussian_filter(anscombe(noisy), (0, s, s))), DEVIATIONS
        ),
        **{name: quality(each) for name, each in found.items()},
    }
    return {
        "psnr": {name: round(float(each.mean()), 2) for name, each in values.items()},
        "least above the best Gaussian": {
            name: round(float((values[name] - gaussian).min()), 2) for name in found
        },
        "method": dict(zip(found, methods, strict=True)),
        "shift of the mean in %": {
            name: round(float(100 * (each.mean() / noisy.mean() - 1)), 2)
            for name, each in found.items()
        },
    }
