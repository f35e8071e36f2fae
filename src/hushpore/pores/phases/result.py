"""Result of a phase measurement: labels, tables and files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.display import Displayed
from hushpore.base.errors import InputError
from hushpore.base.events import Note, ResultFiles, by_importance
from hushpore.base.formatting import readable_percent
from hushpore.pores.advice import remarks_on_exterior
from hushpore.pores.phases.classifier import CLASSIFIER
from hushpore.pores.phases.measures import CONTACTS, PHASES, rows_of
from hushpore.pores.tables.measures import PORES, THROATS, resized_table
from hushpore.pores.tables.totals import is_proportional

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from hushpore.base.arrays import Array, Float32s, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.pores.phases.classifier import Classifier
    from hushpore.pores.phases.measures import FoundRegions
    from hushpore.pores.transport.result import Transport

#: Colour of each phase in the window and in figures, from the darkest phase, which has the colour
#: of pores; distinguishable by the colour-blind (Okabe and Ito, 2008,
#: https://jfly.uni-koeln.de/color).
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#56b4e9", "#999999",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Phases(Displayed):
    """Result of a phase measurement.

    Attributes
    ----------
    labels : numpy.ndarray
        uint8, in the shape of the input: 1 to n are the phases, darkest first; 0 is outside the
        sample.
    names : tuple of str
        Names of the phases, in the order of labels.
    volume : Volume
        The input.
    timings : dict of str to float
        Seconds by stage.
    provenance : dict
        The record of the job as JSON values; its ``result`` holds the totals and both tables.
    notes : tuple of str
        Notes and warnings of the job.
    thickness : numpy.ndarray or None
        float32, in the same shape: local thickness of each voxel within its phase, in the unit of
        the volume; None if not measured. See `hushpore.pores.geometry.thickness.LocalThickness`.
    regions : FoundRegions or None
        Regions of the phases, see `hushpore.pores.phases.measures.FoundRegions`; None if not
        measured.
    transport : Transport or None
        Transport in the voxels, see `hushpore.pores.transport.result.Transport`; None if not
        solved.
    classifier : Classifier or None
        With which phases were found from strokes, see `hushpore.pores.phases.classifier`.
    probabilities : numpy.ndarray or None
        uint8, one volume for each phase: its probability in percent; None if not asked for.
    strokes : numpy.ndarray or None
        The strokes that the classifier was trained on.
    """

    _table = "phases"

    labels: UInt8s
    names: tuple[str, ...]
    volume: Volume
    timings: dict[str, float]
    provenance: dict[str, Any]
    notes: tuple[str, ...]
    thickness: Float32s | None
    regions: FoundRegions | None
    transport: Transport | None
    _phase_columns: dict[str, Any]
    _contact_columns: dict[str, Any]
    classifier: Classifier | None = None
    probabilities: UInt8s | None = None
    strokes: Any = None

    # made on first use, as those of pores
    @cached_property
    def phases(self) -> pd.DataFrame:
        """Table of phases, one row each; see `hushpore.pores.phases.measures.PHASES`."""
        import pandas as pd

        return pd.DataFrame(self._phase_columns)

    @cached_property
    def contacts(self) -> pd.DataFrame:
        """Table of contacts, one row per pair; see `hushpore.pores.phases.measures.CONTACTS`."""
        import pandas as pd

        return pd.DataFrame(self._contact_columns)

    @property
    def labels_volume(self) -> Volume:
        """Labels as a volume with the spacing and origin of the input."""
        return self.volume.as_labels(self.labels, f"{self.volume.name} phases")

    @property
    def regions_volume(self) -> Volume:
        """Region labels as a volume with the spacing and origin of the input, if measured."""
        assert self.regions is not None, "regions were not measured"
        return self.volume.as_labels(self.regions.labels, f"{self.volume.name} regions")

    @cached_property
    def region_table(self) -> pd.DataFrame:
        """Table of regions, one row each; empty if not measured."""
        import pandas as pd

        return pd.DataFrame({} if self.regions is None else self.regions.columns)

    @cached_property
    def region_contacts(self) -> pd.DataFrame:
        """Table of region contacts, one row per pair; empty if not measured."""
        import pandas as pd

        return pd.DataFrame({} if self.regions is None else self.regions.contacts)

    @property
    def profile(self) -> pd.DataFrame:
        """Volume fraction of each phase in each slice (in 2D: row).

        Columns: ``slice``, ``position``, and one per phase, with its name; NaN in slices without
        sample.
        """
        import pandas as pd

        count = len(self.names)
        planes = [np.bincount(plane.reshape(-1), minlength=count + 1)[1:] for plane in self.labels]
        voxels = np.array(planes, np.float64)
        sample = voxels.sum(axis=1, keepdims=True)
        shares = np.full(voxels.shape, np.nan)
        np.divide(voxels, sample, out=shares, where=sample > 0)
        slices = np.arange(len(voxels))
        position = self.volume.origin[0] + self.volume.spacing[0] * slices
        named = dict(zip(self.names, shares.T, strict=True))
        return pd.DataFrame({"slice": slices, "position": position, **named})

    def resized(self, spacing: Sequence[float], unit: str, note: str = "") -> Phases:
        """Return the measurement for another voxel size; see `Pores.resized`.

        Raises InputError if the voxels have a different shape.
        """
        if not is_proportional(self.volume.spacing, spacing):
            raise InputError(
                f"Voxels of {tuple(spacing)} have a different shape than those of "
                f"{self.volume.spacing}. Measure the phases again."
            )
        ratio = np.array(spacing) / self.volume.spacing
        frames = self.volume.origin, ratio
        notes = [note] if note else []
        volume = self.volume.replace(
            self.volume.data,
            spacing=tuple(spacing),
            unit=unit,
            origin=(),
            notes=[*self.volume.notes, *notes],
        )
        columns = _columns(resized_table(self.phases, PHASES, *frames))
        contacts = _columns(resized_table(self.contacts, CONTACTS, *frames))
        regions = self.regions
        if regions is not None:
            regions = dataclasses.replace(
                regions,
                columns=_columns(resized_table(self.region_table, PORES, *frames)),
                contacts=_columns(resized_table(self.region_contacts, THROATS, *frames)),
            )
        made, thickness = self.provenance, self.thickness
        found = {"phases": rows_of(columns), "contacts": rows_of(contacts), "unit": unit}
        transport = None if self.transport is None else self.transport.resized(volume)
        found |= {} if transport is None else transport.record
        provenance = {
            **made,
            "input": {**made["input"], "spacing": list(volume.spacing), "unit": unit},
            "notes": [*made["notes"], *notes],
            "result": {**made["result"], **found},
        }
        return dataclasses.replace(
            self,
            volume=volume,
            provenance=provenance,
            thickness=None if thickness is None else thickness * np.float32(ratio[0]),
            regions=regions,
            transport=transport,
            _phase_columns=columns,
            _contact_columns=contacts,
        )

    @property
    def headline(self) -> str:
        """Number of phases, and the share of each."""
        shares = self._phase_columns["share"]
        each = (
            f"{name} {readable_percent(float(share))}"
            for name, share in zip(self.names, shares, strict=True)
        )
        return " · ".join([f"{len(self.names)} phases", *each])

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Remarks on the sample and on the phases, the most important first."""
        has_mask = bool(self.provenance["settings"]["sample_mask"])
        around = remarks_on_exterior(self.provenance["result"], has_mask, "the darkest phase")
        of_run = map(Note.of_dict, self.provenance.get("remarks", ()))
        return by_importance([*around, *of_run])

    @property
    def thickness_volume(self) -> Volume:
        """Local thickness as a volume with the spacing and origin of the input, if measured."""
        assert self.thickness is not None
        return self.volume.derived(self.thickness, f"{self.volume.name} thickness")

    @property
    def doubt(self) -> UInt8s:
        """Entropy of the probabilities in percent of the largest possible one.

        Returns: uint8, in the shape of the input: 0 where one phase is certain, 100 where all are
        equally likely.
        """
        assert self.probabilities is not None
        return doubt_of(self.probabilities)

    def files(self) -> ResultFiles:
        """Return the files of the result: labels, tables, profile, thickness, and a classifier."""
        images = {"phases": self.labels_volume}
        if self.thickness is not None:
            images["thickness"] = self.thickness_volume
        tables = {"phases": self.phases, "contacts": self.contacts, "profile": self.profile}
        if self.regions is not None:
            images["regions"] = self.regions_volume
            tables["regions"] = self.region_table
            tables["region_contacts"] = self.region_contacts
        if self.transport is not None:
            images |= self.transport.map_volumes
            tables["transport"] = self.transport.profile
        if self.probabilities is not None:
            for number, each in enumerate(self.probabilities, 1):
                name = f"probability_{number}"
                images[name] = self.volume.derived(each, f"{self.volume.name} {name}")
            images["doubt"] = self.volume.derived(self.doubt, f"{self.volume.name} doubt")
        if self.classifier is None:
            return ResultFiles(images, tables)
        if self.strokes is not None:
            strokes = self.strokes
            if strokes.dtype != np.uint8:
                strokes = np.asarray(strokes).astype(np.uint8)
            images["strokes"] = self.volume.as_labels(strokes, f"{self.volume.name} strokes")
        return ResultFiles(images, tables, arrays={CLASSIFIER: self.classifier.arrays})


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    return {str(name): table[name].to_numpy() for name in table}


def doubt_of(probabilities: Array) -> UInt8s:
    """Return the entropy of percentages (phases, ...) in percent of that of equal ones, uint8."""
    count = len(probabilities)
    # of one percentage; those of a voxel are rounded and may add up to 99 or 101
    share = np.arange(102, dtype=np.float32) / 100
    each = -share * np.log(np.maximum(share, 1e-9)) / np.float32(np.log(count))
    total = np.sum([each[part] for part in probabilities], axis=0)
    found: UInt8s = np.clip(np.rint(100 * total), 0, 100).astype(np.uint8)
    return found
