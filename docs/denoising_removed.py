"""Make the picture of docs/noise.md that shows scans, results and residuals.

    python docs/denoising_removed.py [STACK ...]

Denoises slices of a scanner's phantom (``../shared/data/dicom_philips_S2010.tar.xz``, of
neurolabusc/dcm_qa_ct, BSD-2-Clause) and of a simulated scan, and prints how what was removed goes
with the edges of the result; of further stacks that are named it prints that alone. One thread, so
that the figures are the same again.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

import hushpore

ROOT = Path(__file__).parents[1]
SERIES = ROOT.parent / "shared" / "data" / "dicom_philips_S2010.tar.xz"

#: Steps of training, and the simulated scan.
STEPS, SIMULATED = 300, "held-out_foam_0.4_cosine_0.3"

#: A smaller share of the deviation or the contrast is rounding.
ROUNDING = 1e-6

#: Region of the series with the phantom, and the slice shown.
PART = (slice(None), slice(128, 384), slice(128, 384))
SHOWN = (10, slice(64, 224), slice(24, 204))


def main(stacks: list[str], file: Path) -> None:
    import torch
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    torch.set_num_threads(1)
    rows: list[tuple[str, Any, Any, Any]] = []
    for name, volume, shown in (("phantom in a scanner", _series(), SHOWN), _simulated()):
        rows.append((name, volume, _denoised(volume), shown))
    for stack in stacks:
        volume = hushpore.read(stack)
        print(volume.name, in_words(volume, _denoised(volume)))
    figure = Figure(figsize=(9, 6.9), layout="constrained")
    axes: Any = figure.subplots(len(rows), 3)
    for line, (name, volume, after, shown) in zip(axes, rows, strict=True):
        before = np.asarray(volume.data, np.float32)
        removed = before - after
        low, high = np.percentile(before[shown], (1, 99))
        spread = max(3 * float(removed[shown].std()), ROUNDING * (high - low))
        for ax, image, limits, title in (
            (line[0], before, (low, high), name),
            (line[1], after, (low, high), f"after {STEPS} steps"),
            (line[2], removed, (-spread, spread), "removed"),
        ):
            ax.imshow(image[shown], cmap="gray", vmin=limits[0], vmax=limits[1])
            ax.set_title(title, fontsize=9)
            ax.set(xticks=[], yticks=[])
        line[1].set_xlabel(in_words(volume, after), fontsize=8)
        print(name, in_words(volume, after))
    FigureCanvasAgg(figure)
    figure.savefig(file, dpi=110, metadata={"Software": None})


def in_words(volume: hushpore.Volume, after: np.ndarray) -> str:
    before = np.asarray(volume.data, np.float32)
    if np.std(before - after) < ROUNDING * np.std(before):
        return "removed: nothing"
    signed, strength = edge_correlations(before, after)
    return (
        f"removed: deviation {np.std(before - after):.3g}; correlation with the edges "
        f"{signed:+.3f}, of its magnitude {strength:+.3f}"
    )


def edge_correlations(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Return the correlation of the residual, and of its magnitude, with edges, over all slices.

    Edges are the magnitude of the gradient of the result, in a slice, over a Gaussian of 1 pixel.
    Masked-out regions are skipped.
    """
    removed = before - after
    edges = np.stack([ndimage.gaussian_gradient_magnitude(each, 1.0) for each in after])
    inside = np.stack([ndimage.generic_gradient_magnitude(each, ndimage.sobel) for each in before])
    there = inside > 0
    found = [np.corrcoef(each[there], edges[there])[0, 1] for each in (removed, np.abs(removed))]
    return float(found[0]), float(found[1])


def _denoised(volume: hushpore.Volume) -> np.ndarray:
    result = hushpore.denoise(volume, steps=STEPS, seed=0, device="cpu")
    for note in result.notes:
        print(volume.name, note)
    return np.asarray(result.volume.data)


def _series() -> hushpore.Volume:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(SERIES) as packed:
        packed.extractall(folder, filter="data")
        (series,) = (path for path in Path(folder).rglob("S2010") if path.is_dir())
        volume = hushpore.read(series)
        part = np.ascontiguousarray(np.asarray(volume.data, np.float32)[PART])
        return volume.replace(part)


def _simulated() -> tuple[str, hushpore.Volume, Any]:
    sys.path.insert(0, str(ROOT))
    from benchmarks._scans import cases, made

    (case,) = (each for each in cases("held out") if each.name == SIMULATED)
    volume = hushpore.Volume(made(case).scan, axes="zyx", name="simulated scan")
    return "simulated scan, noise 0.3", volume, (24, slice(16, 144), slice(16, 144))


if __name__ == "__main__":
    main(sys.argv[1:], ROOT / "docs" / "images" / "denoising-removed.png")
