"""What the network of the default could come to at most: taught by images without noise.

Scans of the simulator of which denoising by default loses more than a tenth of the pores (see
`denoise_correlated`). For each the same network is trained for as many steps on another specimen
of the same kind, scanned in the same way, whose reconstruction without noise is the target. What it
has learnt is applied to the scan, averaged over orientations as by default. No training that sees
nothing but noise can be expected to do better in as many steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

import hushpore
from benchmarks._scans import Case, cases, made
from benchmarks.denoise_correlated import STEPS, below_middle, pores_in, psnr
from hushpore.n2v2.pair import Noise2Noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from hushpore.n2v2.images import Images

#: Structure and noise of the scans.
SCANS = (("rock", 0.3), ("small pores", 0.2), ("small pores", 0.3))


def measure() -> Iterator[dict[str, object]]:
    """PSNR, and pores in what is below the middle of the contrast, of each scan."""
    figures: dict[str, object] = {"steps": STEPS}
    for case in cases("held out"):
        if (case.structure, case.noise) in SCANS:
            figures[case.name] = taught(case)
            yield figures


def taught(case: Case) -> dict[str, float]:
    """Train with images without noise, and apply what was learnt to a scan."""
    scan = made(case)
    # of the half that is tuned on
    specimen = Case("taught", case.structure, case.blur, case.filter, case.noise, seed=0)
    other = made(specimen)
    noisy, clean = (hushpore.Volume(each, axes="zyx") for each in (other.scan, other.reference))
    with patch("hushpore.n2v2.job.Noise2Noise", Taught):
        trained = hushpore.denoise(
            noisy, pair=clean, steps=STEPS, seed=0, test_time_augmentation=False
        )
    found = np.asarray(trained.model.predict(hushpore.Volume(scan.scan, axes="zyx")).data)
    core = np.broadcast_to(scan.core, scan.scan.shape)
    return {
        "psnr": round(psnr(found, scan), 2),
        "pores": pores_in(below_middle(found) & core),
        "pores without noise": pores_in(below_middle(scan.reference) & core),
    }


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
