"""Results in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError, MissingPackageError
from hushpore.io.export.mesh import pore_surface, write_mesh
from hushpore.io.export.network import write_network
from hushpore.io.export.vtk import write_vti, write_vtp
from hushpore.io.target import check_target, new_file
from hushpore.runs.pore_result import open_result

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import pandas as pd

    from hushpore.runs.pore_result import PoreResult, ResultLike

#: What can be written, and how the names of its files end.
FORMATS: dict[str, tuple[str, ...]] = {
    "openpnm": (".csv", ".npz"),
    "vtk": (".vti", ".vtp"),
    "stl": (".stl",),
    "ply": (".ply",),
    "parquet": (".parquet",),
}


def export(
    result: ResultLike,
    path: str | os.PathLike[str],
    to: str = "",
    *,
    labels: Sequence[int] | None = None,
    apart: bool = False,
    overwrite: bool = False,
) -> list[Path]:
    """Write a pore result in a format of another program.

    Parameters
    ----------
    result : Pores, str or path-like
        What `hushpore.segment_pores` returns, or a result folder.
    path : str or path-like
        The file to write. Without an ending that `to` knows, it gets one; of ``"vtk"`` and
        ``"parquet"`` both files are written then.
    to : str, optional
        ``"openpnm"``: the network for OpenPNM, ``.csv`` or ``.npz``
        (`hushpore.io.export.network.write_network`). ``"vtk"``: for ParaView, labels as ``.vti``,
        network as ``.vtp``. ``"stl"``, ``"ply"``: the surface of the pores. ``"parquet"``: both
        tables, ``<name>_pores.parquet`` and ``<name>_throats.parquet``. By default what the ending
        says.
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
    target = Path(path).expanduser()
    to = to or _format_of(target)
    if to not in FORMATS:
        raise InputError(
            f"There is no format {to!r} to export to. Available: {', '.join(FORMATS)}."
        )
    if to not in ("stl", "ply") and (labels is not None or apart):
        raise InputError("Pores are chosen or kept apart in surfaces only: stl and ply.")
    plan = _plan(target, to)
    for file in plan:
        check_target(file, overwrite, directory=False, suffixes=FORMATS[to])
    found = open_result(result)
    if to in ("stl", "ply"):
        mesh = pore_surface(found.labels, labels, apart)
        return [write_mesh(file, mesh, found.labels.unit, overwrite) for file in plan]
    return [_WRITERS[to](file, found, overwrite) for file in plan]


def _format_of(target: Path) -> str:
    suffix = target.suffix.lower()
    fitting = [name for name, suffixes in FORMATS.items() if suffix in suffixes]
    if not fitting:
        raise InputError(
            f"The name {target.name} does not say which format is meant. Choose one of "
            f"{', '.join(FORMATS)}."
        )
    return fitting[0]


def _plan(target: Path, to: str) -> list[Path]:
    """Return the files that are to be written."""
    suffixes = FORMATS[to]
    if to == "parquet":
        stem = target.stem if target.suffix.lower() in suffixes else target.name
        return [target.with_name(f"{stem}_{name}.parquet") for name in ("pores", "throats")]
    if target.suffix.lower() in suffixes:
        return [target]
    wanted = suffixes if to == "vtk" else suffixes[:1]
    return [target.with_name(target.name + suffix) for suffix in wanted]


def _openpnm(file: Path, found: PoreResult, overwrite: bool) -> Path:
    return write_network(file, found.pores, found.throats, found.labels, overwrite)


def _vtk(file: Path, found: PoreResult, overwrite: bool) -> Path:
    if file.suffix.lower() == ".vtp":
        return write_vtp(file, found.pores, found.throats, overwrite)
    return write_vti(file, {"label": found.labels}, overwrite)


def _parquet(file: Path, found: PoreResult, overwrite: bool) -> Path:
    table: pd.DataFrame = found.throats if file.stem.endswith("_throats") else found.pores
    target = check_target(file, overwrite, directory=False, suffixes=FORMATS["parquet"])
    with new_file(target, overwrite) as part:
        try:
            table.to_parquet(part, index=False)
        except ImportError as error:
            raise MissingPackageError(
                "Parquet needs the package pyarrow: pip install hushpore[parquet]"
            ) from error
    return target


_WRITERS: dict[str, Callable[[Path, PoreResult, bool], Path]] = {
    "openpnm": _openpnm,
    "vtk": _vtk,
    "parquet": _parquet,
}
