"""What a result is on disk, whichever job made it, and reading back how it was made."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.events import ResultFiles, by_importance, result_text
from hushpore.base.provenance import fingerprint
from hushpore.base.safe_text import read_text
from hushpore.io.output_target import PROVENANCE, check_target, require_apart
from hushpore.io.registry import exporter_by_ending
from hushpore.io.results import check_image_target, is_record, write_image, write_results
from hushpore.jobs import JOBS, check_chain, is_one_image, load

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from hushpore.base.events import Note, Result
    from hushpore.base.volume import Volume


def check_result_target(
    path: str | os.PathLike[str],
    jobs: Sequence[str],
    overwrite: bool = False,
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
    others: Iterable[Path] = (),
) -> Path:
    """Check that the result of some jobs can be written, before work goes into it.

    `jobs`: keys of `hushpore.jobs.JOBS`, in their order. `overwrite`: whether an earlier result may
    be replaced. `inputs`: what is read for it. `others`: what is written beside it.
    Returns: the place.
    Raises InputError if these jobs cannot follow each other; OutputError if nothing can be written
    there, or it is, contains or lies inside an input.
    """
    check_chain(jobs)
    if not is_one_image(jobs):
        target = check_target(path, overwrite)
        require_apart([target, *others], inputs)
    else:
        target = check_image_target(path, overwrite)
        require_apart([target, target.with_suffix(".json"), *others], inputs)
    return target


def write_result(
    path: str | os.PathLike[str],
    results: Sequence[Result],
    before: Volume,
    *,
    source: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write what jobs have made, one after another, complete or not at all.

    An image by itself becomes a file with its provenance beside it. All else becomes a folder of
    images, tables, figures and pages, with ``result.json``.

    `results`: of each job, in their order. `source`: how `before` was read, so that it can be read
    again: `ScanRecipe.to_dict`, as it was then. `extra`: what else the record says; its
    ``fingerprints`` are of images that are not written.
    Returns: the file or folder.
    Raises OutputError if it cannot be written; nothing is left behind then.
    """
    extra = dict(extra or {})
    others = extra.pop("fingerprints", {})
    jobs = [result.provenance["job"] for result in results]
    origin = {"source": dict(source or {})}
    files = _merged([result.files() for result in results])
    prints = {name: fingerprint(image.data) for name, image in files.images.items()}
    text = result_text(results[-1].headline, all_remarks(results))
    if is_one_image(jobs):
        (image,) = files.images.values()
        made = {**results[0].provenance, **origin, "fingerprints": {"image": prints.popitem()[1]}}
        notes = [*made.get("notes", []), *extra.get("notes", [])]
        record = {**made, **text, **extra, "notes": notes}
        return write_image(path, image, provenance=record, overwrite=overwrite)
    provenance = {
        **text,
        **origin,
        "jobs": [result.provenance for result in results],
        "fingerprints": {**others, **prints},
        **files.provenance,
        **extra,
    }
    figures: Mapping[str, bytes] = {}
    pages: Mapping[str, str] = {}
    report = JOBS[jobs[-1]].report
    if report:
        try:
            figures, pages = load(report)(before, files, provenance)
        except Exception as error:
            # hours of work are not lost for a picture of them
            provenance["notes"] = [
                *provenance.get("notes", []),
                "The report could not be drawn, and everything else was written "
                f"({type(error).__name__}: {error}).",
            ]
    return write_results(
        path,
        images=files.images,
        tables=files.tables,
        provenance=provenance,
        figures={**files.figures, **figures},
        pages=pages,
        arrays=files.arrays,
        overwrite=overwrite,
    )


def all_remarks(results: Sequence[Result]) -> tuple[Note, ...]:
    """Return the remarks on the results of jobs in sequence, the most important first."""
    return by_importance(remark for result in reversed(results) for remark in result.remarks)


def _merged(parts: Sequence[ResultFiles]) -> ResultFiles:
    merged: dict[str, dict[str, Any]] = {}
    for part in parts:
        for each in fields(part):
            merged.setdefault(each.name, {}).update(getattr(part, each.name))
    return ResultFiles(**merged)


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read how a result was made.

    `path`: the folder that holds ``result.json``, an image with its record beside it, or the JSON
    file itself.

    Raises InputError if there is none, or it is not one of hushpore.
    """
    file = provenance_file(path)
    try:
        provenance = json.loads(read_text(file))
    except OSError as error:
        raise InputError(
            f"There is no result in {Path(path).expanduser()}: {file.name} cannot be read "
            f"({error.strerror}). Give a folder that holds {PROVENANCE}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not a record: it is no JSON ({error}).") from error
    if not is_record(provenance):
        raise InputError(f"{file} is not a record of hushpore: it names no job.")
    return provenance


def provenance_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that `read_provenance` reads."""
    place = Path(path).expanduser().resolve()
    inside = place / PROVENANCE
    if inside.exists():
        return inside
    if exporter_by_ending(place, "image") is not None:
        # an image in blocks is a folder, too
        return place.with_suffix(".json")
    return inside if place.is_dir() else place
