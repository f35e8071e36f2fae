"""Opening of result folders as layers: with tables, record, and the data for merging."""

from __future__ import annotations

import dataclasses
import json
import math
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import read_text
from hushpore.base.provenance import fingerprint
from hushpore.io import describe
from hushpore.io.guards import limits_for
from hushpore.io.output_target import PROVENANCE
from hushpore.jobs import JOBS, PORE_JOBS
from hushpore.pores.phases.result import Phases
from hushpore.pores.result import MERGING, thickness_title
from hushpore.pores.transport.result import is_map, map_title
from hushpore.runs.pore_result import LABELS_IN_BLOCKS, read_result_table
from hushpore.viewer.layers.conversion import METADATA_KEY, READ, UPSTREAM, layer_data, name_of
from hushpore.viewer.layers.layer_files import beside
from hushpore.viewer.phases import labels_layer, regions_layer
from hushpore.viewer.phases import thickness_layer as phase_thickness_layer
from hushpore.viewer.results.pore_layer import (
    ALONG,
    PROFILE,
    RESULT,
    REV,
    THICKNESS,
    THROATS,
    TRANSPORT,
    features_of,
    map_layer,
    thickness_layer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.viewer.layers.conversion import LayerData, Placement


#: Names of the files in a result folder.
LABELS, PORES = "labels", "pores"
#: Tables that layers keep as they are, by the names of their files.
_KEYS = {THICKNESS: THICKNESS, REV: REV, TRANSPORT: ALONG}

_THICKNESSES = {f"{phase}_thickness": phase for phase in ("void", "solid")}


def labels_from_result(volume: Volume) -> LayerData | None:
    """Return a volume as the labels layer that it was saved from, or None if it is not one.

    `volume`: as read from a file. ``labels`` in a result folder, beside ``result.json`` and
    ``pores.csv``, gets its tables and record, and the data for merging if they were stored; so do
    labels saved as a single file, from the files beside it with the same name.
    """
    source = Path(volume.source)
    in_blocks = source.name == LABELS_IN_BLOCKS
    if not volume.source or volume.dtype.kind not in "iu":
        return None
    folder = source if source.is_dir() and not in_blocks else source.parent
    of_folder = volume.name == LABELS or in_blocks
    file: Callable[[str], Path]
    if of_folder and (folder / PROVENANCE).is_file() and (folder / f"{PORES}.csv").is_file():
        record, name, file = folder / PROVENANCE, name_of(folder.name, "pores"), folder.joinpath
    elif beside(source, f"{PORES}.csv").is_file():
        record, name, file = _record_of(source), volume.name, partial(beside, source)
    else:
        return None
    jobs = jobs_in(record)
    files = {name: file(f"{name}.csv") for name in (PORES, THROATS, "profile", *_KEYS)}
    tables = {name: read_result_table(each) for name, each in files.items() if each.is_file()}
    made = [job for job in jobs if job.get("job") in PORE_JOBS]
    provenance = made[-1] if made else {}
    values: Any = volume.data if in_blocks else volume.array()
    labels = volume.replace(values, name=name)
    shown = {name: tables[name] for name in (PORES, THROATS) if name in tables}
    result, problem = _result(labels, file(f"{MERGING}.npz"), provenance, shown)
    if result is not None:
        labels = labels.replace(result.labels)
    data, keywords, kind = layer_data(
        dataclasses.replace(labels, notes=[*labels.notes, *problem]),
        "labels",
        provenance=provenance or None,
        features=features_of(tables[PORES]),
    )
    known = keywords["metadata"][METADATA_KEY]
    known[UPSTREAM] = tuple(jobs[: jobs.index(provenance)]) if provenance else ()
    known[READ] = source_in(record)
    if THROATS in tables:
        known[THROATS] = tables[THROATS]
    known |= {key: tables[name] for name, key in _KEYS.items() if name in tables}
    if result is not None:
        known |= {RESULT: result, PROFILE: result.porosity_profile}
        return data, keywords, kind
    along = tables["profile"].get("porosity") if "profile" in tables else None
    if along is not None and len(along) == len(values):
        known[PROFILE] = along.to_numpy(np.float64)
    elif provenance.get("result", {}).get("sample_voxels") == math.prod(values.shape):
        # without exterior, the share of labelled voxels of a slice (row, in 2D) is its porosity
        shares = [np.count_nonzero(plane) / plane.size for plane in np.asarray(values)]
        known[PROFILE] = np.array(shares)
    return data, keywords, kind


def is_thickness(volume: Volume) -> bool:
    """Whether a volume is a local thickness or a map of transport in a result folder."""
    if volume.source and is_map(volume.name):
        return (folder_of(volume) / f"{TRANSPORT}.csv").is_file()
    files = folder_of(volume) / f"{THICKNESS}.csv", folder_of(volume) / PROVENANCE
    return bool(volume.source) and volume.name in _THICKNESSES and all(map(Path.is_file, files))


def thickness_from_result(volume: Volume) -> LayerData | None:
    """Return a local thickness or a map as the layer that it was saved from; None for others.

    `volume`: as read from a file.
    """
    if not is_thickness(volume):
        return None
    folder = folder_of(volume)
    if is_map(volume.name):
        named = volume.replace(volume.data, name=name_of(folder.name, map_title(volume.name)))
        return map_layer(named, (jobs_in(folder / PROVENANCE) or [{}])[-1])
    phase = _THICKNESSES[volume.name]
    table = read_result_table(folder / f"{THICKNESS}.csv")
    largest = float(table.loc[table["phase"] == phase, "thickness_to"].max())
    made = [job for job in jobs_in(folder / PROVENANCE) if job.get("job") in PORE_JOBS]
    if not made or not math.isfinite(largest):
        return None
    named = volume.replace(volume.data, name=name_of(folder.name, thickness_title(phase)))
    return thickness_layer(named, largest, made[-1])


def folder_of(volume: Volume) -> Path:
    """Return the folder of a volume: its source, or the folder of its file."""
    source = Path(volume.source)
    return source if source.is_dir() and source.suffix != ".zarr" else source.parent


def is_of_phases(volume: Volume) -> bool:
    """Whether a volume is labels, regions or thickness in a result folder of phases."""
    kinds = {"phases": "iu", "regions": "iu", THICKNESS: "f"}
    if not volume.source or volume.dtype.kind not in kinds.get(volume.name, ""):
        return False
    folder = folder_of(volume)
    files = folder / "phases.csv", folder / "contacts.csv", folder / PROVENANCE
    return all(map(Path.is_file, files))


def layer_of_result(folder: Path, name: str, placement: Placement) -> LayerData:
    """Return the lazy labels of a result folder written by a cluster."""
    (volume,) = describe(folder / LABELS_IN_BLOCKS)
    found = labels_from_result(volume)
    assert found is not None
    data, keywords, kind = found
    return data, {**keywords, **placement.kwargs(), "name": name}, kind


def made_as_image(volume: Volume) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the record of the job that made an image, if there is one beside its file.

    `volume`: as read from a file. Records with another fingerprint or shape are ignored.
    Returns: record, and how the scan was read, see `source_in`.
    """
    if not volume.source or volume.dtype.kind != "f":
        return None
    alone, whole = _record_of(Path(volume.source)), folder_of(volume) / PROVENANCE
    for file, name in ((alone, "image"), (whole, volume.name)):
        record = _json(file)
        made = [job for job in jobs_in(file) if JOBS_THAT_GIVE.get(str(job.get("job")))]
        wanted = [job for job in made if name in ("image", JOBS_THAT_GIVE[job["job"]])]
        if not wanted or list(volume.shape) != wanted[-1].get("input", {}).get("shape"):
            continue
        known = record.get("fingerprints", {}).get(name)
        if known and isinstance(volume.data, np.ndarray) and fingerprint(volume.data) != known:
            continue
        return wanted[-1], source_in(file)
    return None


#: Names of the images that jobs make, by job.
JOBS_THAT_GIVE = {name: job.gives for name, job in JOBS.items() if job.gives}


def _record_of(image: Path) -> Path:
    return image.with_suffix(".json")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def source_in(path: Path) -> dict[str, Any]:
    """Return how the scan of a record was read; empty if unknown."""
    found = _json(path).get("source")
    return found if isinstance(found, dict) else {}


def jobs_in(path: Path) -> list[dict[str, Any]]:
    """Return the records of the jobs in a file, in order; empty if it is damaged."""
    found = _json(path)
    jobs = found.get("jobs", [found] if "job" in found else [])
    return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []


def _result(
    labels: Volume, file: Path, provenance: dict[str, Any], tables: dict[str, pd.DataFrame]
) -> tuple[Pores | None, tuple[str, ...]]:
    """Return the result that can be merged again, or None, and a note on a problem."""
    if not file.is_file() or not isinstance(labels.data, np.ndarray):
        return None, ()
    from hushpore.pores.result import restored

    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        gate = limits_for(file)
        gate.require_plausible(size, "arrays")
        gate.require_room(size)
        with np.load(file) as arrays:
            return restored(labels, dict(arrays), provenance, tables), ()
    except Exception as error:
        # the file may be damaged in any way; the labels are shown anyway
        return None, (f"The pores cannot be merged again: {error}",)


def layer_of_phases(volume: Volume) -> LayerData | None:
    """Return labels, regions or thickness of phases as the layer that it was saved from.

    `volume`: as read from a file; one that `hushpore.viewer.layers.result_folder.is_of_phases`.
    Returns: the layer, labels with their tables and record; None if the other files are not those
    of measured phases.
    Raises InputError if a table cannot be read.
    """
    folder = folder_of(volume)
    jobs = jobs_in(folder / PROVENANCE)
    made = [job for job in jobs if job.get("job") == "phases"]
    phases = read_result_table(folder / "phases.csv")
    if not made or not {"phase", "name", "share"} <= set(phases.columns):
        return None
    provenance, names = made[-1], tuple(map(str, phases["name"]))
    named = volume.replace(volume.data, name=name_of(folder.name, volume.name))
    if volume.name == "thickness":
        return phase_thickness_layer(named, provenance=provenance)
    if volume.name == "regions":
        file = folder / "regions.csv"
        table = read_result_table(file) if file.is_file() else phases
        if not {"label", "phase", "volume", "equivalent_diameter"} <= set(table.columns):
            return None
        return regions_layer(named, table, names, provenance=provenance)
    if int(volume.array().max(initial=0)) > len(names):
        return None
    layer = labels_layer(named, phases, provenance=provenance)
    known = layer[1]["metadata"][METADATA_KEY]
    known[UPSTREAM] = tuple(jobs[: jobs.index(provenance)])
    known[READ] = source_in(folder / PROVENANCE)
    if isinstance(provenance.get("result"), dict):
        contacts = read_result_table(folder / "contacts.csv")
        known["phases"] = _restored(volume, names, provenance, phases, contacts)
    return layer


def _restored(
    volume: Volume,
    names: tuple[str, ...],
    provenance: dict[str, Any],
    phases: pd.DataFrame,
    contacts: pd.DataFrame,
) -> Phases:
    """Return a measurement from its tables, without grey values."""
    return Phases(
        labels=volume.array().astype(np.uint8),
        names=names,
        volume=volume.replace(volume.data, name=folder_of(volume).name),
        timings={},
        provenance=provenance,
        notes=tuple(map(str, provenance.get("notes", []))),
        # these are separate layers
        thickness=None,
        transport=None,
        regions=None,
        _phase_columns=_columns(phases),
        _contact_columns=_columns(contacts),
    )


def _columns(table: pd.DataFrame) -> dict[str, np.ndarray]:
    return {str(name): table[name].to_numpy() for name in table}
