"""A pore result in the formats of other programs: which of its parts goes to which writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hushpore.io.export.mesh import pore_surface, write_mesh
from hushpore.io.export.network import write_network
from hushpore.io.export.vtk import write_vti, write_vtp
from hushpore.io.target import new_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from hushpore.base.volume import Volume


class PoreResultLike(Protocol):
    """What a segmentation found, from memory or from a folder."""

    @property
    def labels(self) -> Volume:
        """The number of the pore at each voxel."""

    @property
    def pores(self) -> pd.DataFrame:
        """A row for each pore."""

    @property
    def throats(self) -> pd.DataFrame:
        """A row for each throat."""


def write_network_of(path: Path, result: PoreResultLike, *, overwrite: bool = False) -> Path:
    """Write the network for OpenPNM."""
    return write_network(path, result.pores, result.throats, result.labels, overwrite)


def write_vtk_of(path: Path, result: PoreResultLike, *, overwrite: bool = False) -> Path:
    """Write the network (``.vtp``) or the labels (``.vti``) for ParaView."""
    if path.suffix.lower() == ".vtp":
        return write_vtp(path, result.pores, result.throats, overwrite)
    return write_vti(path, {"label": result.labels}, overwrite)


def write_surface_of(
    path: Path,
    result: PoreResultLike,
    *,
    overwrite: bool = False,
    labels: Sequence[int] | None = None,
    apart: bool = False,
) -> Path:
    """Write the surface of the pores; parameters as for `pore_surface`."""
    mesh = pore_surface(result.labels, labels, apart)
    return write_mesh(path, mesh, result.labels.unit, overwrite)


def write_parquet_of(path: Path, result: PoreResultLike, *, overwrite: bool = False) -> Path:
    """Write the table that the name of the file says."""
    table = result.throats if path.stem.endswith("_throats") else result.pores
    with new_file(path, overwrite) as part:
        table.to_parquet(part, index=False)
    return path
