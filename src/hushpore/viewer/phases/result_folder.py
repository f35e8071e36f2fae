"""The files of measured phases on their way back into the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.io.target import PROVENANCE
from hushpore.pores.phases.result import Phases
from hushpore.runs.pore_result import read_result_table
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.layers.origin import READ, UPSTREAM
from hushpore.viewer.layers.result_folder import folder_of, jobs_in, source_in
from hushpore.viewer.phases.layers import labels_layer, regions_layer, thickness_layer

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.viewer.layers.conversion import LayerData


def layer_of_phases(volume: Volume) -> LayerData | None:
    """Return labels, regions or thickness of phases as the layer that it was saved from.

    `volume`: as read from a file; one that `hushpore.viewer.layers.result_folder.is_of_phases`.
    Returns: the layer; of labels with their tables and record, to be saved again; None where the
    files beside are not those of measured phases.
    Raises InputError if a table of them cannot be read.
    """
    folder = folder_of(volume)
    jobs = jobs_in(folder / PROVENANCE)
    made = [job for job in jobs if job.get("job") == "phases"]
    phases = read_result_table(folder / "phases.csv")
    if not made or not {"phase", "name", "share"} <= set(phases.columns):
        return None
    provenance, names = made[-1], tuple(map(str, phases["name"]))
    named = volume.replace(volume.data, name=f"{folder.name} {volume.name}")
    if volume.name == "thickness":
        return thickness_layer(named, provenance=provenance)
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
    """Return what is known of a measurement, without the grey values that it was made of."""
    return Phases(
        labels=volume.array().astype(np.uint8),
        names=names,
        volume=volume.replace(volume.data, name=folder_of(volume).name),
        timings={},
        provenance=provenance,
        notes=tuple(map(str, provenance.get("notes", []))),
        # layers of their own
        thickness=None,
        regions=None,
        _phase_columns=_columns(phases),
        _contact_columns=_columns(contacts),
    )


def _columns(table: pd.DataFrame) -> dict[str, np.ndarray]:
    return {str(name): table[name].to_numpy() for name in table}
