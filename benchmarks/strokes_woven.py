"""Phases from strokes in a woven composite, with the tags of its authors (NASA, PuMA).

Fibres of two directions, whose grey values no threshold separates, and voids: from at most 600
painted voxels in three slices, along each axis in turn; without and with the features of the
scan's own denoiser. It needs ``--images``.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

import hushpore
from benchmarks._missing import require_files
from benchmarks.strokes import STEPS, STROKE, first_strokes, multi_otsu, overlap

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Painted voxels and slices.
PAINTED, SLICES = 600, 3


def measure(images: Path) -> Iterator[dict[str, Any]]:
    """Yield IoU and agreement with the tags, for slices along each axis, and of multi-Otsu."""
    (file,) = require_files(images, "weave.npz", "the woven composite of PuMA")
    with np.load(file) as kept:
        scan, phase = kept["scan"], (1 + kept["tag"]).astype(np.uint8)
    figures: dict[str, Any] = {
        "multi_otsu": round(multi_otsu(phase, scan), 3),
        "shares": (np.bincount(phase.reshape(-1))[1:] / phase.size).round(3).tolist(),
    }
    for axis in range(3):
        turned, truth = (np.ascontiguousarray(np.moveaxis(x, axis, 0)) for x in (scan, phase))
        strokes = first_strokes(truth, 0, PAINTED, SLICES, STROKE)
        name = f"slices along {'zyx'[axis]}"
        painted = int(np.count_nonzero(strokes))
        figures[name] = {"painted": painted, **_compared(truth, turned, strokes)}
        with TemporaryDirectory() as folder:
            file = Path(folder) / "model.safetensors"
            hushpore.denoise(turned, steps=STEPS, device="cpu").model.save(file)
            figures[name]["with_texture"] = _compared(truth, turned, strokes, texture=str(file))
        yield figures


def _compared(truth: Any, scan: Any, strokes: Any, **how: Any) -> dict[str, Any]:
    found = hushpore.measure_phases(scan, strokes=strokes, **how)
    return {
        "iou": round(overlap(truth, found.labels), 3),
        "agreement": round(float((found.labels == truth).mean()), 3),
        "shares": found.phases["share"].round(3).tolist(),
    }
