"""One scan from file to result folder, as a job: read, denoise, segment, write."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.events import Progress, StopEarly
from hushpore.base.provenance import fingerprint
from hushpore.io.results import check_provenance_target, write_image
from hushpore.io.target import check_target
from hushpore.jobs import start
from hushpore.runs.auxiliary_files import attach_files
from hushpore.runs.folder import write_pores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from hushpore.base.events import Event, Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.n2v2.result import Denoised
    from hushpore.pores.result import Pores
    from hushpore.runs.source import Source

    #: Yields the events of all jobs in turn, and returns what was written.
    Scan: TypeAlias = Generator[Event, None, "Written"]
    #: Looks at what was read before anything is done with it; raises to refuse it.
    Check: TypeAlias = Callable[[Volume], None]

#: Share of the whole that is done after reading, denoising, segmenting.
_READ, _DENOISED, _SEGMENTED = 0.02, 0.85, 0.97


@dataclass(frozen=True)
class Written:
    """A finished scan.

    Attributes
    ----------
    folder : pathlib.Path
        The result folder, or for a denoised scan its TIFF file.
    summary : str
        The result in one sentence.
    provenance : dict
        The record of the last job.
    """

    folder: Path
    summary: str
    provenance: dict[str, Any]


def segment_scan(
    source: Source,
    folder: Path,
    *,
    denoise: Settings | None,
    pores: Settings,
    device: str = "auto",
    overwrite: bool = False,
    check: Check | None = None,
) -> Scan:
    """Read a scan, denoise it where asked for, segment its pores and write the result folder.

    Parameters
    ----------
    source : Source
        What to read.
    folder : pathlib.Path
        Where to write, see `hushpore.runs.folder.write_pores`.
    denoise : DenoiseSettings or None
        How to denoise; None: the scan is segmented as it is.
    pores : PoreSettings
        How to segment.
    device : str, optional
        As for `hushpore.denoise`.
    overwrite : bool, optional
        Replace an earlier result.
    check : callable, optional
        Looks at what was read before anything is done with it; raises to refuse it.

    Yields
    ------
    Event
        Of both jobs; `Progress` counts for the whole.

    Returns
    -------
    Written
        Where the result is, and what it says.

    Raises
    ------
    HushporeError
        As reading, the jobs and writing do; nothing is written then.
    """
    target = check_target(folder, overwrite)
    # as it is now: files that change while they are worked on are then known to have changed
    origin = source.to_dict()
    before = yield from _read(source, check, None if denoise is None else device)
    cleaned = None
    if denoise is not None:
        cleaned = yield from _denoise(before, denoise, device, _DENOISED)
    volume = before if cleaned is None else cleaned.volume
    job = start("pores", attach_files(volume, pores), pores, device)
    found: Pores = yield from part_of(job, _READ if cleaned is None else _DENOISED, _SEGMENTED)
    yield Progress("writing", 0, 0, "", _SEGMENTED)
    write_pores(target, before, cleaned, found, overwrite, source=origin)
    return Written(target, found.summary, found.provenance)


def denoise_scan(
    source: Source,
    path: str | os.PathLike[str],
    settings: Settings,
    *,
    device: str = "auto",
    overwrite: bool = False,
    check: Check | None = None,
) -> Scan:
    """Read a scan, denoise it and write it as an image, with its record beside it.

    Parameters
    ----------
    source, device, overwrite, check
        As for `segment_scan`.
    path : str or path-like
        Where to write, see `hushpore.io.results.write_image`.
    settings : DenoiseSettings
        How to denoise.

    Yields
    ------
    Event
        Of the job; `Progress` counts for the whole.

    Returns
    -------
    Written
        Where the result is, and what it says.

    Raises
    ------
    HushporeError
        As reading, the job and writing do; nothing is written then.
    """
    target = check_target(path, overwrite, directory=False)
    check_provenance_target(target, overwrite)
    origin = source.to_dict()
    before = yield from _read(source, check, device)
    cleaned = yield from _denoise(before, settings, device, _SEGMENTED)
    yield Progress("writing", 0, 0, "", _SEGMENTED)
    provenance = provenance_of_image(cleaned, origin)
    write_image(target, cleaned.volume, provenance=provenance, overwrite=overwrite)
    return Written(target, cleaned.summary, cleaned.provenance)


def provenance_of_image(cleaned: Denoised, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that goes with a denoised image, so that it can be made again.

    Parameters
    ----------
    cleaned : Denoised
        The result.
    source : mapping
        How the scan was read: `Source.to_dict`, as it was then.
    """
    return {
        **cleaned.provenance,
        "source": dict(source),
        "fingerprints": {"image": fingerprint(cleaned.volume.data)},
    }


def _read(
    source: Source, check: Check | None, device: str | None
) -> Generator[Event, None, Volume]:
    yield Progress("reading", 0, 0, "", 0.0)
    volume = source.read(device)
    if check is not None:
        check(volume)
    return volume


def _denoise(
    volume: Volume, settings: Settings, device: str, share: float
) -> Generator[Event, None, Denoised]:
    job = start("denoise", attach_files(volume, settings), settings, device)
    cleaned: Denoised = yield from part_of(job, _READ, share)
    return cleaned


def part_of(job: Job, first: float, last: float) -> Generator[Event, None, Any]:
    """Drive a job as the part of a longer one that is done from one fraction to another."""
    with closing(job):
        try:
            event = next(job)
            while True:
                if isinstance(event, Progress):
                    done = first + (last - first) * event.fraction
                    event = dataclasses.replace(event, fraction=done)
                try:
                    yield event
                except StopEarly as stop:
                    event = job.throw(stop)
                else:
                    event = next(job)
        except StopIteration as end:
            return end.value
