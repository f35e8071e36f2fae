"""Doing a job again from the record of its result, and saying whether the same came out."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.provenance import fingerprint, fingerprint_of_slices, slice_fingerprints
from hushpore.io import describe
from hushpore.io.target import PROVENANCE
from hushpore.jobs import JOBS, check_chain, load
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.pore_result import read_result_table
from hushpore.runs.result_folder import provenance_file, read_provenance
from hushpore.runs.source import Source

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    import pandas as pd

    from hushpore.base.events import Event
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume

    #: Yields the events of the jobs, and returns how the results compare.
    Again: TypeAlias = Generator[Event, None, "Rerun"]


#: Relative difference of two numbers up to which they are the same.
_ROUNDING = 1e-9

# what comes of a record in which something else stands than is written there
_ODD = (KeyError, ValueError, TypeError, AttributeError, IndexError, ArithmeticError)


@dataclass(frozen=True)
class Rerun:
    """How a result that was made again compares with the first."""

    written: Path  # the new result
    # whether all its images are the same, to the bit, and its tables to nine digits: the last ones
    # are each processor's own
    identical: bool
    # what differs in words: images and figures, and what may be the reason
    differences: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The outcome in a sentence or a few."""
        if self.identical and not self.differences:
            return "Identical: the same result, to the bit."
        if self.identical:
            return f"Identical, to the bit, though {'; '.join(self.differences)}."
        return f"Not identical: {'; '.join(self.differences)}."


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # what cannot be a name, as one that is too long
        return False


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
    before = read_provenance(path)
    try:
        jobs = before.get("jobs", [before])
        steps = _steps(jobs, path)
        source = Source.of(before.get("source") or {"path": jobs[0]["input"]["source"]})
        if not isinstance(source.path, str):
            raise TypeError(f"its scan is {source.path!r}")
        source = dataclasses.replace(source, trust=trust)
        # what it will be compared with is odd or not now, and not after hours
        _compared_records(before, before)
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

    # before anything is written, perhaps in its place
    file = provenance_file(path)
    known = _fingerprints(before, file), _tables(file)
    done = yield from run_pipeline(
        source, output, steps, device=device, overwrite=overwrite, check=same
    )
    return _compared(before, *known, done.folder)


def _is_input(data: Any, given: dict[str, Any]) -> bool:
    """Return whether an array is the input that a record tells of."""
    if "blake2b" in given:
        return bool(fingerprint(data) == given["blake2b"])
    # a cluster has read it in blocks
    return bool(fingerprint_of_slices([slice_fingerprints(data)]) == given["blake2b_of_slices"])


def _steps(jobs: list[dict[str, Any]], path: str | os.PathLike[str]) -> dict[str, Settings]:
    """Return the settings of each job that a record tells of, in their order."""
    names = [str(job.get("job")) for job in jobs]
    try:
        check_chain(names)
        given = jobs[0]["input"]
        if not isinstance(given, dict):
            raise TypeError(f"the input is {given!r}")
        is_known = "blake2b" in given or "blake2b_of_slices" in given
        complete = len(set(names)) == len(names) and is_known
        values = [job["settings"] for job in jobs]
        is_learnt_in_blocks = "blake2b_of_blocks" in given
    except (InputError, KeyError):
        complete = is_learnt_in_blocks = False
    if is_learnt_in_blocks:
        raise InputError(
            f"{path} was denoised on a cluster, which learns from what a worker holds of the scan: "
            "one machine would learn otherwise, and nothing was run. What is denoised without "
            "--cluster can be made again; pores that a cluster has found can, too."
        )
    if not complete:
        raise InputError(f"{path}: what was done cannot be done again from its record: {names}.")
    return {
        name: _settings(job, kept, provenance_file(path))
        for name, job, kept in zip(names, jobs, values, strict=True)
    }


def _settings(job: dict[str, Any], kept: dict[str, Any], file: Path) -> Settings:
    kind = JOBS[job["job"]]
    values = kind.settings.recorded(kept)
    if kind.repeat:
        values = load(kind.repeat)(values, job, file)
    try:
        settings = kind.settings.of(values)
    except InputError as error:
        raise InputError(
            f"The settings of {job['job']} were made by hushpore {job.get('hushpore')} and do not "
            f"fit this version: {error}"
        ) from error
    _require_files(settings)
    return settings


def _require_files(settings: Settings) -> None:
    """Check that what settings name beside the scan is there, before that is read.

    Raises InputError if it is not; says what to do.
    """
    for opt in settings.options():
        name = getattr(settings, opt.name) if opt.auxiliary else ""
        if not name or _is_there(name):
            continue
        if Path(name).is_absolute():
            raise InputError(
                f"A file of this result is gone: {opt.name} was {name[:200]}. Put it back there, "
                "and run again."
            )
        raise InputError(
            f"This result cannot be made again: {opt.name} was an array or a layer, "
            f"{name[:200]!r}, of which the record has only the fingerprint. Save it as a file, and "
            f"make the result with {opt.flag} FILE; that can be made again."
        )


def _compared(
    before: dict[str, Any], first: dict[str, str], tables: dict[str, pd.Series[Any]], written: Path
) -> Rerun:
    """Compare a new result with the fingerprints of images and the tables of the one before."""
    file = provenance_file(written)
    after = read_provenance(file)
    second = after["fingerprints"]
    images = [name for name in second if second[name] != first.get(name)]
    told = [
        f"{name} differs" if name in first else f"the record has no fingerprint of {name}"
        for name in images
    ]
    now = _tables(file)
    columns = [name for name in now if not _is_same(now[name], tables.get(name, now[name]))]
    # of other images they are other tables
    told += [f"{name} differs" for name in columns] if not images else []
    told += _compared_records(before, after, bool(images))
    return Rerun(written, not images and not columns, tuple(dict.fromkeys(told)))


def _compared_records(
    before: dict[str, Any], after: dict[str, Any], is_other: bool = False
) -> list[str]:
    """Return what differs between the records of two results; `is_other`: their images do."""
    told: list[str] = []
    for old, new in zip(before.get("jobs", [before]), after.get("jobs", [after]), strict=True):
        told += _auxiliary(old, new)
        told += _figures(old.get("result", {}), new.get("result", {}))
        told += _reasons(old, new)
        limits = [job.get("memory") or "not limited" for job in (old, new)]
        if is_other and limits[0] != limits[1]:
            told.append(f"memory was {limits[0]} and is {limits[1]}")
    return told


def _fingerprints(made: dict[str, Any], file: Path) -> dict[str, str]:
    """Return the fingerprints of images: those that are kept, or else of the files themselves."""
    kept: dict[str, str] = made.get("fingerprints", {})
    if kept or file.name != PROVENANCE:
        return kept
    return {
        image.name.removesuffix(ending): fingerprint(describe(image)[0].data)
        for ending in (".tif", ".ome.zarr")  # the latter on a cluster
        for image in file.parent.glob(f"*{ending}")
    }


def _tables(file: Path) -> dict[str, pd.Series[Any]]:
    """Return each column of the tables in a result folder, and each total by itself."""
    found: dict[str, pd.Series[Any]] = {}
    for path in sorted(file.parent.glob("*.csv")) if file.name == PROVENANCE else []:
        table = read_result_table(path)
        if {"name", "value"} <= set(table):
            # of pores that were merged anew some are left that are not found without intervals
            table = table.set_index("name")[["value"]].T
        found |= {f"{name} in {path.name}": values for name, values in table.items()}
    return found


def _is_same(one: pd.Series[Any], two: pd.Series[Any]) -> bool:
    """Return whether two columns are equal, numbers to nine digits."""
    if len(one) != len(two) or not all(each.dtype.kind in "iuf" for each in (one, two)):
        return bool(one.equals(two))
    # roots and axes of pores differ in the last digit where a processor adds up otherwise
    largest = np.nanmax(np.abs(np.where(np.isfinite(one), one, 0)), initial=0)
    least = 1e-3 * _ROUNDING * largest
    return bool(np.allclose(one, two, rtol=_ROUNDING, atol=least, equal_nan=True))


def _auxiliary(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    before = old.get("auxiliary", old.get("beside", {}))
    return [
        f"{setting} ({thing['name']}) has changed"
        if setting in before
        else f"the record has no fingerprint of {setting} ({thing['name']})"
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
        if not math.isclose(value, other, rel_tol=_ROUNDING, abs_tol=1e-12):
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
    if steps[0] != steps[1]:
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
