"""A pore result, as it came out of the job or out of its folder, and written for other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.safe_text import read_table
from hushpore.io import describe
from hushpore.io.export import PoreResult
from hushpore.io.output_target import check_target, require_apart
from hushpore.io.registry import exporter_by_ending, exporters_of
from hushpore.runs.result_folder import read_provenance

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores

    #: A result folder, what `hushpore.segment_pores` returns, or what is known of either.
    ResultLike: TypeAlias = str | os.PathLike[str] | Pores | PoreResult

#: Labels in a result folder: as one file, or where they were written in blocks, on a cluster.
LABELS, LABELS_IN_BLOCKS = "labels.tif", "labels.ome.zarr"

#: Columns of tables that hold names, of phases among others, which may look like numbers.
_NAMES = ("name", "name_1", "name_2")

#: Columns of tables of regions and contacts that hold numbers of phases.
_NUMBERS = ("phase", "phase_1", "phase_2")


def read_result_table(path: Path) -> pd.DataFrame:
    """Return a table of a result, which may come from others.

    Names are text, whatever they are. Without rows all else has the types that the job gives it.
    Raises InputError if it is none.
    """
    try:
        table = read_table(path)
        if named := [name for name in _NAMES if name in table]:
            # "1" and "NA" are names, and only of other columns a number and a gap
            table[named] = read_table(path, usecols=named, dtype=str, keep_default_na=False)[named]
    except (OSError, ValueError) as error:
        raise InputError(
            f"The table {path.name} in {path.parent} cannot be read: {error}. Take it away to open "
            "the images alone, or make the result again."
        ) from error
    if len(table):
        return table
    # a column without values has no type in a CSV file
    from hushpore.pores.tables.measures import columns_without_rows

    types = {name: column.dtype for name, column in columns_without_rows().items()}
    types |= dict.fromkeys(_NUMBERS, np.dtype(np.int64))
    numbers = table.columns.difference(_NAMES)
    return table.astype({name: types.get(name, np.float64) for name in numbers})


def labels_file(folder: Path) -> Path:
    """Return where the labels of a result folder are, if it has any."""
    in_blocks = folder / LABELS_IN_BLOCKS
    return in_blocks if in_blocks.is_dir() else folder / LABELS


def open_result(given: ResultLike | Phases) -> PoreResult:
    """Return a result, read from its folder where a folder is given.

    `given`: a finished segmentation; or its folder, or the ``result.json`` in it.
    Returns: labels, tables and record.
    Raises InputError if there is no complete pore result there.
    """
    if isinstance(given, PoreResult):
        return given
    if not isinstance(given, str | os.PathLike):
        found = cast("Pores", given)
        return PoreResult(
            found.volume.name, found.labels_volume, found.pores, found.throats, found.provenance
        )
    path = Path(given).expanduser()
    provenance = read_provenance(path)
    folder = path if path.is_dir() else path.parent
    made = [job for job in provenance.get("jobs", []) if job.get("job") == "pores"]
    needed = [folder / "pores.csv", folder / "throats.csv", labels_file(folder)]
    missing = [file.name for file in needed if not file.exists()]
    if missing or not made:
        what = f"{', '.join(missing)} missing" if missing else "its record names no segmentation"
        raise InputError(
            f"{folder} is not a complete pore result ({what}). Make one with: "
            "hushpore pores SCAN -o FOLDER"
        )
    pores, throats = (read_result_table(file) for file in needed[:2])
    _require_figures(folder, made[-1], pores, throats)
    return PoreResult(folder.resolve().name, describe(needed[2])[0], pores, throats, made[-1])


def open_regions(given: ResultLike | Phases) -> PoreResult:
    """Return a result as `open_result` does, and the regions of phases as if they were pores.

    Raises InputError if there is neither; or phases were not parted into regions.
    """
    if isinstance(given, str | os.PathLike):
        path = Path(given).expanduser()
        made = read_provenance(path).get("jobs", [])[-1:]
        if not made or made[0].get("job") != "phases":
            return open_result(given)
        folder = path if path.is_dir() else path.parent
        files = [folder / name for name in ("regions.csv", "region_contacts.csv", "regions.tif")]
        if not all(file.is_file() for file in files):
            raise _without_regions(folder.name)
        regions, contacts = (read_result_table(file) for file in files[:2])
        labels = describe(files[2])[0]
        return PoreResult(folder.resolve().name, labels, regions, contacts, made[0])
    if isinstance(given, PoreResult) or given.provenance["job"] != "phases":
        return open_result(given)
    found = cast("Phases", given)
    if found.regions is None:
        raise _without_regions(found.volume.name)
    tables = found.region_table, found.region_contacts
    return PoreResult(found.volume.name, found.regions_volume, *tables, found.provenance)


def _without_regions(name: str) -> InputError:
    return InputError(
        f"The phases of {name} are not split into regions, of which a network or a surface is "
        "made. Measure them again with: hushpore phases SCAN -o FOLDER --regions"
    )


def _require_figures(
    folder: Path, made: dict[str, Any], pores: pd.DataFrame, throats: pd.DataFrame
) -> None:
    """Raise InputError where tables hold what is no figure, or other pores than the record."""
    texts = [
        str(name)
        for table in (pores, throats)
        for name, column in table.items()
        if len(table) and column.dtype.kind not in "biuf"
    ]
    totals = made.get("result")
    count = totals.get("count") if isinstance(totals, dict) else None
    if texts or (isinstance(count, int) and count != len(pores)):
        what = f"text in the column {texts[0][:60]}" if texts else f"{len(pores):,} rows"
        raise InputError(
            f"The tables in {folder} were changed or are of another result: they hold {what}, and "
            f"its record tells of {count} pores. Make the result again."
        )


# ---- for other programs


def export(
    result: ResultLike | Phases,
    path: str | os.PathLike[str],
    to: str = "",
    *,
    labels: Sequence[int] | None = None,
    apart: bool = False,
    overwrite: bool = False,
) -> list[Path]:
    """Write a pore result, or the regions of phases, in a format of another program.

    Parameters
    ----------
    result : Pores, Phases, str or path-like
        What `hushpore.segment_pores` returns, or `hushpore.measure_phases` with ``regions=True``;
        or a result folder.
    path : str or path-like
        The file to write. Without an ending that `to` knows, it gets one; of ``"vtk"`` and
        ``"parquet"`` both files are written then.
    to : str, optional
        A format of `hushpore.io.registry.EXPORTERS` that is made of pores: ``"openpnm"``,
        ``"vtk"`` (labels as ``.vti``, network as ``.vtp``), ``"stl"``, ``"ply"`` or ``"parquet"``
        (``<name>_pores.parquet`` and ``<name>_throats.parquet``). By default what the ending says.
    labels : sequence of int, optional
        For a surface: the pores that are wanted; by default all.
    apart : bool, optional
        For a surface: whether each pore has a closed one of its own.
    overwrite : bool, optional
        Replace existing files.

    Returns
    -------
    list of pathlib.Path
        The files that were written.

    Raises
    ------
    InputError
        If the format is not known, or the result does not fit it.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    OutputError
        If it cannot be written; nothing is left half-written.
    """
    target, formats = Path(path).expanduser(), exporters_of("pores")
    exporter = formats.get(to) if to else exporter_by_ending(target, "pores")
    if exporter is None:
        why = (
            f"There is no format {to!r} to export to. Available:"
            if to
            else f"The name {target.name} does not say which format is meant. Choose one of"
        )
        raise InputError(f"{why} {', '.join(formats)}.")
    options: dict[str, Any] = {}
    if labels is not None:
        options["labels"] = labels
    if apart:
        options["apart"] = True
    if not set(options) <= set(exporter.options):
        surfaces = " and ".join(name for name, each in formats.items() if each.options)
        raise InputError(f"Pores are chosen or kept apart in surfaces only: {surfaces}.")
    files = exporter.files(target)
    for file in files:
        check_target(file, overwrite, suffixes=exporter.suffixes)
    if isinstance(result, str | os.PathLike):
        require_apart(files, [result], "exported")
    exporter.require()
    found = open_regions(result)
    return [exporter.write(file, found, overwrite, **options) for file in files]
