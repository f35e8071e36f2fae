"""Make the picture of docs/howto/check-training.md: a training that was too short.

    python docs/patches_residual.py STACK [FILE]

Trains N2V2 on a scan for 36 and for 117 steps, and writes original, prediction and residual of the
four hardest of the same patches, left after the one and right after the other, into FILE, by
default ``docs/images/patches-residual.png``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS = (36, 117)

#: Patches of each training, and their magnification.
SHOWN, ZOOM = 4, 3


def main(stack: str, file: Path) -> None:
    from matplotlib.image import imsave

    import hushpore

    scan = hushpore.read(stack)
    columns = []
    with tempfile.TemporaryDirectory() as scratch:
        for steps in STEPS:
            denoised = hushpore.denoise(scan, method="n2v2", steps=steps, seed=0)
            model = Path(scratch) / f"{steps}.safetensors"
            denoised.model.save(model)
            found = hushpore.sample_patches(
                scan, sampler="stratified", n_patches=400, model=str(model)
            )
            assert found.blind is not None
            assert found.blind.predictions is not None
            loss = found.features["loss"]
            print(f"{steps} steps: median loss {np.median(loss):.4f}")
            chosen = np.argsort(loss)[::-1][:SHOWN]
            original = found.patches[chosen].astype(np.float32)
            predicted = found.blind.predictions[chosen]
            columns.append(
                [np.hstack(part) for part in (original, predicted, original - predicted)]
            )
    original, predicted, residual = (np.hstack(parts) for parts in zip(*columns, strict=True))
    grey = [_grey(part, original.min(), original.max()) for part in (original, predicted)]
    # grain of the noise and whatever else was removed
    reach = 3 * float(np.median(np.abs(residual)))
    rows = np.vstack([*grey, _grey(residual, -reach, reach)])
    imsave(file, np.kron(rows, np.ones((ZOOM, ZOOM), np.uint8)), cmap="gray", vmin=0, vmax=255)


def _grey(image: np.ndarray, low: float, high: float) -> np.ndarray:
    return (255 * np.clip((image - low) / (high - low), 0, 1)).astype(np.uint8)


if __name__ == "__main__":
    here = Path(__file__).parent / "images" / "patches-residual.png"
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else here)
