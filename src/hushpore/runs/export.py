"""Results in the formats of other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.io.registry import exporter_by_ending, exporters_of
from hushpore.io.target import check_target, require_apart
from hushpore.runs.pore_result import open_regions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.pores.phases.result import Phases
    from hushpore.runs.pore_result import ResultLike


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
