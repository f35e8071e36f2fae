"""Record of a job: input, settings, device, versions, timings and notes."""

from __future__ import annotations

import hashlib
import math
import platform
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore._version import __version__
from hushpore.base.preferences import memory_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from hushpore.base.events import Note, Timing
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume

#: Bytes that a thread reads at a time for a fingerprint, and the number of threads: few enough to
#: leave disk and memory to other work.
_AT_ONCE = 1 << 25
_THREADS = 4
_PACKAGES = ("numpy", "scipy", "scikit-image", "numba", "torch", "pydicom", "tifffile", "pandas")


def make_provenance(
    job: str,
    volume: Volume,
    settings: Settings,
    device: str,
    timing: Timing,
    notes: Sequence[Note] = (),
    digest: Mapping[str, Any] | None = None,
    auxiliary_digests: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the record of a finished job as plain JSON values.

    `job`: key of `hushpore.jobs.JOBS`. `volume`: input of the job. `settings`: all settings,
    including defaults, so that the job can be repeated. `device`: description. `timing`: time by
    stage and peak memory. `notes`: from the run. `digest`: digest of the values by name, if already
    known; by default the `fingerprint`, which reads all values. `auxiliary_digests`: digests of the
    auxiliary data, by setting.
    """
    limit = memory_in_words()
    auxiliary = {}
    for opt in settings.options():
        thing = volume.auxiliary_of(settings, opt.name) if opt.auxiliary else None
        if thing is not None:
            known = (auxiliary_digests or {}).get(opt.name)
            auxiliary[opt.name] = identified(getattr(settings, opt.name), thing, known)
    return {
        "job": job,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hushpore": __version__,
        "settings": settings.to_dict(),
        "device": device,
        **({"memory": limit} if limit else {}),
        "input": {
            "name": volume.name,
            "source": volume.source,
            "shape": list(volume.shape),
            "axes": volume.axes,
            "dtype": volume.dtype.name,
            "spacing": list(volume.spacing),
            "unit": volume.unit,
            # settings of the scan, which papers must report
            **({"scanner": volume.metadata["scanner"]} if volume.metadata.get("scanner") else {}),
            **(digest or {"blake2b": fingerprint(volume.data)}),
        },
        "auxiliary": auxiliary,
        "timings": {name: round(stage.seconds, 6) for name, stage in timing.stages.items()},
        # in bytes, of the monitored part of the run
        "peak_memory": {"host": timing.host_memory, "device": timing.device_memory},
        "optimisations": timing.choices,
        "notes": [*volume.notes, *(note.message for note in notes)],
        "remarks": [note.to_dict() for note in notes],
        **environment(),
    }


def identified(name: str, thing: Any, digest: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the record entry of auxiliary data.

    `name`: value of the setting. `thing`: from `Volume.auxiliary_of`. `digest`: digest, if already
    known; by default the `fingerprint`.
    """
    return {
        "name": name,
        "shape": list(thing.shape),
        "dtype": np.dtype(thing.dtype).name,
        **(digest or {"blake2b": fingerprint(thing)}),
    }


@contextmanager
def fingerprint_beside(data: Any) -> Iterator[Future[str]]:
    """Compute the `fingerprint` of an array in a background thread.

    Leaving the block before the result is ready cancels it.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1, "hushpore-fingerprints") as pool:
        try:
            yield pool.submit(fingerprint, data, stop)
        finally:
            stop.set()


def fingerprint(data: Any, stop: threading.Event | None = None) -> str:
    """Return the fingerprint of an array: the BLAKE2b digest of the digests of its slices.

    Slice digests can be computed in several threads, or on several machines. One digest of all
    values delayed the end of a pore job on a GPU by 1.3 of 1.8 s (512^3, 16 cores).

    `data`: array with at least one axis, in any byte order; read a few slices at a time. `stop`:
    once set, reading stops and the result is invalid.
    Returns: 32 hexadecimal digits.
    """
    # several slices at a time, so that chunks of a lazy array are read only once
    plane = max(1, math.prod(data.shape[1:]) * np.dtype(data.dtype).itemsize)
    step = max(1, _AT_ONCE // plane)

    def of_part(first: int) -> bytes:
        if stop is not None and stop.is_set():
            return b""
        return slice_fingerprints(data[first : first + step])

    with ThreadPoolExecutor(_THREADS, "hushpore-fingerprints") as pool:
        return fingerprint_of_slices(pool.map(of_part, range(0, data.shape[0], step)))


def slice_fingerprints(data: Any) -> bytes:
    """Return the concatenated digests of the slices of an array, 16 bytes each.

    The values are hashed in native byte order.
    """
    values = np.ascontiguousarray(data, np.dtype(data.dtype).newbyteorder("="))
    return b"".join(
        hashlib.blake2b(np.ascontiguousarray(plane).data, digest_size=16).digest()
        for plane in values
    )


def fingerprint_of_slices(parts: Iterable[bytes]) -> str:
    """Return the `fingerprint` of an array from `slice_fingerprints` of consecutive parts."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


@cache
def environment() -> dict[str, Any]:
    """Return the versions of Python and the libraries, and the operating system."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {"versions": versions, "platform": platform.platform()}
