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
from hushpore.viewer.layers.conversion import METADATA_KEY, layer_data
from hushpore.viewer.results.pore_layer import PROFILE, THROATS, features_of

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.viewer.layers.conversion import LayerData, Placement

#: Names of the files in a result folder.
LABELS, PORES = "labels", "pores"


def labels_from_result(volume: Volume) -> LayerData | None:
    """Return a volume as the labels layer that it was saved from, or None where it is not one.

    `volume`: as read from a file. One that is called ``labels`` and lies in a result folder, beside
    ``result.json`` and ``pores.csv``, gets back its tables and its record.
    """
    source = Path(volume.source)
    in_blocks = source.name == LABELS_IN_BLOCKS
    may_be = volume.source and (volume.name == LABELS or in_blocks)
    if not may_be or volume.dtype.kind not in "iu":
        return None
    folder = source if source.is_dir() and not in_blocks else source.parent
    if not (folder / PROVENANCE).is_file() or not (folder / f"{PORES}.csv").is_file():
        return None
    import pandas as pd

    files = {name: folder / f"{name}.csv" for name in (PORES, THROATS, "profile")}
    tables = {name: pd.read_csv(file) for name, file in files.items() if file.is_file()}
    provenance = _provenance_of_pores(folder / PROVENANCE)
    values: Any = volume.data if in_blocks else volume.array()
    data, keywords, kind = layer_data(
        volume.replace(values, name=f"{folder.name} pores"),
        "labels",
        provenance=provenance or None,
        features=features_of(tables[PORES]),
    )
    known = keywords["metadata"][METADATA_KEY]
    if THROATS in tables:
        known[THROATS] = tables[THROATS]
    # where all is sample, the share of each slice (row, in 2D) that is pore is its porosity
    if provenance.get("result", {}).get("sample_voxels") == math.prod(values.shape):
        if isinstance(values, np.ndarray) or "profile" not in tables:
            shares = [np.count_nonzero(plane) / plane.size for plane in np.asarray(values)]
            known[PROFILE] = np.array(shares)
        else:
            # to read all labels from disk for it would take long
            known[PROFILE] = tables["profile"]["porosity"].to_numpy(np.float64)
    return data, keywords, kind


def layer_of_result(folder: Path, name: str, placement: Placement) -> LayerData:
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
