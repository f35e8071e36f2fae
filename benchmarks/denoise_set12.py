"""The default on photographs: trained on 400 others, and on the twelve alone that are denoised.

Noisy photographs alone, for three minutes, nothing set but the time: on Train400, and on Set12, as
somebody does who has no more than what is to be denoised. Tested on Set12.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import hushpore
from benchmarks._photos import psnr, test_photos, training_photos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from hushpore.denoising.trained_model import Model

    Image = npt.NDArray[np.float32]

#: What is set of a training.
SETTINGS: dict[str, Any] = {"time_budget": 180.0}


def measure() -> Iterator[dict[str, object]]:
    """PSNR on Set12 by what was trained on; after each training."""
    # the larger ones in four pieces, for a stack has slices of one size
    pieces = [
        noisy[y : y + 256, x : x + 256]
        for _, noisy in test_photos()
        for y in range(0, noisy.shape[0], 256)
        for x in range(0, noisy.shape[1], 256)
    ]
    figures: dict[str, object] = {"noisy": on_set12(lambda noisy: noisy)}
    for name, photos in (("Train400", training_photos()), ("the twelve", np.stack(pieces))):
        result = hushpore.denoise(photos, **SETTINGS)
        record = result.provenance
        figures[f"trained on {name}"] = {
            "steps": record["result"]["steps"],
            "method": record["network"]["method"],
            "precision": record["result"]["precision"],
            "once": on_set12(partial(predicted, result.model, False)),
            "averaged": on_set12(partial(predicted, result.model, True)),
        }
        yield dict(figures)


def predicted(model: Model, is_averaged: bool, noisy: Image) -> Image:
    """Denoise by what was trained, once or averaged over eight orientations."""
    image: Image = model.predict(noisy, test_time_augmentation=is_averaged).data
    return image


def on_set12(denoise: Callable[[Image], Image]) -> dict[str, object]:
    """Return the PSNR of each photograph, denoised, and their mean."""
    values = [psnr(denoise(noisy), clean) for clean, noisy in test_photos()]
    return {"psnr": round(float(np.mean(values)), 2), "images": [round(v, 2) for v in values]}
