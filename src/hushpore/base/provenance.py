"""The record that goes with every result: what was done, to what, with what, and for how long."""

from __future__ import annotations

import hashlib
import math
import platform
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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

#: Bytes of an array that a thread reads at a time for its fingerprint, and how many threads do:
#: beside other work, and no more than a disk or memory serve.
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

    `job`: its name, as in `hushpore.jobs.JOBS`. `volume`: its input. `settings`: all of them,
    defaults included, so that the job can be run again. `device`: in words. `timing`: time by
    stage, and the most memory that was in use. `notes`: from the run. `digest`: what
    tells the values from others, by name, where it was found on the way; by default the
    `fingerprint`, for which all are read. `auxiliary_digests`: the same of what lies beside the
    volume, by setting.
    """
    limit = memory_in_words()
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
            **(digest or {"blake2b": fingerprint(volume.data)}),
        },
        "auxiliary": _auxiliary(volume, settings, auxiliary_digests or {}),
        "timings": {name: round(stage.seconds, 6) for name, stage in timing.stages.items()},
        # bytes, as far as they were watched
        "peak_memory": {"host": timing.host_memory, "device": timing.device_memory},
        "optimisations": timing.choices,
        "notes": [*volume.notes, *(note.message for note in notes)],
        "remarks": [note.to_dict() for note in notes],
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
    }


def _auxiliary(
    volume: Volume, settings: Settings, digests: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Identify what the settings name beside the volume, by setting."""
    found = {}
    for opt in settings.options():
        thing = volume.auxiliary_of(settings, opt.name) if opt.auxiliary else None
        if thing is not None:
            name = getattr(settings, opt.name)
            found[opt.name] = identified(name, thing, digests.get(opt.name))
    return found


def identified(name: str, thing: Any, digest: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a record keeps of a thing beside the volume.

    `name`: as the setting has it. `thing`: as `Volume.auxiliary_of` returns it. `digest`: what
    tells it from others, where that is known; by default its `fingerprint`.
    """
    return {
        "name": name,
        "shape": list(thing.shape),
        "dtype": np.dtype(thing.dtype).name,
        **(digest or {"blake2b": fingerprint(thing)}),
    }


@contextmanager
def fingerprint_beside(data: Any) -> Iterator[Future[str]]:
    """Find the `fingerprint` of an array in a thread, beside other work.

    Whoever leaves the block without having waited for the result gives it up.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1, "hushpore-fingerprints") as pool:
        try:
            yield pool.submit(fingerprint, data, stop)
        finally:
            stop.set()


def fingerprint(data: Any, stop: threading.Event | None = None) -> str:
    """Return the fingerprint of an array: a BLAKE2b digest of those of its slices, in C order.

    Several threads make it, and machines of which none reads all of the array can: one digest of
    all values made the end of a pore job on a GPU wait for 1.3 s of 1.8 (512^3, 16 cores).

    `data`: array of at least one axis, in any byte order; read some slices at a time. `stop`: once
    set, no more is read, and the result is of no use.
    Returns: 32 hexadecimal digits.
    """
    # several slices at a time: a lazy array is never held whole, and its chunks are read once
    plane = max(1, math.prod(data.shape[1:]) * np.dtype(data.dtype).itemsize)
    step = max(1, _AT_ONCE // plane)

    def of_part(first: int) -> bytes:
        if stop is not None and stop.is_set():
            return b""
        return slice_fingerprints(data[first : first + step])

    with ThreadPoolExecutor(_THREADS, "hushpore-fingerprints") as pool:
        return fingerprint_of_slices(pool.map(of_part, range(0, data.shape[0], step)))


def slice_fingerprints(data: Any) -> bytes:
    """Return the digests of the slices of an array, one after another: 16 bytes each.

    They are of values in the byte order of this machine.
    """
    values = np.ascontiguousarray(data, np.dtype(data.dtype).newbyteorder("="))
    return b"".join(
        hashlib.blake2b(np.ascontiguousarray(plane).data, digest_size=16).digest()
        for plane in values
    )


def fingerprint_of_slices(parts: Iterable[bytes]) -> str:
    """Return the `fingerprint` of an array from parts that follow each other along its first axis.

    `parts`: their `slice_fingerprints`.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
