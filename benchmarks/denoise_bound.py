"""What the network of the default could come to at most: taught by images without noise.

Scans of the simulator of which denoising by default loses more than a tenth of the pores (see
`denoise_correlated`), and beside that the same network, trained for as many steps on another
specimen of the same kind, scanned in the same way, whose reconstruction without noise is the
target. What it has learnt is applied to the scan, averaged over orientations as by default. No
training that sees nothing but noise can be expected to do better in as many steps. One thread.

    OMP_NUM_THREADS=1 python -m benchmarks denoise_bound
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

import hushpore
from benchmarks._scans import Case, cases, made
from benchmarks.denoise_correlated import below_middle, pores_in, psnr
from hushpore.n2v2.pair import Noise2Noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushpore.base.volume import VolumeLike
    from hushpore.n2v2.images import Images
    from hushpore.n2v2.trained import Model

#: Steps of every training, as in `denoise_correlated`.
STEPS = 900

#: Structure and noise of the scans.
SCANS = (("rock", 0.2), ("rock", 0.3), ("fibres", 0.2), ("small pores", 0.2), ("small pores", 0.3))


def measure() -> Iterator[dict[str, object]]:
    """PSNR, and pores in what is below the middle of the contrast, of each scan."""
    torch.set_num_threads(1)
    figures: dict[str, object] = {"steps": STEPS, "threads": 1}
    for case in cases("held out"):
        if (case.structure, case.noise) in SCANS:
            figures[case.name] = compared(case)
            yield figures


def compared(case: Case) -> dict[str, object]:
    """Denoise a scan by default, and by what was taught."""
    scan = made(case)
    volume = hushpore.Volume(scan.scan, axes="zyx")
    images = {
        "default": hushpore.denoise(volume, steps=STEPS, seed=0).volume,
        "taught": taught(case).predict(volume),
    }
    core = np.broadcast_to(scan.core, scan.scan.shape)
    found: dict[str, object] = {
        "pores without noise": pores_in(below_middle(scan.reference) & core)
    }
    for name, image in images.items():
        values = np.asarray(image.data)
        found[name] = {
            "psnr": round(psnr(values, scan), 2),
            "pores": pores_in(below_middle(values) & core),
        }
    return found


def taught(case: Case) -> Model:
    """Train on another specimen of the kind of a scan, of the half that is tuned on."""
    other = made(Case("taught", case.structure, case.blur, case.filter, case.noise, seed=0))
    noisy, clean = (hushpore.Volume(each, axes="zyx") for each in (other.scan, other.reference))
    return trained_without_noise(noisy, clean, steps=STEPS)


def trained_without_noise(noisy: VolumeLike, clean: VolumeLike, **how: Any) -> Model:
    """Train with noisy images as inputs, and the same without noise as targets."""
    with patch("hushpore.n2v2.training.run.Noise2Noise", Taught):
        trained = hushpore.denoise(noisy, pair=clean, seed=0, test_time_augmentation=False, **how)
    return trained.model


class Taught(Noise2Noise):
    """Takes the input of a pair from a scan, and the target from what it is without noise."""

    def pairs(
        self,
        images: Images,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the same patches of both.

        `images`, `corners`, `orientations`: as for `Images.windows`.
        Returns: inputs (count, inputs, *size) and targets (count, outputs, *size).
        """
        scan = corners.new_zeros(len(corners))
        own = slice(images.first, images.first + images.outputs)
        return (
            images.windows(corners, size, orientations, scan),
            images.windows(corners, size, orientations, scan + 1)[:, own],
        )
