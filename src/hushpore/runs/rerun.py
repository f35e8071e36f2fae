"""Reproduce a result from its record and compare it with the original."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import partial
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

    #: Yields the events of the jobs and returns the comparison of the results.
    Again: TypeAlias = Generator[Event, None, "Rerun"]

# relative difference up to which two numbers are equal: processors that add up in another order
# change the last digit of roots and axes of pores
_ROUNDING = 1e-9
_LEAST = 1e-12  # absolute, for numbers near zero
_TOTALS = "totals.csv"

# errors from reading a record that was damaged or changed
_ODD = (KeyError, ValueError, TypeError, AttributeError, IndexError, ArithmeticError)


@dataclass(frozen=True)
class Rerun:
    """Comparison of a reproduced result with the original."""

    written: Path  # the new result
    # whether all images are bit-identical, and totals and tables equal to nine digits
    identical: bool
    # sentences on images, totals, tables, versions and device
    differences: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The outcome in one sentence."""
        if self.identical and not self.differences:
            return "Identical: the new result equals the original bit for bit."
        if self.identical:
            return f"Identical bit for bit, although {'; '.join(self.differences)}."
        return f"Not identical: {'; '.join(self.differences)}."


@dataclass(frozen=True)
class _Made:
    """The parts of a result that are compared."""

    images: dict[str, str]  # fingerprints
    totals: dict[str, float] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)  # all but the totals
    # versions, device, fingerprints of inputs
    conditions: dict[str, str] = field(default_factory=dict)


def rerun(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    device: str = "auto",
    overwrite: bool = False,
    trust: bool = False,
) -> Again:
    """Reproduce a result: read the same scan in the same way and run the same jobs and settings.

    Corrections by hand are made again.

    Parameters
    ----------
    path : str or path-like
        A result folder or its ``result.json``, or an image or the JSON file beside it.
    output : str or path-like
        Path of the new result: a folder, or for an image a TIFF file.
    device : str, optional
        As for `hushpore.denoise`.
    overwrite : bool, optional
        Replace an earlier result at that path.
    trust : bool, optional
        As for `hushpore.read`. Not taken from the record, which may come from somebody else.

    Yields
    ------
    Event
        The events of the jobs.

    Returns
    -------
    Rerun
        The path of the new result and its differences from the original.

    Raises
    ------
    InputError
        If the record is incomplete, or the scan is missing or has changed.
    HushporeError
        Any error of the jobs or of writing the result.
    """
    before, file = read_provenance(path), provenance_file(path)
    try:
        jobs = before.get("jobs", [before])
        steps = _steps(jobs, file)
        source = ScanRecipe.of(before.get("source") or {"path": jobs[0]["input"]["source"]})
        if not isinstance(source.path, str):
            raise TypeError(f"its scan is {source.path!r}")
        source = dataclasses.replace(source, trust=trust)
        # read the original first: the new result may replace it
        first = _made(before, file)
    except InputError:
        raise
    except _ODD as error:
        raise InputError(
            f"The record of {path} is damaged or was edited ({type(error).__name__}: {error}). "
            "Nothing was run."
        ) from error
    if not _is_there(source.path):
        raise InputError(
            f"The scan of this result was not found at {source.path[:200]}. Move it back there and "
            "run the command again."
        )

    def check_same(volume: Volume) -> None:
        if not _is_input(volume.data, jobs[0]["input"]):
            raise InputError(
                f"{source.path} has changed since this result was made (its fingerprint differs). "
                "Nothing was run."
            )

    done = yield from run_pipeline(
        source,
        output,
        steps,
        device=device,
        overwrite=overwrite,
        check=check_same,
        correct={
            job["job"]: partial(load(JOBS[job["job"]].correct), record=job)
            for job in jobs
            if JOBS[job["job"]].correct
        },
    )
    second = _made(read_provenance(done.folder), provenance_file(done.folder))
    differences = _differences(first, second)
    changed = [
        f"{name} was {first.conditions.get(name, 'absent')} and is {now}"
        for name, now in second.conditions.items()
        # memory changes results only through the size of tiles and slabs
        if first.conditions.get(name) != now and (differences or name != "memory")
    ]
    return Rerun(done.folder, not differences, (*differences, *changed))


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # not a possible file name, for example too long
        return False


def _is_input(data: Any, given: dict[str, Any]) -> bool:
    """Return whether an array is the recorded input."""
    return bool(fingerprint(data) == given["blake2b"])


def _steps(jobs: list[dict[str, Any]], file: Path) -> dict[str, Settings]:
    """Return the settings of the recorded jobs, in their order."""
    names = [str(job.get("job")) for job in jobs]
    try:
        check_chain(names)
        prints = {name for name in dict(jobs[0]["input"]) if name.startswith("blake2b")}
        settings = {name: job["settings"] for name, job in zip(names, jobs, strict=True)}
    except (InputError, KeyError):
        prints, settings = set(), {}
    if "blake2b_of_blocks" in prints:
        raise InputError(
            f"{file} was denoised on a cluster, where training depends on the memory of the "
            "workers, and cannot be reproduced on one machine. Nothing was run. Results denoised "
            "without --cluster, and pores segmented on a cluster, can be reproduced."
        )
    if not prints or len(settings) < len(names):
        listed = ", ".join(names)
        raise InputError(f"{file} cannot be reproduced: the record of {listed} is incomplete.")
    return {name: _settings(job, file) for name, job in zip(names, jobs, strict=True)}


def _settings(job: dict[str, Any], file: Path) -> Settings:
    """Return the settings of a job after checking that the files that they name exist."""
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
                f"This result cannot be reproduced: {opt.name} was {name[:200]}, which does not "
                "exist. Move the file back there. If it was an array or a layer, save it as a file "
                f"and run the job with {opt.flag} FILE."
            )
    return settings


def _made(record: dict[str, Any], file: Path) -> _Made:
    """Collect the parts to compare from a record and the files beside it."""
    made = _Made(dict(record.get("fingerprints", {})))
    for job in record.get("jobs", [record]):
        made.totals.update(
            {
                name: value
                for name, value in job.get("result", {}).items()
                # durations always differ and are not part of the result
                if isinstance(value, int | float) and not name.endswith("_seconds")
            }
        )
        # of the first job: pores are the same on all; without the reason, which is in brackets
        device = str(job.get("device")).partition(" (")[0]
        made.conditions.setdefault("the device", device)
        made.conditions["memory"] = job.get("memory") or "not limited"
        made.conditions["hushpore"] = str(job.get("hushpore"))
        made.conditions.update(job.get("versions", {}))
        for setting, thing in job.get("auxiliary", {}).items():
            made.conditions[f"the fingerprint of {setting} ({thing['name']})"] = thing["blake2b"]
    if file.name != PROVENANCE:
        return made
    if not made.images:
        # results of a cluster record no fingerprints
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
    """Return a sentence for each image, total and table that differs."""
    from pandas.testing import assert_frame_equal

    differences = [
        f"{name} differs" if name in first.images else f"the record has no fingerprint of {name}"
        for name, kept in second.images.items()
        if kept != first.images.get(name)
    ]
    for name, now in second.totals.items():
        before = first.totals.get(name, now)
        alike = math.isclose(now, before, rel_tol=_ROUNDING, abs_tol=_LEAST)
        if not alike and not math.isnan(now) & math.isnan(before):
            differences.append(f"{name.replace('_', ' ')} was {before:.6g} and is {now:.6g}")
    for name, table in second.tables.items():
        before_it = first.tables.get(name, table)
        shared = [column for column in table if column in before_it]
        try:
            assert_frame_equal(table[shared], before_it[shared], rtol=_ROUNDING, atol=_LEAST)
        except AssertionError:
            differences.append(f"{name} differs")
    return differences
