"""Saving of layers, with their records and tables.

The writer plugin: saves layers with voxel size, unit and axes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import npe2
import numpy as np
import pandas as pd
from napari.layers import Layer

from hushpore.base.atomic import new_file
from hushpore.base.events import Note, ResultFiles, by_importance
from hushpore.base.formatting import file_name
from hushpore.base.provenance import fingerprint
from hushpore.io import is_on_disk
from hushpore.io.output_target import require_apart
from hushpore.io.results import as_csv, write_arrays, write_image, write_results
from hushpore.jobs import JOBS
from hushpore.pores.advice import remarks_of
from hushpore.pores.settings import PoreSettings
from hushpore.pores.tables.totals import headline_of, totals_columns
from hushpore.runs.result_folder import write_result
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.layers.conversion import (
    READ,
    UPSTREAM,
    VOXEL_SIZE,
    is_painted,
    known_of,
    volume_of,
)
from hushpore.viewer.results.pore_layer import result_of, tables_of

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores

#: Note on labels edited by hand.
PAINTED = (
    "The labels were edited by hand, so only the labels were saved. Measure again to save a table."
)


@dataclass(frozen=True)
class SavedLayer:
    """A snapshot of a layer for saving, independent of later changes."""

    volume: Volume
    provenance: dict[str, Any]  # record of the job that made it, or empty
    upstream: tuple[dict[str, Any], ...]  # records of the previous jobs, in order
    voxel_size: str  # as given by the user
    read: dict[str, Any]  # how the scan was read, see `READ`, or empty
    tables: dict[str, pd.DataFrame]  # of pores
    pores: Pores | None  # result that can be merged again
    result: Any  # of another job with a result folder
    # for the notification and the record
    note: str = ""

    @classmethod
    def of(cls, layer: Any, axis_labels: tuple[str, ...] = ()) -> SavedLayer:
        """Return the snapshot of a layer; the values are not copied.

        Of labels edited by hand only the labels are kept, because the tables are out of date.
        """
        painted = is_painted(layer)
        known, found = known_of(layer), None if painted else tables_of(layer)
        patches = known.get("patches")
        # boxes are no image: use the volume that was sampled
        volume = volume_of(layer, axis_labels) if patches is None else patches.volume
        measured = None if painted else known.get("phases")
        result = measured if patches is None else patches
        tables: dict[str, pd.DataFrame] = {}
        if found is not None:
            totals = pd.DataFrame(totals_columns(found.totals)) if found.totals else None
            profile = None if found.profile is None else _profile(volume, found.profile)
            named = {
                "pores": found.pores, "throats": found.throats, "totals": totals,
                "profile": profile, "thickness": found.thickness, "rev": found.rev,
                "transport": found.along,
            }  # fmt: skip
            tables = {name: table for name, table in named.items() if table is not None}
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
        """Whether it is saved as a folder: everything except single images."""
        return bool(self.tables) or self.result is not None

    @property
    def proposed(self) -> Path:
        """The proposed path: in the folder of the scan, if that is writable."""
        name = file_name(self.volume.name)
        place = Path(self.volume.source).expanduser() if self.volume.source else Path()
        beside = place.parent if place.is_absolute() else Path.home()
        folder = beside if os.access(beside, os.W_OK) else Path.home()
        return folder / (name if self.is_folder else f"{name}.tif")

    def write(self, path: Path) -> Path:
        """Save a result folder, or an image with its record beside it; replaces an older one.

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
            # labels without a record
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
        """Raise OutputError if a path is an input of the layer, or holds its lazy values.

        A layer in memory that no job has made may be saved to its own file.
        """
        jobs = [*self.upstream, self.provenance]
        inputs = {str(job.get("input", {}).get("source") or "") for job in jobs}
        if is_on_disk(self.volume):
            inputs.add(self.volume.source)
        require_apart([path], sorted(inputs))

    def record(self, image: str) -> dict[str, Any]:
        """Return the record to save beside an image; empty if there is none.

        `image`: its name in the fingerprints.
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
        """Save the tables of pores, and the data for merging, beside their image."""
        written = []
        for name, table in self.tables.items():
            target = beside(image, f"{name}.csv")
            with new_file(target, overwrite=True) as part:
                as_csv(table, part)
            written.append(target)
        if self.pores is not None:
            # the engine of pores is imported when there are some
            from hushpore.pores.result import MERGING

            target = beside(image, f"{MERGING}.npz")
            with new_file(target, overwrite=True) as part:
                write_arrays(part, self.pores.merging_arrays)
            written.append(target)
        return written

    def _source(self) -> dict[str, Any]:
        """Return how to read the input of the first job again; empty if unknown."""
        made_of = self.upstream[0] if self.upstream else self.provenance
        given = made_of.get("input", {})
        known = {"path": given.get("source") or self.volume.source, **self.read}
        if not known["path"] or not Path(known["path"]).exists():
            return {}
        source = ScanRecipe.of(known)
        if self.voxel_size:
            size = self.voxel_size if not source.bin else self._size_before(source.bin)
            source = dataclasses.replace(source, voxel_size=size)
        shape = list(self.read.get("scan_shape", ()))
        if shape and shape != list(given.get("shape", shape)):
            return {}  # a part of the scan, which napari does not identify
        return source.to_dict()

    def _size_before(self, bin: str) -> str:
        """Return the voxel size before binning: that given by the user is of the binned voxels."""
        volume = self.volume
        factors = [int(number) for number in bin.split(",")]
        each = factors * volume.n_spatial if len(factors) == 1 else factors
        sizes = (step / n for step, n in zip(volume.spacing, each, strict=True))
        return f"{','.join(f'{size:.12g}' for size in sizes)}{volume.unit}"


class _Stored:
    """A segmentation as saved from the window: with the labels and the tables of the layer.

    These include a local thickness that was read from files. A result that cannot be merged again
    has nothing else.
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
        """Return images, tables and arrays to save."""
        pores, tables = self._layer.pores, self._layer.tables
        files = ResultFiles({}, {}) if pores is None else pores.files()
        images = {**files.images, "labels": self._layer.volume}
        return dataclasses.replace(files, images=images, tables={**tables, **files.tables})


def _made_before(jobs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the fingerprints of images that jobs made for later jobs, by their names."""
    found = {}
    for job, after in itertools.pairwise(jobs):
        kind, given = JOBS.get(str(job.get("job"))), after.get("input", {})
        if kind is not None and kind.gives and "blake2b" in given:
            found[kind.gives] = given["blake2b"]
    return found


def beside(image: Path, ending: str) -> Path:
    """Return the path of a file that belongs to an image saved as a single file."""
    stem = image.name.removesuffix(image.suffix).removesuffix(".ome")
    return image.with_name(f"{stem}_{ending}")


def _profile(volume: Volume, porosity: np.ndarray) -> pd.DataFrame:
    slices = np.arange(porosity.size)
    position = volume.origin[0] + volume.spacing[0] * slices
    return pd.DataFrame({"slice": slices, "position": position, "porosity": porosity})


def write_image_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save an image layer as OME-TIFF or OME-Zarr, by the ending of the name."""
    return _write(path, Layer.create(data, attributes, "image"))


def write_labels_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save a labels layer as OME-TIFF or OME-Zarr, by the ending of the name."""
    return _write(path, Layer.create(data, attributes, "labels"))


def write_image_with_labels(path: str, layers: list[tuple[Any, dict[str, Any], str]]) -> list[str]:
    """Save an image layer and its labels layers as one OME-Zarr image with labels."""
    from hushpore.io.zarr import write_zarr

    image, *labels = sorted(layers, key=lambda layer: layer[2] != "image")
    volume = volume_of(Layer.create(*image))
    over = [volume_of(Layer.create(*layer)) for layer in labels]
    for layer in layers:
        SavedLayer.of(Layer.create(*layer)).require_apart(Path(path))
    written = write_zarr(path, volume, labels={each.name: each for each in over}, overwrite=True)
    return [str(written)]


def prefer_our_writers() -> None:
    """Put hushpore's writers before napari's own, which lose the voxel size, in the save dialog.

    npe2 uses the first registered writer and has no other order.
    """
    with contextlib.suppress(AttributeError, TypeError):
        npe2.PluginManager.instance()._contrib._writers.sort(key=_is_not_ours)


def _is_not_ours(entry: Any) -> bool:
    return str(entry[-1].command).partition(".")[0] != "hushpore"


def _write(path: str, layer: Any) -> list[str]:
    saved = SavedLayer.of(layer)
    # napari has already asked whether to replace an existing file
    saved.require_apart(Path(path))
    record = saved.record("image") or None
    written = write_image(path, saved.volume, provenance=record, overwrite=True)
    return [str(written), *map(str, saved.write_beside(written))]
