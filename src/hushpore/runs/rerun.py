"""Doing a job again from the record of its result, and saying whether the same came out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.errors import InputError
from hushpore.base.provenance import fingerprint
from hushpore.jobs import JOBS
from hushpore.runs.result import provenance_file, read_provenance
from hushpore.runs.scan import denoise_scan, segment_scan
from hushpore.runs.source import Source

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from hushpore.base.events import Event
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.runs.scan import Scan

    #: Yields the events of the jobs, and returns how the results compare.
    Again: TypeAlias = Generator[Event, None, "Rerun"]

#: Orders in which jobs can follow each other in a result.
_KNOWN = (["denoise"], ["pores"], ["denoise", "pores"])


@dataclass(frozen=True)
class Rerun:
    """How a result that was made again compares with the first.

    Attributes
    ----------
    written : pathlib.Path
        The new result.
    identical : bool
        Whether all its images are the same, to the bit.
    differences : tuple of str
        What differs in words: images and figures, and what may be the reason.
    """

    written: Path
    identical: bool
    differences: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The outcome in a sentence or a few."""
        if self.identical and not self.differences:
            return "Identical: the same result, to the bit."
        if self.identical:
            return f"Identical, to the bit, though {'; '.join(self.differences)}."
        return f"Not identical: {'; '.join(self.differences)}."


def rerun(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    device: str = "auto",
    overwrite: bool = False,
) -> Again:
    """Make a result again: the same scan, read the same way, through the same settings.

    Parameters
    ----------
    path : str or path-like
        A result folder or its ``result.json``, or the JSON file beside a denoised image.
    output : str or path-like
        Where the new result goes: a folder, or for a denoised image a TIFF file.
    device : str, optional
        As for `hushpore.denoise`.
    overwrite : bool, optional
        Replace an earlier result in that place.

    Yields
    ------
    Event
        Of the jobs.

    Returns
    -------
    Rerun
        Where it is, and what differs from the first.

    Raises
    ------
    InputError
        If the record is not complete, or the scan is gone or has changed.
    HushporeError
        As the jobs and writing do.
    """
    before = read_provenance(path)
    jobs = before.get("jobs", [before])
    names = [job.get("job") for job in jobs]
    if names not in _KNOWN:
        raise InputError(f"{path}: what was done cannot be done again from its record: {names}.")
    settings = [_settings(job, path) for job in jobs]
    source = Source.of(before.get("source") or {"path": jobs[0]["input"]["source"]})
    if not Path(source.path).exists():
        raise InputError(
            f"The scan of this result is gone: there is no {source.path}. Put it back there, and "
            "run again."
        )

    def same(volume: Volume) -> None:
        if fingerprint(volume.data) != jobs[0]["input"]["blake2b"]:
            raise InputError(
                f"{source.path} is not what it was when this result was made: its values have "
                "another fingerprint. Nothing was run."
            )

    work: Scan
    if names == ["denoise"]:
        work = denoise_scan(
            source, output, settings[0], device=device, overwrite=overwrite, check=same
        )
    else:
        work = segment_scan(
            source,
            Path(output),
            denoise=settings[0] if len(settings) > 1 else None,
            pores=settings[-1],
            device=device,
            overwrite=overwrite,
            check=same,
        )
    written = yield from work
    place = written.folder
    after = read_provenance(place if place.is_dir() else place.with_suffix(".json"))
    return _compared(before, after, written.folder)


def _settings(job: dict[str, Any], path: str | os.PathLike[str]) -> Settings:
    kind = JOBS[job["job"]].settings
    values = kind.renamed(job["settings"])
    if job["job"] == "denoise":
        # trained anew, not gone on with; and where time has cut it, for as many steps at the same
        # rates, which the record has
        values |= {
            "checkpoint": "",
            "repeat": str(provenance_file(path)) if job.get("training") else "",
        }
    try:
        return kind.of(values)
    except InputError as error:
        raise InputError(
            f"The settings of {job['job']} were made by hushpore {job.get('hushpore')} and do not "
            f"fit this version: {error}"
        ) from error


def _compared(before: dict[str, Any], after: dict[str, Any], written: Path) -> Rerun:
    first, second = before.get("fingerprints", {}), after["fingerprints"]
    images = [name for name in second if second[name] != first.get(name)]
    told = [
        f"{name} differs" if name in first else f"the record has no fingerprint of {name}"
        for name in images
    ]
    for old, new in zip(before.get("jobs", [before]), after.get("jobs", [after]), strict=True):
        told += _auxiliary(old, new)
        told += _figures(old.get("result", {}), new.get("result", {}))
        told += _reasons(old, new)
        limits = [job.get("memory") or "not limited" for job in (old, new)]
        if images and limits[0] != limits[1]:
            told.append(f"memory was {limits[0]} and is {limits[1]}")
    return Rerun(written, not images, tuple(dict.fromkeys(told)))


def _auxiliary(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before = old.get("auxiliary", old.get("beside", {}))
    return [
        f"{setting} ({thing['name']}) has changed"
        for setting, thing in new.get("auxiliary", {}).items()
        if thing["blake2b"] != before.get(setting, {}).get("blake2b")
    ]


def _figures(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    told = []
    for name, value in new.items():
        other = old.get(name)
        if not isinstance(value, int | float) or not isinstance(other, int | float):
            continue
        if name.endswith("_seconds"):
            continue  # never the same, and no part of the result
        if not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12):
            told.append(f"{name.replace('_', ' ')} was {other:.6g} and is {value:.6g}")
    return told


def _reasons(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What else is not as it was."""
    told = []
    if old.get("hushpore") != new.get("hushpore"):
        told.append(f"hushpore was {old.get('hushpore')} and is {new.get('hushpore')}")
    # why it was this one, which stands behind it, does not matter
    before, after = (str(job.get("device")).partition(" (")[0] for job in (old, new))
    if before != after:
        told.append(f"the device was {before} and is {after}")
    steps = [job.get("result", {}).get("steps") for job in (old, new)]
    if old.get("job") == "denoise" and steps[0] != steps[1]:
        told.append(
            f"the training took {steps[0]} steps and now {steps[1]}: time has ended it, and its "
            "record is of a version that did not keep its course. Say --steps and no time budget "
            "for a training that repeats itself"
        )
    packages = old.get("versions", {})
    told += [
        f"{name} was {packages.get(name, 'absent')} and is {version}"
        for name, version in new.get("versions", {}).items()
        if packages.get(name) != version
    ]
    return told
