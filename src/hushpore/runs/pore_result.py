"""Pore results: opening them from memory or a folder, and exporting them to other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import read_table
from hushpore.io import describe
from hushpore.io.export import PoreResult
from hushpore.io.output_target import check_target, require_apart
from hushpore.io.registry import exporter_by_ending, exporters_of
from hushpore.jobs import PORE_JOBS
from hushpore.runs.result_folder import read_provenance
from hushpore.runs.workbook import sheets_of_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores

    #: A result folder, or what `hushpore.segment_pores` or `open_result` returns.
    ResultLike: TypeAlias = str | os.PathLike[str] | Pores | PoreResult

#: Labels in a result folder: as one file, or in blocks if they were written on a cluster.
LABELS, LABELS_IN_BLOCKS = "labels.tif", "labels.ome.zarr"

#: Columns of names, for example of phases, which may look like numbers.
_NAMES = ("name", "name_1", "name_2")

#: Columns of phase numbers in the tables of regions and contacts.
_NUMBERS = ("phase", "phase_1", "phase_2")


def read_result_table(path: Path) -> pd.DataFrame:
    """Return a table of a result, which may come from somebody else.

    Names are read as text. Columns of a table without rows have the types that the job gives them.
    Raises InputError if it is not a table.
    """
    try:
        table = read_table(path)
        if named := [name for name in _NAMES if name in table]:
            # in columns of names "1" and "NA" are text, elsewhere a number and a gap
            table[named] = read_table(path, usecols=named, dtype=str, keep_default_na=False)[named]
    except (OSError, ValueError) as error:
        raise InputError(
            f"The table {path.name} in {path.parent} cannot be read: {error}. Remove it to open "
            "only the images, or run the job again."
        ) from error
    if len(table):
        return table
    # a CSV file does not give the type of an empty column
    from hushpore.pores.tables.measures import columns_without_rows

    types = {name: column.dtype for name, column in columns_without_rows().items()}
    types |= dict.fromkeys(_NUMBERS, np.dtype(np.int64))
    numbers = table.columns.difference(_NAMES)
    return table.astype({name: types.get(name, np.float64) for name in numbers})


def labels_file(folder: Path) -> Path:
    """Return the path of the labels in a result folder, which may not exist."""
    in_blocks = folder / LABELS_IN_BLOCKS
    return in_blocks if in_blocks.is_dir() else folder / LABELS


def open_result(given: ResultLike | Phases) -> PoreResult:
    """Return a pore result, read from its folder if a path is given.

    `given`: a finished segmentation, its folder, or the ``result.json`` in it.
    Returns: labels, tables and record.
    Raises InputError if the folder contains no complete pore result.
    """
    if isinstance(given, PoreResult):
        return given
    if not isinstance(given, str | os.PathLike):
        found = cast("Pores", given)
        name = str(found.provenance["settings"]["report_form"])
        form = None if name == "none" else found.form(name)
        return PoreResult(
            found.volume.name, found.labels_volume, found.pores, found.throats, found.provenance,
            form, sheets_of_result,
        )  # fmt: skip
    path = Path(given).expanduser()
    provenance = read_provenance(path)
    folder = path if path.is_dir() else path.parent
    made = [job for job in provenance.get("jobs", []) if job.get("job") in PORE_JOBS]
    needed = [folder / "pores.csv", folder / "throats.csv", labels_file(folder)]
    missing = [file.name for file in needed if not file.exists()]
    if missing or not made:
        what = f"missing: {', '.join(missing)}" if missing else "no segmentation in its record"
        raise InputError(
            f"{folder} is not a complete pore result ({what}). Create one with: "
            "hushpore pores SCAN -o FOLDER"
        )
    pores, throats = (read_result_table(file) for file in needed[:2])
    _require_figures(folder, made[-1], pores, throats)
    file = folder / "form.csv"
    form = read_result_table(file) if file.is_file() else None
    labels = describe(needed[2])[0]
    name = folder.resolve().name
    return PoreResult(name, labels, pores, throats, made[-1], form, sheets_of_result)


def open_regions(given: ResultLike | Phases) -> PoreResult:
    """Return a pore result as `open_result` does, or the regions of phases in its form.

    Raises InputError if there is neither, or phases were measured without regions.
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
        name = folder.resolve().name
        return PoreResult(name, labels, regions, contacts, made[0], sheets=sheets_of_result)
    if isinstance(given, PoreResult) or given.provenance["job"] != "phases":
        return open_result(given)
    found = cast("Phases", given)
    if found.regions is None:
        raise _without_regions(found.volume.name)
    tables = found.region_table, found.region_contacts
    return PoreResult(
        found.volume.name, found.regions_volume, *tables, found.provenance, sheets=sheets_of_result
    )


def _without_regions(name: str) -> InputError:
    return InputError(
        f"The phases of {name} were measured without regions, which networks and surfaces need. "
        "Measure them again with: hushpore phases SCAN -o FOLDER --regions"
    )


def _require_figures(
    folder: Path, made: dict[str, Any], pores: pd.DataFrame, throats: pd.DataFrame
) -> None:
    """Raise InputError if tables contain text, or another number of pores than the record."""
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
            f"The tables in {folder} were edited or belong to another result: they contain {what}, "
            f"but the record lists {count} pores. Run the job again."
        )


# ---- export


def export(
    result: ResultLike | Phases,
    path: str | os.PathLike[str],
    to: str = "",
    *,
    labels: Sequence[int] | None = None,
    apart: bool = False,
    overwrite: bool = False,
) -> list[Path]:
    """Export a pore result, or the regions of phases, to another program.

    Parameters
    ----------
    result : Pores, Phases, str or path-like
        Result of `hushpore.segment_pores`, or of `hushpore.measure_phases` with
        ``regions=True``, or a result folder.
    path : str or path-like
        The file to write. A missing suffix is added; ``"vtk"`` and ``"parquet"`` then write two
        files.
    to : str, optional
        A format of `hushpore.io.registry.EXPORTERS` for pores: ``"openpnm"``,
        ``"vtk"`` (labels as ``.vti``, network as ``.vtp``), ``"stl"``, ``"ply"``, ``"parquet"``
        (``<name>_pores.parquet`` and ``<name>_throats.parquet``) or ``"xlsx"`` (one workbook). By
        default from the suffix.
    labels : sequence of int, optional
        For a surface: labels of the pores; by default all.
    apart : bool, optional
        For a surface: close the surface of each pore separately.
    overwrite : bool, optional
        Replace existing files.

    Returns
    -------
    list of pathlib.Path
        The written files.

    Raises
    ------
    InputError
        If the format is unknown or does not fit the result.
    MissingPackageError
        If an optional package is missing; gives the command that installs it.
    OutputError
        If a file cannot be written; no partial files remain.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import hushpore
    >>> void = np.zeros((9, 9, 9), bool)
    >>> void[3:6, 3:6, 3:6] = True
    >>> found = hushpore.segment_pores(void, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in hushpore.export(found, Path(folder) / "pore.stl")]
    ['pore.stl']
    """
    target, formats = Path(path).expanduser(), exporters_of("pores")
    exporter = formats.get(to) if to else exporter_by_ending(target, "pores")
    if exporter is None:
        why = (
            f"Unknown export format {to!r}. Available:"
            if to
            else f"The suffix of {target.name} does not determine the format. Choose one of"
        )
        raise InputError(f"{why} {', '.join(formats)}.")
    options: dict[str, Any] = {}
    if labels is not None:
        options["labels"] = labels
    if apart:
        options["apart"] = True
    if not set(options) <= set(exporter.options):
        surfaces = " and ".join(name for name, each in formats.items() if each.options)
        raise InputError(f"The options labels and apart apply to surfaces only ({surfaces}).")
    files = exporter.files(target)
    for file in files:
        check_target(file, overwrite, suffixes=exporter.suffixes)
    if isinstance(result, str | os.PathLike):
        require_apart(files, [result], "exported")
    exporter.require()
    found = open_regions(result)
    return [exporter.write(file, found, overwrite, **options) for file in files]
