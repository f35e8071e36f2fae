"""The files of a result on their way back into the window: labels with their tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.io import describe
from hushpore.io.target import PROVENANCE
from hushpore.runs.pore_result import LABELS_IN_BLOCKS
from hushpore.viewer.layers.conversion import KEY, layer_data
from hushpore.viewer.results.pore_layer import PROFILE, THROATS, features_of

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.viewer.layers.conversion import Placement

#: Names of the files in a result folder.
LABELS, PORES = "labels", "pores"


def labels_from_result(volume: Volume) -> tuple[Any, dict[str, Any], str] | None:
    """Return a volume as the labels layer that it was saved from, or None where it is not one.

    `volume`: as read from a file. One that is called ``labels`` and lies in a result folder, beside
    ``result.json`` and ``pores.csv``, gets back its tables and its record.
    """
    if volume.dtype.kind not in "iu" or not volume.source:
        return None
    source = Path(volume.source)
    in_blocks = source.name == LABELS_IN_BLOCKS
    if volume.name != LABELS and not in_blocks:
        return None
    folder = source if source.is_dir() and not in_blocks else source.parent
    if not (folder / PROVENANCE).is_file() or not (folder / f"{PORES}.csv").is_file():
        return None
    provenance = _provenance_of_pores(folder / PROVENANCE)
    values = volume.data if in_blocks else volume.array()
    labels = volume.replace(values, name=f"{folder.name} pores")
    table = _table(folder / f"{PORES}.csv")
    data, keywords, kind = layer_data(
        labels, "labels", provenance=provenance or None, features=features_of(table)
    )
    known = keywords["metadata"][KEY]
    if (folder / f"{THROATS}.csv").is_file():
        known[THROATS] = _table(folder / f"{THROATS}.csv")
    if provenance.get("result", {}).get("sample_voxels") == math.prod(labels.shape):
        known[PROFILE] = _profile_of(folder, labels)
    return data, keywords, kind


def layer_of_result(
    folder: Path, name: str, placement: Placement
) -> tuple[Any, dict[str, Any], str]:
    """Return the labels of a result folder that a cluster has written; they stay on disk."""
    (volume,) = describe(folder / LABELS_IN_BLOCKS)
    found = labels_from_result(volume)
    assert found is not None
    data, keywords, kind = found
    return data, {**keywords, **placement.kwargs(), "name": name}, kind


def _provenance_of_pores(path: Path) -> dict[str, Any]:
    """Return the record of the segmentation, of all jobs of a result."""
    try:
        jobs = json.loads(path.read_text(encoding="utf-8")).get("jobs", [])
    except (ValueError, AttributeError):
        return {}
    found = [job for job in jobs if isinstance(job, dict) and job.get("job") == "pores"]
    return found[-1] if found else {}


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(path)


def _profile_of(folder: Path, labels: Volume) -> npt.NDArray[np.float64]:
    file = folder / "profile.csv"
    if isinstance(labels.data, np.ndarray) or not file.is_file():
        return _profile(labels.array())
    # to read all labels from disk for it would take long
    porosity: npt.NDArray[np.float64] = _table(file)["porosity"].to_numpy(np.float64)
    return porosity


def _profile(labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Share of each slice (row, in 2D) that is pore, of a volume that is all sample."""
    pore = np.array([np.count_nonzero(plane) for plane in labels], np.float64)
    pore /= labels[0].size
    return pore
