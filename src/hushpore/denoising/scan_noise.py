"""Pore segmentation that says how strong the noise of the scan is, as measured for denoising."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.pores import job

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.denoising.noise.model import NoiseModel
    from hushpore.device.backend import Backend
    from hushpore.pores.settings import PoreSettings


def segment_pores(volume: Volume, settings: PoreSettings, backend: Backend) -> Job:
    """Segment pores as `hushpore.pores.job.segment_pores`, with the noise of the scan measured."""
    return job.segment_pores(volume, settings, backend, measure_noise)


def measure_noise(volume: Volume, is_in_air: bool) -> NoiseModel:
    """Measure the noise with the estimator of the denoiser.

    `volume`: 2D or 3D, in memory. `is_in_air`: whether air and padding fill much of it.
    """
    # SciPy's transforms take time to import, and most scans are segmented without this
    from hushpore.denoising.noise.estimation import estimate_noise

    sample = None
    if is_in_air:
        # imports PyTorch, which takes a second
        from hushpore.denoising.sample import find_sample

        sample = find_sample(volume)
    return estimate_noise(volume, sample=sample, brief=True)
