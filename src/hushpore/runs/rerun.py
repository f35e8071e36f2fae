"""Doing a job again from the record of its result, and saying whether the same came out."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.errors import InputError
from hushpore.base.provenance import fingerprint
from hushpore.io import describe
from hushpore.io.output_target import PROVENANCE
from hushpore.jobs import JOBS, check_chain, load
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.pore_result import read_result_table
from hushpore.runs.result_folder import provenance_file, read_provenance
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    import pandas as pd

    from hushpore.base.events import Event
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume

    #: Yields the events of the jobs, and returns how the results compare.
    Again: TypeAlias = Generator[Event, None, "Rerun"]

# two numbers are the same up to this relative difference: roots and axes of pores differ in the
# last digit where a processor adds up otherwise
_ROUNDING = 1e-9
_LEAST = 1e-12  # the same, absolute, for numbers near zero
_TOTALS = "totals.csv"

# what comes of a record in which something else stands than is written there
_ODD = (KeyError, ValueError, TypeError, AttributeError, IndexError, ArithmeticError)


@dataclass(frozen=True)
class Rerun:
    """How a result that was made again compares with the first."""

    written: Path  # the new result
    # whether all its images are the same, to the bit, and its totals and tables to nine digits
    identical: bool
    # what differs in words: images, totals and tables, and what it was made with
    differences: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The outcome in a sentence or a few."""
        if self.identical and not self.differences:
            return "Identical: the same result, to the bit."
        if self.identical:
            return f"Identical, to the bit, though {'; '.join(self.differences)}."
        return f"Not identical: {'; '.join(self.differences)}."


@dataclass(frozen=True)
class _Made:
    """What is compared of a result."""

    images: dict[str, str]  # their fingerprints
    totals: dict[str, float] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)  # all but that of the totals
    means: dict[str, str] = field(default_factory=dict)  # versions, device, fingerprints of inputs


def rerun(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    device: str = "auto",
    overwrite: bool = False,
    trust: bool = False,
) -> Again:
    """Make a result again: the same scan, read the same way, through the same settings.

    Parameters
    ----------
    path : str or path-like
        A result folder or its ``result.json``, or an image or the JSON file beside it.
    output : str or path-like
        Where the new result goes: a folder, or for an image a TIFF file.
    device : str, optional
        As for `hushpore.denoise`.
    overwrite : bool, optional
        Replace an earlier result in that place.
    trust : bool, optional
        As for `hushpore.read`. A record cannot say it: it may be of somebody else.

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
    before, file = read_provenance(path), provenance_file(path)
    try:
        jobs = before.get("jobs", [before])
        steps = _steps(jobs, file)
        source = ScanRecipe.of(before.get("source") or {"path": jobs[0]["input"]["source"]})
        if not isinstance(source.path, str):
            raise TypeError(f"its scan is {source.path!r}")
        source = dataclasses.replace(source, trust=trust)
        # what is there before anything is written, perhaps in its place
        first = _made(before, file)
    except InputError:
        raise
    except _ODD as error:
        raise InputError(
            f"The record of {path} is damaged or was changed: something else stands in it than "
            f"hushpore writes ({type(error).__name__}: {error}). Nothing was run."
        ) from error
    if not _is_there(source.path):
        raise InputError(
            f"The scan of this result is gone: there is no {source.path[:200]}. Put it back there, "
            "and run again."
        )

    def same(volume: Volume) -> None:
        if not _is_input(volume.data, jobs[0]["input"]):
            raise InputError(
                f"{source.path} is not what it was when this result was made: its values have "
                "another fingerprint. Nothing was run."
            )

    done = yield from run_pipeline(
        source, output, steps, device=device, overwrite=overwrite, check=same
    )
    second = _made(read_provenance(done.folder), provenance_file(done.folder))
    told = _differences(first, second)
    means = [
        f"{name} was {first.means.get(name, 'absent')} and is {now}"
        for name, now in second.means.items()
        # memory changes results by the way of tiles and slabs alone
        if first.means.get(name) != now and (told or name != "memory")
    ]
    return Rerun(done.folder, not told, (*told, *means))


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # what cannot be a name, as one that is too long
        return False


def _is_input(data: Any, given: dict[str, Any]) -> bool:
    """Return whether an array is the input that a record tells of."""
    return bool(fingerprint(data) == given["blake2b"])


def _steps(jobs: list[dict[str, Any]], file: Path) -> dict[str, Settings]:
    """Return the settings of each job that a record tells of, in their order."""
    names = [str(job.get("job")) for job in jobs]
    try:
        check_chain(names)
        prints = {name for name in dict(jobs[0]["input"]) if name.startswith("blake2b")}
        settings = {name: job["settings"] for name, job in zip(names, jobs, strict=True)}
    except (InputError, KeyError):
        prints, settings = set(), {}
    if "blake2b_of_blocks" in prints:
        raise InputError(
            f"{file} was denoised on a cluster, which learns from what a worker holds of the scan: "
            "one machine would learn otherwise, and nothing was run. What is denoised without "
            "--cluster can be made again; pores that a cluster has found can, too."
        )
    if not prints or len(settings) < len(names):
        raise InputError(f"{file}: what was done cannot be done again from its record: {names}.")
    return {name: _settings(job, file) for name, job in zip(names, jobs, strict=True)}


def _settings(job: dict[str, Any], file: Path) -> Settings:
    """Return the settings of a job, once the files that they name have been seen."""
    kind = JOBS[job["job"]]
    values = job["settings"]
    if kind.repeat:
        values = load(kind.repeat)(values, job, file)
    try:
        settings = kind.settings.of(values)
    except InputError as error:
        raise InputError(
            f"The settings of {job['job']} were made by hushpore {job.get('hushpore')} and do not "
            f"fit this version: {error}"
        ) from error
    for opt in settings.options():
        name = getattr(settings, opt.name) if opt.auxiliary else ""
        if name and not _is_there(name):
            raise InputError(
                f"This result cannot be made again: {opt.name} was {name[:200]}, and there is no "
                "such file. Put it back there. If it was an array or a layer, save it as a file, "
                f"and make the result with {opt.flag} FILE."
            )
    return settings


def _made(record: dict[str, Any], file: Path) -> _Made:
    """Return what is compared of a result, from its record and the files beside it."""
    made = _Made(dict(record.get("fingerprints", {})))
    for job in record.get("jobs", [record]):
        made.totals.update(
            {
                name: value
                for name, value in job.get("result", {}).items()
                # times are never the same, and no part of the result
                if isinstance(value, int | float) and not name.endswith("_seconds")
            }
        )
        # why it was this device, which stands behind it, does not matter
        made.means["the device"] = str(job.get("device")).partition(" (")[0]
        made.means["memory"] = job.get("memory") or "not limited"
        made.means["hushpore"] = str(job.get("hushpore"))
        made.means.update(job.get("versions", {}))
        for setting, thing in job.get("auxiliary", {}).items():
            made.means[f"the fingerprint of {setting} ({thing['name']})"] = thing["blake2b"]
    if file.name != PROVENANCE:
        return made
    if not made.images:
        # of a cluster
        for image in file.parent.glob("*.ome.zarr"):
            name = image.name.removesuffix(".ome.zarr")
            made.images[name] = fingerprint(describe(image)[0].data)
    for path in sorted(file.parent.glob("*.csv")):
        table = read_result_table(path)
        if path.name == _TOTALS:
            made.totals.update(zip(table["name"], map(float, table["value"]), strict=True))
        else:
            made.tables[path.name] = table
    return made


def _differences(first: _Made, second: _Made) -> list[str]:
    """Say which images, totals and tables of two results differ."""
    from pandas.testing import assert_frame_equal

    told = [
        f"{name} differs" if name in first.images else f"the record has no fingerprint of {name}"
        for name, kept in second.images.items()
        if kept != first.images.get(name)
    ]
    for name, now in second.totals.items():
        before = first.totals.get(name, now)
        alike = math.isclose(now, before, rel_tol=_ROUNDING, abs_tol=_LEAST)
        if not alike and not math.isnan(now) & math.isnan(before):
            told.append(f"{name.replace('_', ' ')} was {before:.6g} and is {now:.6g}")
    for name, table in second.tables.items():
        before_it = first.tables.get(name, table)
        shared = [column for column in table if column in before_it]
        try:
            assert_frame_equal(table[shared], before_it[shared], rtol=_ROUNDING, atol=_LEAST)
        except AssertionError:
            told.append(f"{name} differs")
    return told
