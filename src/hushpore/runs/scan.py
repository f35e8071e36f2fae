"""One scan from file to result folder, as a job: read, denoise, segment, write."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.events import Progress, StopEarly
from hushpore.io.target import check_target
from hushpore.jobs import start
from hushpore.runs.beside import lay_beside
from hushpore.runs.folder import write_pores

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hushpore.base.events import Event, Job
    from hushpore.base.settings import Settings
    from hushpore.pores.result import Pores
    from hushpore.runs.source import Source

    #: Yields the events of all jobs in turn, and returns the pores that were written.
    Scan: TypeAlias = Generator[Event, None, Pores]

#: Share of the whole that is done after reading, denoising, segmenting.
_READ, _DENOISED, _SEGMENTED = 0.02, 0.85, 0.97


def segment_scan(
    source: Source,
    folder: Path,
    *,
    denoise: Settings | None,
    pores: Settings,
    device: str = "auto",
    overwrite: bool = False,
    extra: dict[str, Any] | None = None,
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
    extra : dict, optional
        Further entries of ``result.json``.

    Yields
    ------
    Event
        Of both jobs; `Progress` counts for the whole.

    Returns
    -------
    Pores
        What was written.

    Raises
    ------
    HushporeError
        As reading, the jobs and writing do; nothing is written then.
    """
    check_target(folder, overwrite)
    yield Progress("reading", 0, 0, "", 0.0)
    before = source.read()
    cleaned = None
    if denoise is not None:
        job = start("denoise", lay_beside(before, denoise), denoise, device)
        cleaned = yield from _part(job, _READ, _DENOISED)
    volume = before if cleaned is None else cleaned.volume
    job = start("pores", lay_beside(volume, pores), pores, device)
    found: Pores = yield from _part(job, _READ if cleaned is None else _DENOISED, _SEGMENTED)
    yield Progress("writing", 0, 0, "", _SEGMENTED)
    write_pores(folder, before, cleaned, found, overwrite, extra, source)
    return found


def _part(job: Job, first: float, last: float) -> Generator[Event, None, Any]:
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
