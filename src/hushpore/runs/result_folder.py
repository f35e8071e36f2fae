"""Result folders: checking the target, writing results and further files, reading their record."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, MissingPackageError, OutputError, import_optional
from hushpore.base.events import ResultFiles, by_importance, result_text
from hushpore.base.formatting import read_text
from hushpore.base.preferences import preferred
from hushpore.base.provenance import fingerprint
from hushpore.io.export.workbook import require_rows
from hushpore.io.output_target import PROVENANCE, check_target, new_directory, require_apart
from hushpore.io.registry import EXPORTERS, exporter_by_ending
from hushpore.io.results import check_image_target, is_record, write_image, write_results
from hushpore.jobs import JOBS, check_chain, is_one_image, load
from hushpore.runs.workbook import sheets_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from hushpore.base.events import Note, Result
    from hushpore.base.volume import Volume
    from hushpore.denoising.result import Denoised
    from hushpore.patches.result import Patches


def check_result_target(
    path: str | os.PathLike[str],
    jobs: Sequence[str],
    overwrite: bool = False,
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
    others: Iterable[Path] = (),
) -> Path:
    """Check before the run that the result of jobs can be written.

    `jobs`: keys of `hushpore.jobs.JOBS`, in their order. `overwrite`: whether an earlier result may
    be replaced. `inputs`: files that are read. `others`: further files that are written.
    Returns: the absolute path.
    Raises InputError if these jobs cannot follow each other; OutputError if the path cannot be
    written, or equals, contains or lies inside an input; MissingPackageError if a workbook is
    wanted and cannot be written.
    """
    check_chain(jobs)
    if not is_one_image(jobs):
        if preferred("workbook").value:
            EXPORTERS["xlsx"].require()
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
    """Write the results of jobs in sequence atomically.

    A single image becomes a file with its record beside it, all else a folder of images, tables,
    figures and pages with ``result.json``.

    `results`: one per job, in order. `source`: how `before` was read: `ScanRecipe.to_dict` from
    before the run. `extra`: further entries of the record; its ``fingerprints`` are those of images
    that are not written.
    Returns: the file or folder.
    Raises OutputError if it cannot be written; no partial files remain.
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
    workbooks = {}
    if preferred("workbook").value:
        sheets = sheets_of(files.tables, provenance["jobs"], before.unit, before.n_spatial)
        try:
            EXPORTERS["xlsx"].require()
            require_rows(sheets)
            workbooks["result"] = sheets
        except (InputError, MissingPackageError) as error:
            provenance["notes"] = [
                *provenance.get("notes", []), f"The workbook was not written. {error}",
            ]  # fmt: skip
    report = JOBS[jobs[-1]].report
    if report:
        try:
            figures, pages = load(report)(before, files, provenance)
        except Exception as error:
            # a failed figure must not cost hours of work
            provenance["notes"] = [
                *provenance.get("notes", []),
                f"The report could not be drawn ({type(error).__name__}: {error}). All other "
                "files were written.",
            ]
    return write_results(
        path,
        images=files.images,
        tables=files.tables,
        provenance=provenance,
        figures={**files.figures, **figures},
        pages=pages,
        arrays=files.arrays,
        workbooks=workbooks,
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
    """Read the record of a result.

    `path`: the folder that holds ``result.json``, an image with its record beside it, or the JSON
    file itself.

    Raises InputError if there is no record of hushpore.
    """
    file = provenance_file(path)
    try:
        provenance = json.loads(read_text(file))
    except OSError as error:
        raise InputError(
            f"No result found in {Path(path).expanduser()}: {file.name} cannot be read "
            f"({error.strerror}). Give a folder that contains {PROVENANCE}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file} is not a record of hushpore: it is not valid JSON ({error})."
        ) from error
    if not is_record(provenance):
        raise InputError(f"{file} is not a record of hushpore: it contains no job.")
    return provenance


def provenance_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that `read_provenance` reads."""
    place = Path(path).expanduser().resolve()
    inside = place / PROVENANCE
    if inside.exists():
        return inside
    if exporter_by_ending(place, "image") is not None:
        # a Zarr image is a folder, too
        return place.with_suffix(".json")
    return inside if place.is_dir() else place


def save_model(target: Path, result: Denoised, noisy: Volume, overwrite: bool) -> None:
    """Save the trained model."""
    result.model.save(target, overwrite=overwrite)


def save_picture(target: Path, result: Denoised, noisy: Volume, overwrite: bool) -> None:
    """Draw the removed noise and the loss."""
    from hushpore.denoising.inspection import denoising_picture

    with new_file(target, overwrite) as part:
        part.write_bytes(denoising_picture(noisy, result))


def check_data_set(path: str, overwrite: bool = False) -> Path:
    """Check before the run that a data set can be written.

    Raises InputError if the name does not end in ``.npz`` or ``.zarr``; OutputError if it cannot be
    written there; MissingPackageError if Zarr is asked for and not installed.
    """
    target = Path(path).expanduser()
    if target.suffix not in (".npz", ".zarr"):
        raise InputError(f"The name of a data set must end in .npz or .zarr; got {target.name}.")
    if target.suffix == ".zarr":
        import_optional("zarr", "A data set that ends in .zarr", "zarr")
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {target}: the folder {target.parent} does not exist.")
    if target.is_dir() or (target.exists() and not overwrite):
        raise OutputError(f"{target} already exists. Choose another name.")
    return target


def save_data_set(target: Path, found: Patches, volume: Volume, overwrite: bool) -> None:
    """Write patches, their positions and features as one set of arrays.

    `target`: as `check_data_set` returned it.
    """
    arrays: dict[str, Any] = {
        "patches": found.patches,
        "corners": found.corners,
        "groups": found.groups,
        **{f"feature_{name}": values for name, values in found.features.items()},
    }
    if found.blind is not None:
        arrays |= {
            "hidden_positions": found.blind.positions,
            "hidden_originals": found.blind.originals,
            "hidden_replacements": found.blind.replacements,
        }
        if found.blind.predictions is not None:
            arrays["predictions"] = found.blind.predictions
    if target.suffix == ".npz":
        with new_file(target, overwrite) as part, part.open("wb") as file:
            np.savez_compressed(file, **arrays)
        return
    import zarr

    with new_directory(target, overwrite=False) as folder:
        group = zarr.open_group(folder, mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=values)
