"""The scans of a batch: which they are, what they are called, what is done of them already."""

from __future__ import annotations

import glob
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import NO_MEMORY, HushporeError, InputError, OutputError
from hushpore.base.partial import remove_partial
from hushpore.device.memory import is_out_of_memory
from hushpore.io.folders import natural_key
from hushpore.io.target import require_apart, require_result
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.result_folder import read_provenance
from hushpore.runs.source import Source, origin_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hushpore.base.settings import Settings
    from hushpore.runs.pipeline import Pipeline


@dataclass(frozen=True, eq=False)
class Task:
    """One scan of a batch, and how it is worked on."""

    name: str  # what it is called in the summary, and its result folder
    source: Source  # what is read
    folder: Path  # its result folder
    steps: Mapping[str, Settings]  # the settings of each job, in the order in which they run
    device: str  # where to run
    overwrite: bool  # whether an earlier result is replaced

    def start(self) -> Pipeline:
        """Return its job."""
        return run_pipeline(
            self.source, self.folder, self.steps, device=self.device, overwrite=self.overwrite
        )

    def provenance(self) -> dict[str, Any] | None:
        """Return the record of its result, or None where there is none yet.

        Raises OutputError if something else is in the place of the result.
        """
        is_folder = self.folder.is_dir()
        if not self.folder.exists() or (is_folder and not any(self.folder.iterdir())):
            return None
        try:
            return read_provenance(self.folder)
        except InputError as error:
            raise OutputError(
                f"{self.folder} is in the way: {error} Move it, or choose another folder."
            ) from error

    def made_by(self, provenance: dict[str, Any]) -> str:
        """Return why a record is not that of this task; empty where it is."""
        used = {job["job"]: job["settings"] for job in provenance.get("jobs", [])}
        # whether it was trusted says whether it could be read, and nothing of what was
        origin = origin_of(replace(self.source, trust=False), self.steps.values())
        if provenance.get("source") not in (origin, {**origin, "trust": True}):
            return "the scan, or a file that the settings name, is another or has changed since"
        if used != {job: settings.to_dict() for job, settings in self.steps.items()}:
            return "it was made with other settings"
        return ""

    def clean(self) -> None:
        """Remove what an earlier batch that was killed has left half-written beside the result."""
        remove_partial(self.folder)


def find_scans(patterns: Iterable[str], output: Path) -> list[Path]:
    """Return the files and folders that patterns name, in natural order, each once.

    `patterns`: paths, with wildcards where wanted: ``"scans/*/"`` for all folders in one, ``**``
    for any depth. `output`: the folder of results; it is no scan itself, nor is what it holds.
    Raises InputError if a pattern matches nothing.
    """
    found: dict[Path, None] = {}
    results = output.expanduser().resolve()
    for pattern in patterns:
        place = Path(pattern).expanduser()
        matches = [pattern] if place.exists() else glob.glob(str(place), recursive=True)
        if str(pattern).endswith(("/", "\\")):
            matches = [match for match in matches if Path(match).is_dir()]
        scans = [path for path in (Path(match).resolve() for match in matches)
                 if path != results and results not in path.parents]  # fmt: skip
        if matches and not scans:
            raise InputError(
                f"What {pattern!r} matches lies in the folder of the results, {results}, and "
                "nothing there is taken for a scan. Choose another folder for the results."
            )
        if not scans:
            raise InputError(f"Nothing matches {pattern!r}: no file and no folder of that name.")
        found |= dict.fromkeys(sorted(scans, key=natural_key))
    return list(found)


def names_of(scans: Sequence[Path]) -> list[str]:
    """Return a name for each scan that no other has: its own, with its folder's where needed.

    >>> names_of([Path("/a/one.tif"), Path("/a/scan"), Path("/b/scan")])
    ['one', 'a_scan', 'b_scan']
    """
    names = [scan.name if scan.is_dir() else scan.stem or scan.name for scan in scans]
    shared = {name for name, number in Counter(map(str.casefold, names)).items() if number > 1}
    names = [
        f"{scan.parent.name}_{name}" if name.casefold() in shared else name
        for scan, name in zip(scans, names, strict=True)
    ]
    # a number must not make the name of another scan, whether before or after this one
    taken, met, unique = {name.casefold() for name in names}, set[str](), []
    for name in names:
        chosen = name
        if name.casefold() in met:
            numbered = (f"{name}_{number}" for number in count(2))
            chosen = next(each for each in numbered if each.casefold() not in taken)
        met.add(name.casefold())
        taken.add(chosen.casefold())
        unique.append(chosen)
    return unique


def plan(
    patterns: Iterable[str],
    output: Path,
    steps: Mapping[str, Settings],
    *,
    reading: Source | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> dict[Task, bool]:
    """Return the tasks of a batch in the order of their scans, and whether each is done already.

    `patterns`, `output`: as for `find_scans`. `steps`, `device`, `overwrite`: of each `Task`.
    `reading`: how scans are read, whatever its path.
    Raises InputError if a pattern matches nothing; OutputError if there are results of other scans
    or other settings, and they may not be replaced.
    """
    scans = find_scans(patterns, output)
    of_each = {
        scan: {job: settings_for(settings, scan) for job, settings in steps.items()}
        for scan in scans
    }
    # what goes with another scan is none itself
    beside = {
        getattr(settings, opt.name)
        for own in of_each.values()
        for settings in own.values()
        for opt in settings.options()
        if opt.auxiliary
    }
    scans = [scan for scan in scans if str(scan) not in beside]
    tasks: dict[Task, bool] = {}
    outdated = []
    require_apart([output], scans)
    for scan, name in zip(scans, names_of(scans), strict=True):
        folder = output / name
        source = Source(str(scan)) if reading is None else replace(reading, path=str(scan))
        task = Task(name, source, folder, of_each[scan], device, overwrite)
        provenance = task.provenance()
        why = task.made_by(provenance) if provenance is not None else ""
        tasks[task] = provenance is not None and not why
        if why and not overwrite:
            outdated.append(f"{name}: {why}")
        elif why:
            require_result(folder)
    if outdated:
        more = f", and {len(outdated) - 3} more" if len(outdated) > 3 else ""
        raise OutputError(
            f"{output} holds results that do not belong to this batch ({'; '.join(outdated[:3])}"
            f"{more}). Choose another folder, or allow overwriting to make these again."
        )
    return tasks


def explained(error: BaseException) -> str:
    """Return an error in the user's words, on one line."""
    if isinstance(error, HushporeError):
        return " ".join(str(error).split())
    if is_out_of_memory(error):
        return NO_MEMORY
    return f"Unexpected {type(error).__name__}: {' '.join(str(error).split())}"
