"""The job that measures phases, with the denoiser that may find features for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.jobs import load
from hushpore.pores.phases import classifier, job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hushpore.base.arrays import UInt8s
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.device.backend import Backend
    from hushpore.pores.phases.features import Network
    from hushpore.pores.phases.labelling import Rows
    from hushpore.pores.phases.settings import PhaseSettings


def open_network(model: str | UInt8s, volume: Volume) -> Network:
    """Return a denoiser that finds features; see `hushpore.denoising.texture.TextureNetwork`.

    Raises MissingPackageError too if PyTorch is not installed.
    """
    network: Network = load("hushpore.denoising.texture:TextureNetwork")(model, volume)
    return network


def measure_phases(
    volume: Volume,
    settings: PhaseSettings,
    backend: Backend,
    classify: Callable[[classifier.Classifier], Rows] | None = None,
) -> Job:
    """Measure phases; see `hushpore.pores.phases.job.measure_phases`."""
    return job.measure_phases(volume, settings, backend, open_network, classify)


def check_volume(volume: Volume, settings: PhaseSettings) -> None:
    """Check a volume before it is read; see `hushpore.pores.phases.job.check_volume`."""
    job.check_volume(volume, settings, open_network)


def repeated_phases(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings that measure the same phases again.

    Raises InputError if the denoiser or the classifier is missing, or has changed.
    """
    if "texture" in made.get("auxiliary", {}):
        load("hushpore.denoising.trained_model:require_same_model")(values, made, "texture")
    return classifier.repeated_phases(values, made, file)
