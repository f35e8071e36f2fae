"""The record that goes with every result: what was done, to what, with what, and for how long."""

from __future__ import annotations

import hashlib
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.events import Timing
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume

_PACKAGES = ("numpy", "scipy", "scikit-image", "numba", "torch", "pydicom", "tifffile", "pandas")


def make_record(
    job: str,
    volume: Volume,
    settings: Settings,
    device: str,
    timing: Timing,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the record of a finished job as plain JSON values.

    Parameters
    ----------
    job : str
        Name of the job, as in `hushpore.jobs.JOBS`.
    volume : Volume
        Its input.
    settings : Settings
        All its settings, defaults included, so that the job can be run again.
    device : str
        The device in words.
    timing : Timing
        Time by stage.
    notes : sequence of str
        What was said while it ran.
    """
    return {
        "job": job,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hushpore": __version__,
        "settings": settings.to_dict(),
        "device": device,
        "input": _identity(volume),
        "timings": {name: round(stage.seconds, 6) for name, stage in timing.stages.items()},
        "notes": [*volume.notes, *notes],
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
    }


def _identity(volume: Volume) -> dict[str, Any]:
    return {
        "name": volume.name,
        "source": volume.source,
        "shape": list(volume.shape),
        "axes": volume.axes,
        "dtype": volume.dtype.name,
        "spacing": list(volume.spacing),
        "unit": volume.unit,
        "blake2b": _fingerprint(volume),
    }


def _fingerprint(volume: Volume) -> str:
    digest = hashlib.blake2b(digest_size=16)
    values = np.asarray(volume.data)
    # plane by plane: a view that is not contiguous is then copied one plane at a time
    for plane in values:
        digest.update(np.ascontiguousarray(plane).data)
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
