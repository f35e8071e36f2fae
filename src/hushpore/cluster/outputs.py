"""What a result holds on disk: labels, made empty to be filled in blocks, and tables."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.io.target import PROVENANCE
from hushpore.io.zarr.image import ZarrImage, import_zarr
from hushpore.runs.pore_result import LABELS_IN_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Names in a result.
FILES = [LABELS_IN_BLOCKS, "pores.csv", "profile.csv", PROVENANCE, "throats.csv"]


def open_labels(content: Path, volume: Volume) -> ZarrImage:
    """Return the labels of a volume, made empty where there are none; to be written in blocks."""
    place = content / LABELS_IN_BLOCKS
    if not place.is_dir():
        # there only when all that is to be known of it is
        part = content / f"{LABELS_IN_BLOCKS}.part"
        shutil.rmtree(part, ignore_errors=True)
        empty = np.broadcast_to(np.zeros(1, np.int32), volume.shape)
        name = f"{volume.name} pores"
        labels = volume.replace(empty, name=name, metadata={"labels": True})
        group = import_zarr().open_group(str(part), mode="w", zarr_format=3)
        ZarrImage.create(group, labels, name, are_labels=True)
        part.rename(place)
    return ZarrImage.open(place)


def write_tables(
    content: Path,
    volume: Volume,
    pores: Mapping[str, npt.NDArray[Any]],
    throats: Mapping[str, npt.NDArray[Any]],
    sample: npt.NDArray[np.int64],
    pore_voxels: npt.NDArray[np.int64],
) -> None:
    """Write the tables of a result.

    Parameters
    ----------
    content : Path
        Folder of the result.
    volume : Volume
        The input, for the places of its slices.
    pores, throats : mapping
        Columns, see `hushpore.pores.measures`.
    sample, pore_voxels : numpy.ndarray
        (z,), int64: voxels of each slice that are of the sample, and that are pore.
    """
    import pandas as pd

    slices = np.arange(sample.size)
    porosity = np.full(sample.shape, np.nan)
    np.divide(pore_voxels, sample, out=porosity, where=sample > 0)
    position = volume.origin[0] + volume.spacing[0] * slices
    profile = {"slice": slices, "position": position, "porosity": porosity}
    for name, table in (("pores", pores), ("throats", throats), ("profile", profile)):
        path = content / f"{name}.csv"
        pd.DataFrame(table).to_csv(path, index=False, lineterminator="\n", encoding="utf-8")
