"""Make the figures and the pictures of docs/howto/strokes-walk.md.

    python docs/strokes_walk.py [--images FOLDER]

Prints the figures of the made scan, and writes ``strokes-made.png`` into docs/images. With the
folder of published images, which holds ``weave.npz``, also those of the woven composite, and
``strokes-woven.png``: phases only, since the scan belongs to its authors.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
import numpy as np
from screenshots_phases import striped_grains

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap

import hushpore
from hushpore.pores.phases.result import COLOURS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from benchmarks.strokes import corrected, first_strokes, multi_otsu, overlap  # noqa: E402

#: Painted voxels, slices and voxels of a stroke, as in the benchmarks of strokes.
MADE, WOVEN = (400, 6, 5), (600, 3, 5)


def made() -> None:
    """Strokes on striped grains, a correction where doubt is greatest, and the next scan."""
    scan, phase = striped_grains(1)
    truth = phase.astype(np.uint8)
    strokes = first_strokes(truth, 0, *MADE)
    print(f"made: multi-Otsu {multi_otsu(truth, scan.data):.2f}")
    rng = np.random.default_rng(0)
    for _ in range(2):
        found = hushpore.measure_phases(scan, strokes=strokes, probabilities=True, thickness=True)
        _tell("made", found, truth, strokes)
        shown = strokes
        strokes = corrected(truth, strokes, found.doubt, rng)
    file = HERE / "images" / "strokes-made.png"
    z = int(np.count_nonzero(shown, axis=(1, 2)).argmax())
    pictures = {
        "scan and strokes": _over(scan.data[z], shown[z]),
        "phases": _coloured(found.labels[z]),
        "doubt": plt.get_cmap("inferno")(found.doubt[z] / 100)[..., :3],
        "wrong (black)": _wrong(found.labels[z], truth[z]),
    }
    _draw(file, pictures)
    later, phase = striped_grains(2)
    with TemporaryDirectory() as folder:
        np.savez(f"{folder}/classifier.npz", **found.classifier.arrays)
        again = hushpore.measure_phases(later, classifier=folder, thickness=True)
    _tell("next scan", again, phase.astype(np.uint8))


def woven(images: Path) -> None:
    """Strokes on three slices of the woven composite of PuMA (NASA)."""
    with np.load(images / "weave.npz") as kept:
        scan, truth = kept["scan"], (1 + kept["tag"]).astype(np.uint8)
    strokes = first_strokes(truth, 0, *WOVEN)
    found = hushpore.measure_phases(scan, strokes=strokes)
    otsu = hushpore.measure_phases(scan, phases=3, exterior="keep")
    _tell("woven", found, truth, strokes)
    print(f"woven: multi-Otsu named with the tags: IoU {multi_otsu(truth, scan):.2f}")
    z = len(truth) // 2
    pictures = {
        "multi-Otsu": _coloured(otsu.labels[z]),
        "from strokes": _coloured(found.labels[z]),
        "other than the tags (black)": _wrong(found.labels[z], truth[z]),
    }
    _draw(HERE / "images" / "strokes-woven.png", pictures)


def _tell(name: str, found: Any, truth: Any, strokes: Any = None) -> None:
    count = "" if strokes is None else f"{np.count_nonzero(strokes)} painted voxels, "
    shares = np.bincount(truth.reshape(-1))[1:] / truth.size
    print(
        f"{name}: {count}IoU {overlap(truth, found.labels):.2f}, agreement "
        f"{(found.labels == truth).mean():.3f}, shares {found.phases['share'].round(3).tolist()} "
        f"for {shares.round(3).tolist()}"
    )
    columns = [name for name in ("share", "thickness", "specific_surface") if name in found.phases]
    print(found.phases[columns].to_string(), *found.notes, sep="\n")


def _coloured(labels: Any) -> Any:
    return ListedColormap(COLOURS[:3])((labels - 1) / 2)[..., :3]


def _over(grey: Any, strokes: Any) -> Any:
    low, high = np.percentile(grey, (0.5, 99.5))
    picture = np.repeat(np.clip((grey - low) / (high - low), 0, 1)[..., None], 3, axis=2)
    picture[strokes > 0] = _coloured(strokes[strokes > 0])
    return picture


def _wrong(labels: Any, truth: Any) -> Any:
    return np.where((labels == truth)[..., None], 0.85, 0.0) * np.ones(3)


def _draw(file: Path, pictures: dict[str, Any]) -> None:
    figure, axes = plt.subplots(1, len(pictures), figsize=(2.6 * len(pictures), 2.9), dpi=110)
    for place, (title, picture) in zip(axes, pictures.items(), strict=True):
        place.imshow(picture, interpolation="nearest")
        place.set_title(title, fontsize=10)
        place.axis("off")
    figure.tight_layout(pad=0.4)
    figure.savefig(file)
    print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=Path, help="folder of published images, with weave.npz")
    given = parser.parse_args()
    made()
    if given.images:
        woven(given.images)
