"""A layer with all that is known of it, on its way to files."""

from __future__ import annotations

import dataclasses
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hushpore.base.atomic import new_file
from hushpore.base.errors import HushporeError
from hushpore.base.events import Note, ResultFiles, by_importance
from hushpore.base.provenance import fingerprint
from hushpore.base.safe_text import as_csv, file_name
from hushpore.io import is_on_disk
from hushpore.io.output_target import require_apart
from hushpore.io.results import write_arrays, write_image, write_results
from hushpore.jobs import JOBS
from hushpore.pores.remarks import remarks_of
from hushpore.pores.result import (
    MERGING,
)
from hushpore.pores.settings import PoreSettings
from hushpore.pores.tables.totals import (
    headline_of,
    totals_columns,
)
from hushpore.runs.result_folder import write_result
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.layers.conversion import known_of, volume_of
from hushpore.viewer.layers.lineage import READ, UPSTREAM, VOXEL_SIZE, is_painted
from hushpore.viewer.results.pore_layer import result_of, tables_of

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores

#: What is said of labels that were painted on.
PAINTED = (
    "These labels were painted on by hand. What was measured before is not of them, and was not "
    "written with them."
)


@dataclass(frozen=True)
class SavedLayer:
    """A layer as it was when it was to be saved: what happens to it later changes nothing here."""

    volume: Volume
    provenance: dict[str, Any]  # of the job that made it; empty where none did
    upstream: tuple[dict[str, Any], ...]  # of the jobs before, the first one first
    voxel_size: str  # as the user has given it
    read: dict[str, Any]  # how the scan was read, see `READ`; empty where that is not known
    tables: dict[str, pd.DataFrame]  # of pores
    pores: Pores | None  # what can be merged anew
    result: Any  # of another job that is written as a folder
    # what is to be said of it beside where it was written, and in its record; empty: nothing
    note: str = ""

    @classmethod
    def of(cls, layer: Any, axis_labels: tuple[str, ...] = ()) -> SavedLayer:
        """Remember a layer; its values are not copied.

        Of labels that were painted on no more than these are: the rest is of those before.
        """
        painted = is_painted(layer)
        known, found = known_of(layer), None if painted else tables_of(layer)
        patches = known.get("patches")
        # boxes are no image: they go with what they lie in
        volume = volume_of(layer, axis_labels) if patches is None else patches.volume
        measured = None if painted else known.get("phases")
        result = measured if patches is None else patches
        tables: dict[str, pd.DataFrame] = {}
        if found is not None:
            tables["pores"] = found.pores
            if found.throats is not None:
                tables["throats"] = found.throats
            if found.totals:
                tables["totals"] = pd.DataFrame(totals_columns(found.totals))
            if found.profile is not None:
                tables["profile"] = _profile(volume, found.profile)
            if found.thickness is not None:
                tables["thickness"] = found.thickness
            if found.rev is not None:
                tables["rev"] = found.rev
        return cls(
            volume,
            dict(known.get("provenance") or {}),
            tuple(known.get(UPSTREAM, ())),
            known.get(VOXEL_SIZE, ""),
            known.get(READ) or {},
            tables,
            result_of(layer),
            result,
            PAINTED if painted else "",
        )

    @property
    def is_folder(self) -> bool:
        """Whether it is written as a folder: all but an image by itself."""
        return bool(self.tables) or self.result is not None

    @property
    def proposed(self) -> Path:
        """Where it may go: beside the scan, where one can write there."""
        name = file_name(self.volume.name)
        place = Path(self.volume.source).expanduser() if self.volume.source else Path()
        beside = place.parent if place.is_absolute() else Path.home()
        folder = beside if os.access(beside, os.W_OK) else Path.home()
        return folder / (name if self.is_folder else f"{name}.tif")

    def write(self, path: Path) -> Path:
        """Write a result folder, or an image with its record beside it; an older one is replaced.

        Raises OutputError as `hushpore.io.results.write_results` does, and `require_apart`.
        """
        self.require_apart(path)
        if not self.is_folder:
            record = self.record("image") or None
            target = path if path.suffix else path.with_suffix(".tif")
            return write_image(target, self.volume, provenance=record, overwrite=True)
        result: Any = _Stored(self) if self.result is None else self.result
        jobs = [*self.upstream, result.provenance]
        source, prints = self._source(), _made_before(jobs)
        if not result.provenance:
            # of labels whose record is lost
            images, tables = {"labels": self.volume}, self.tables
            prints["labels"] = fingerprint(self.volume.data)
            record = {"source": source, "jobs": jobs, "fingerprints": prints}
            return write_results(
                path, images=images, tables=tables, provenance=record, overwrite=True
            )
        more = {"jobs": jobs, "fingerprints": prints}
        before = result.volume
        return write_result(path, [result], before, source=source, extra=more, overwrite=True)

    def require_apart(self, path: Path) -> None:
        """Refuse a place in which lies what the layer was made of, or what of it is on disk.

        A layer that is in memory, and that no job has made, may go back to its own file.

        Raises OutputError if it does.
        """
        jobs = [*self.upstream, self.provenance]
        inputs = {str(job.get("input", {}).get("source") or "") for job in jobs}
        if is_on_disk(self.volume):
            inputs.add(self.volume.source)
        require_apart([path], sorted(inputs))

    def record(self, image: str) -> dict[str, Any]:
        """Return what stands beside an image that is written alone; empty where nothing is known.

        `image`: what it is called in the fingerprints.
        """
        if not self.provenance:
            return {}
        prints = {image: fingerprint(self.volume.data)}
        source = self._source()
        known = {**self.provenance, "fingerprints": prints}
        if self.note:
            known["notes"] = [*known.get("notes", []), self.note]
        return {**known, **({"source": source} if source else {})}

    def write_beside(self, image: Path) -> list[Path]:
        """Write the tables of pores, and what they are merged from, beside an image of them."""
        written = []
        for name, table in self.tables.items():
            target = beside(image, f"{name}.csv")
            with new_file(target, overwrite=True) as part:
                as_csv(table, part)
            written.append(target)
        if self.pores is not None:
            target = beside(image, f"{MERGING}.npz")
            with new_file(target, overwrite=True) as part:
                write_arrays(part, self.pores.merging_arrays)
            written.append(target)
        return written

    def _source(self) -> dict[str, Any]:
        """Return how the first job's input is read again; empty where that is not known."""
        made_of = self.upstream[0] if self.upstream else self.provenance
        given = made_of.get("input", {})
        known = {"path": given.get("source") or self.volume.source, **self.read}
        if not known["path"] or not Path(known["path"]).exists():
            return {}
        source = ScanRecipe.of(known)
        if self.voxel_size:
            source = dataclasses.replace(source, voxel_size=self.voxel_size)
        shape = list(self.read.get("shape", ()))
        if shape and shape != list(given.get("shape", shape)):
            at = _position(source, given)
            if at is None:
                return {}
            source = dataclasses.replace(source, at=at)
        return source.to_dict()


class _Stored:
    """A segmentation as it is written from the window: with the labels of the layer.

    And with what the layer knows beside: a local thickness that came back from files. Where it
    cannot be merged anew these are all that there is.
    """

    def __init__(self, layer: SavedLayer) -> None:
        self._layer, self.provenance = layer, layer.provenance
        self.volume = layer.volume if layer.pores is None else layer.pores.volume

    @property
    def headline(self) -> str:
        """The headline of the pores; empty where the record does not hold enough."""
        if self._layer.pores is not None:
            return self._layer.pores.headline
        try:
            made_with = PoreSettings.of_valid(self.provenance["settings"])
            return headline_of(self.provenance["result"], made_with)
        except (KeyError, TypeError):  # the record was changed
            return ""

    @property
    def remarks(self) -> tuple[Note, ...]:
        """The remarks on the pores; none where the record does not hold enough."""
        if self._layer.pores is not None:
            return self._layer.pores.remarks
        try:
            made_with = PoreSettings.of_valid(self.provenance["settings"])
            of_run = map(Note.of_dict, self.provenance["remarks"])
            return by_importance([*remarks_of(self.provenance["result"], made_with), *of_run])
        except (KeyError, TypeError):  # the record was changed
            return ()

    def files(self) -> ResultFiles:
        """Return what is written of it."""
        pores, tables = self._layer.pores, self._layer.tables
        files = ResultFiles({}, {}) if pores is None else pores.files()
        images = {**files.images, "labels": self._layer.volume}
        return dataclasses.replace(files, images=images, tables={**tables, **files.tables})


def _position(source: ScanRecipe, given: dict[str, Any]) -> tuple[str, ...] | None:
    """Return at which time and channel a job was given a source, as `ScanRecipe.at` has it.

    napari does not say which part of a stack that was split a layer is, so values are compared.

    `given`: the input in the record of the job.
    Returns: None where the input is none of them, as where it was cropped.
    """
    try:
        whole = source.describe()
        axes = [axis for axis in whole.axes[: -whole.n_spatial] if axis not in given["axes"]]
        for place in np.ndindex(*(whole.shape[whole.axes.index(axis)] for axis in axes)):
            at = dict(zip(axes, place, strict=True))
            part = whole.at(**at)
            same_shape = list(part.shape) == list(given["shape"])
            if same_shape and fingerprint(part.data) == given["blake2b"]:
                return tuple(f"{axis}={number}" for axis, number in at.items())
    except (HushporeError, OSError, KeyError):
        return None
    return None


def _made_before(jobs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the fingerprints of images that jobs have made for the next ones, by their names."""
    found = {}
    for job, after in itertools.pairwise(jobs):
        kind, given = JOBS.get(str(job.get("job"))), after.get("input", {})
        if kind is not None and kind.gives and "blake2b" in given:
            found[kind.gives] = given["blake2b"]
    return found


def beside(image: Path, ending: str) -> Path:
    """Return where something lies that goes with an image that is written alone."""
    stem = image.name.removesuffix(image.suffix).removesuffix(".ome")
    return image.with_name(f"{stem}_{ending}")


def _profile(volume: Volume, porosity: np.ndarray) -> pd.DataFrame:
    slices = np.arange(porosity.size)
    position = volume.origin[0] + volume.spacing[0] * slices
    return pd.DataFrame({"slice": slices, "position": position, "porosity": porosity})
