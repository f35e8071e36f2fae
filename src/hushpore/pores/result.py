"""Result of a pore segmentation: labels, tables and totals, and merging again."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.display import Displayed
from hushpore.base.errors import InputError
from hushpore.base.events import Note, ResultFiles, by_importance, result_of
from hushpore.base.provenance import identified
from hushpore.pores.advice import remarks_of
from hushpore.pores.corrections.operations import Operation
from hushpore.pores.forms.findings import Findings
from hushpore.pores.forms.limits import columns_of, judged
from hushpore.pores.forms.tables import depth_column, form_tables, other_forms, path_table
from hushpore.pores.geometry.sums import index_of, intercept_totals
from hushpore.pores.numbering import (
    Columns,
    mark_basins,
    measured,
    merged_by,
    number_basins,
    number_by_markers,
    numbering_of,
    require_in_void,
    small_totals,
    totals_of,
    whole_markers,
)
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import write_labels
from hushpore.pores.slabs import Scratch, Slabs, Stack, check_disk
from hushpore.pores.tables.measures import FURTHER, surface_of, void_walls
from hushpore.pores.tables.totals import (
    headline_of,
    is_of_interval,
    is_proportional,
    resized_curve,
    resized_totals,
    size_distribution,
    thickness_distribution,
    totals_columns,
)
from hushpore.pores.watershed.graph import BasinGraph
from hushpore.pores.watershed.merging import ChosenHeight, Numbering, height_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.transport.result import Transport


#: Name of the set of arrays in a result folder from which pores can be merged again.
MERGING = "merging"


@dataclass(frozen=True, eq=False, repr=False)
class Pores(Displayed):
    """Result of a pore segmentation.

    Attributes
    ----------
    labels : numpy.ndarray
        int32, in the shape of the input, C order: 1 to n are the pores, 0 is everything else. If
        the volume did not fit into memory, a `numpy.memmap` of a temporary file, which is deleted
        with the last reference to it.
    volume : Volume
        The input.
    provenance : dict
        Record of the job as JSON values; its ``result`` holds the totals.
    sample : numpy.ndarray
        int64: number of sample voxels in each slice (in 2D: row).
    graph : BasinGraph
        Graph of the basins: their sums and contacts.
    settings : PoreSettings
        Settings of the job.
    thickness : dict of str to LocalThickness
        Local thickness of ``"void"`` and ``"solid"``, as far as measured; see
        `hushpore.pores.geometry.thickness.LocalThickness`.
    curve : dict of str to numpy.ndarray
        REV curve: figures of cubes of the sample by edge length, if intervals were requested; see
        `hushpore.pores.uncertainty.curve`.
    transport : Transport or None
        Transport in the voxels, see `hushpore.pores.transport.result.Transport`; None if not
        solved.
    device_labels : cupy.ndarray or None
        `labels` in the memory of the GPU, if they were requested (`hushpore.segment_pores`).
    """

    _table = "pores"

    labels: Int32s
    volume: Volume
    provenance: dict[str, Any]
    sample: Int64s
    graph: BasinGraph
    settings: PoreSettings
    _columns: Columns
    _basins: Stack
    _slabs: Slabs
    thickness: dict[str, LocalThickness] = dataclasses.field(default_factory=dict)
    curve: dict[str, Float64s] = dataclasses.field(default_factory=dict)
    transport: Transport | None = None
    device_labels: Any = None

    @classmethod
    def of(
        cls,
        graph: BasinGraph,
        numbering: Numbering,
        settings: PoreSettings,
        volume: Volume,
        totals: Mapping[str, Any],
        *,
        provenance: Mapping[str, Any],
        columns: Columns | None = None,
        further: Mapping[str, Array] | None = None,
        judges: bool = True,
        **fields: Any,
    ) -> Pores:
        """Put a result together: measure the pores of a graph and complete the totals.

        `numbering`: assignment of the basins to pores. `totals`: those that do not follow from the
        pores. `provenance`: record of the job, without totals. `columns`: tables, if they were
        measured already. `further`: further columns of the table of pores (`FURTHER`). `judges`:
        whether figures are compared with the acceptance limits in `totals`, if there are any.
        ``**fields``: the other fields of the result.
        """
        if columns is None:
            columns = result_of(measured(graph, numbering, settings, volume))
        complete = totals_of(columns, volume, totals, settings.edge_pores)
        found = cls(
            volume=volume,
            provenance={**provenance, "result": complete},
            graph=graph,
            settings=settings,
            _columns=Columns({**columns.pores, **(further or {})}, columns.throats),
            **fields,
        )
        if judges and "acceptance" in complete:
            complete |= judged(complete["acceptance"], found._findings)
        return found

    def measured_again(
        self, numbering: Numbering, totals: Mapping[str, Any], **changes: Any
    ) -> Pores:
        """Return this result with another numbering, and with other arguments of `of`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        # labels may be others
        del fields["_columns"], fields["device_labels"]
        return Pores.of(numbering=numbering, totals=totals, **fields | changes)

    @property
    def porosity(self) -> float:
        """Fraction of the sample that is pore in `labels`.

        Excluded pores (too small, or cut by a face) do not count, but they do count in
        ``open_porosity`` and ``closed_porosity`` of the record. The sample is the whole volume
        without an excluded exterior.
        """
        share: float = self.provenance["result"]["porosity"]
        return share

    @property
    def threshold(self) -> float | None:
        """Grey value between pore and solid; None for a boolean input or a local threshold."""
        value: float | None = self.provenance["result"].get("threshold")
        return value

    @property
    def timings(self) -> dict[str, float]:
        """Seconds by stage."""
        return dict(self.provenance.get("timings", {}))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes from the run."""
        return tuple(note["text"] for note in self.provenance.get("remarks", ()))

    # made on first use: importing pandas takes longer than segmenting a small volume
    @cached_property
    def pores(self) -> pd.DataFrame:
        """Table of pores, one row each, by label; see `hushpore.pores.tables.measures.PORES`."""
        import pandas as pd

        return pd.DataFrame(self._columns.pores)

    @cached_property
    def pores_of_form(self) -> pd.DataFrame:
        """`pores`, with ``surface_distance`` in forms with profiles by depth, if it is known."""
        return self.pores.assign(**depth_column(self.settings.report_form, self._findings))

    @cached_property
    def throats(self) -> pd.DataFrame:
        """Table of throats, one row each; see `hushpore.pores.tables.measures.THROATS`."""
        import pandas as pd

        return pd.DataFrame(self._columns.throats)

    @property
    def labels_volume(self) -> Volume:
        """Labels as a volume with the spacing and origin of the input."""
        return self.volume.as_labels(self.labels, f"{self.volume.name} pores")

    @cached_property
    def porosity_profile(self) -> Float64s:
        """Porosity of each slice (in 2D: row); NaN for slices without sample."""
        pore = np.array([np.count_nonzero(plane) for plane in self.labels], np.float64)
        empty = np.full(pore.shape, np.nan)
        np.divide(pore, self.sample, out=empty, where=self.sample > 0)
        return empty

    def size_distribution(self, bins: int = 20) -> pd.DataFrame:
        """Return the pore size distribution, by number and by volume.

        Parameters
        ----------
        bins : int
            Number of bins of equivalent diameter, equally wide, from 0 to the largest pore.

        Returns
        -------
        pandas.DataFrame
            ``diameter_from``, ``diameter_to``, ``number`` and ``volume`` of the pores, and both as
            fractions: ``number_share``, ``volume_share``.

        Raises
        ------
        InputError
            If `bins` is not a whole number of at least 1.
        """
        return size_distribution(self.pores, bins)

    def form(self, name: str) -> pd.DataFrame:
        """Return the results in the symbols, units and order of a field.

        Parameters
        ----------
        name : str
            ``"bone"``, ``"foam"``, ``"casting"``, ``"bread"``, ``"rock"`` or ``"electrode"``.

        Returns
        -------
        pandas.DataFrame
            A line for each entry: ``symbol``, ``name``, ``value`` with the ends of its 90 %
            interval (``low``, ``high``) if it was found, ``unit``, ``definition``, ``missing`` (why
            there is no value) and ``reference``.

        Raises
        ------
        InputError
            If there is no such form.
        """
        import pandas as pd

        return pd.DataFrame(form_tables(name, self._findings)["form"])

    @cached_property
    def breakthrough_paths(self) -> pd.DataFrame:
        """Paths of the largest balls that pass from face to face, with the forms of flow.

        Empty with another form, or if air around the sample was excluded; see
        `hushpore.pores.flow.path_columns`.
        """
        import pandas as pd

        return pd.DataFrame(path_table(self.settings.report_form, self._findings))

    @cached_property
    def _findings(self) -> Findings:
        totals, columns = self.provenance["result"], self._columns
        return Findings(totals, *columns, self.volume, self.settings, self.basins)

    def thickness_volume(self, phase: str) -> Volume:
        """Return the local thickness of void or solid with the spacing and origin of the input."""
        name = f"{self.volume.name} {thickness_title(phase)}"
        return self.volume.derived(self.thickness[phase].diameter, name)

    @property
    def thickness_distribution(self) -> pd.DataFrame:
        """Distribution of the local thickness, if it was measured.

        Columns: ``phase`` (void or solid), ``thickness_from``, ``thickness_to``, ``volume``, and
        ``volume_share`` of that phase; one row per bin, equally wide, from 0 to the largest.
        """
        return thickness_distribution(self.thickness, self.volume.voxel_size)

    @property
    def basins(self) -> Int32s:
        """Watershed basins that were merged into pores, (z, y, x); 0 is solid."""
        basins: Int32s = self._basins.array()
        return basins

    @property
    def is_on_disk(self) -> bool:
        """Whether labels and basins are temporary files, because they do not fit into memory."""
        return self._slabs.on_disk

    @property
    def corrections(self) -> tuple[Operation, ...]:
        """Corrections made by hand, in order; see `hushpore.Corrections`."""
        return tuple(map(Operation.of_dict, self.provenance.get("corrections", ())))

    @property
    def merging_arrays(self) -> dict[str, Array]:
        """Arrays that `hushpore.pores.result.restored` needs to merge again, by name."""
        return {"basins": self.basins, "sample": self.sample, **self.graph.arrays}

    @property
    def headline(self) -> str:
        """Porosity, number of pores, and D10, D50 and D90 by number and by volume."""
        return headline_of(self.provenance["result"], self.settings)

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Remarks on the result, with the settings that answer them, the most important first."""
        of_run = map(Note.of_dict, self.provenance.get("remarks", ()))
        return by_importance([*remarks_of(self.provenance["result"], self.settings), *of_run])

    def files(self) -> ResultFiles:
        """Return the files of the result: labels, tables, thickness, and arrays to merge again."""
        import pandas as pd

        profile = self.porosity_profile
        slices = np.arange(profile.size)
        position = self.volume.origin[0] + self.volume.spacing[0] * slices
        along = pd.DataFrame({"slice": slices, "position": position, "porosity": profile})
        totals = pd.DataFrame(totals_columns(self.provenance["result"]))
        tables = {
            "pores": self.pores_of_form,
            "throats": self.throats,
            "totals": totals,
            "profile": along,
        }
        images = {"labels": self.labels_volume}
        if self.settings.report_form != "none":
            of_form = form_tables(self.settings.report_form, self._findings)
            tables |= {name: pd.DataFrame(each) for name, each in of_form.items()}
        if "limits" in self.provenance["result"]:
            tables["limits"] = pd.DataFrame(columns_of(self.provenance["result"]))
        if self.curve:
            tables["rev"] = pd.DataFrame(self.curve)
        if self.transport is not None:
            images |= self.transport.map_volumes
            tables["transport"] = self.transport.profile
        if self.thickness:
            tables["thickness"] = self.thickness_distribution
            images |= {
                f"{phase}_thickness": self.thickness_volume(phase) for phase in self.thickness
            }
        is_of_basins = str(self.provenance["job"]) == "pores"
        arrays = {MERGING: self.merging_arrays} if is_of_basins else {}
        forms = other_forms(self.settings.report_form, self._findings)
        return ResultFiles(images, tables, arrays=arrays, of_report=forms)

    @property
    def can_remerge(self) -> bool:
        """Whether the pores are merged basins: neither corrected nor labels of another program."""
        return str(self.provenance["job"]) == "pores" and not self.corrections

    @property
    def merge_height(self) -> ChosenHeight:
        """Merge height of this result, or the one that `remerge` would use, and its reason."""
        if self.corrections:
            # the graph is that of the corrected pores
            height = self.provenance["result"]["merge_height"]
            return ChosenHeight(0.0 if height is None else height)
        return height_of(self.graph, self.settings.merge_height, self.volume.n_spatial)

    def remerge(self, h: str | float) -> Pores:
        """Merge the basins again with another merge height.

        Parameters
        ----------
        h : float or str
            Merge height in voxels, or ``"auto"``; see `hushpore.pores.settings.PoreSettings`.

        Returns
        -------
        Pores
            Same as `segment_pores` with this merge height, in the time of one relabelling.

        Raises
        ------
        InputError
            If `h` is negative, or the pores were corrected by hand.
        """
        self._require_uncorrected()
        settings = dataclasses.replace(self.settings, merging="height", merge_height=h, markers="")
        numbering = number_basins(self.graph, self._numbered(settings), self.volume)
        return self._renumber(numbering, settings, merged_by(self.graph, settings, self.volume))

    def remerge_to_markers(self, markers: npt.ArrayLike) -> Pores:
        """Merge the basins again into one pore for each marker.

        This is a watershed flooded from the markers, at the resolution of basins: of several
        markers in one basin, the lowest counts. Void that no marker reaches is excluded.

        Parameters
        ----------
        markers : array_like
            Integer labels in the shape of the volume, 0 for no marker; or a boolean mask, with one
            marker per connected component; or points, (n, 3) voxel indices (z, y, x), in 2D
            (n, 2).

        Returns
        -------
        Pores
            Same as `segment_pores` with these `markers`: pore 1 grows from the lowest, and so on.

        Raises
        ------
        InputError
            If the markers have another shape, are empty, or lie outside the volume or the void, or
            the pores were corrected by hand.
        """
        self._require_uncorrected()
        given = np.asarray(markers)
        if given.dtype == np.bool_:
            given = whole_markers(given)
        settings = dataclasses.replace(self.settings, markers="markers")
        marks = mark_basins(given, self.basins.reshape(self.volume.shape), self.graph.count)
        require_in_void(marks.voxels, marks.in_solid, marks.is_negative)
        numbering, by = number_by_markers(marks, self.graph, self._numbered(settings), self.volume)
        auxiliary = {**self.volume.auxiliary, settings.markers: given}
        marked = dataclasses.replace(self.volume, auxiliary=auxiliary)
        return dataclasses.replace(self, volume=marked)._renumber(numbering, settings, by)

    def resized(self, spacing: Sequence[float], unit: str, note: str = "") -> Pores:
        """Return the segmentation for another voxel size.

        Parameters
        ----------
        spacing : sequence of float
            Size of a voxel along each axis, of the same shape as before: with another one pores
            are parted elsewhere.
        unit : str
            Unit of `spacing`.
        note : str, optional
            For the record: who says so.

        Returns
        -------
        Pores
            As `segment_pores` gives of the volume with this spacing, its first voxel at 0.

        Raises
        ------
        InputError
            If voxels have another shape.
        """
        if not is_proportional(self.volume.spacing, spacing):
            raise InputError(
                f"Voxels of {tuple(spacing)} have a different shape than those of "
                f"{self.volume.spacing}. Segment the pores again."
            )
        notes = [*self.volume.notes, *([note] if note else [])]
        volume = self.volume.replace(
            self.volume.data, spacing=tuple(spacing), unit=unit, origin=(), notes=notes
        )
        ratio = float(spacing[0] / self.volume.spacing[0])
        totals = resized_totals(self.provenance["result"], ratio, unit)
        walls, sample = void_walls(self.graph), totals["sample_voxels"]
        void = int(self.graph.sums[:, index_of("voxels")].sum())
        totals["specific_surface"] = surface_of(walls, volume) / (sample * volume.voxel_size)
        totals |= intercept_totals(walls, void, sample, volume)
        record = self.provenance
        size = {"spacing": list(volume.spacing), "unit": volume.unit}
        new_notes = notes[len(self.volume.notes) :]
        return self.measured_again(
            numbering_of(self.labels, self.graph),
            totals,
            volume=volume,
            provenance={
                **record,
                "input": {**record["input"], **size},
                "notes": [*record["notes"], *new_notes],
            },
            # columns of given labels, which have no unit of length
            further={n: self._columns.pores[n] for n in FURTHER if n in self._columns.pores},
            thickness={n: each.scaled(ratio) for n, each in self.thickness.items()},
            curve=resized_curve(self.curve, ratio, volume.n_spatial),
            transport=None if self.transport is None else self.transport.resized(volume),
        )

    def _require_uncorrected(self) -> None:
        """Raise InputError if pores were corrected by hand, which merging again would undo."""
        if self.corrections:
            raise InputError(
                f"These pores were corrected by hand ({len(self.corrections)} corrections), which "
                "merging again would undo. Merge the result from before the corrections."
            )

    def _numbered(self, settings: PoreSettings) -> PoreSettings:
        """Return settings with the minimum pore size that was used, if it was automatic."""
        used = self.provenance["result"].get("minimum_voxels", settings.minimum_voxels)
        return dataclasses.replace(settings, minimum_voxels=used)

    def _renumber(self, numbering: Numbering, settings: PoreSettings, by: dict[str, Any]) -> Pores:
        if not self.can_remerge:
            raise InputError("Labels of another program are measured as they are, not merged.")
        if self._slabs.on_disk:
            check_disk(self._basins.nbytes)
        columns = result_of(measured(self.graph, numbering, settings, self.volume))
        with closing(Scratch(self._slabs.on_disk)) as scratch, KernelThreads() as threads:
            labels = scratch.stack("labels", self._basins.shape, np.int32)
            result_of(write_labels(self._basins, numbering.label_of, self._slabs, labels, threads))
        # intervals and the detection limit belong to the previous merging
        settings = dataclasses.replace(settings, intervals=False, detection_limit=False)
        before = self.provenance["result"]
        kept = {name: value for name, value in before.items() if not is_of_interval(name)}
        small = small_totals(numbering, self.graph, self._numbered(settings))
        auxiliary = dict(self.provenance.get("auxiliary", {}))
        auxiliary.pop("markers", None)  # markers of the previous merging
        if settings.markers:
            markers = self.volume.auxiliary_of(settings, "markers")
            auxiliary["markers"] = identified(settings.markers, markers)
        record = {**self.provenance, "settings": settings.to_dict(), "auxiliary": auxiliary}
        return self.measured_again(
            numbering,
            {**kept, "merged_by": by, **small},
            columns=columns,
            settings=settings,
            provenance=record,
            labels=labels.array().reshape(self.volume.shape),
            curve={n: each for n, each in self.curve.items() if not n.startswith("density")},
        )


def thickness_title(phase: str) -> str:
    """Return the title of the local thickness of void or solid."""
    return f"thickness ({'pores' if phase == 'void' else phase})"


#: Relative tolerance for figures read from a table, which has 16 digits.
_CLOSE = 1e-9

_OTHERS = "The stored basins do not belong to these labels. Segment the pores again."


def restored(
    labels: Volume,
    arrays: Mapping[str, Array],
    provenance: dict[str, Any],
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> Pores:
    """Return a stored segmentation, so that it can be merged again.

    `labels`: stored labels, in memory; the result takes its origin and voxel size from them.
    `arrays`: stored arrays, as `Pores.merging_arrays` returns them. `provenance`: record of the
    job. `tables`: stored tables ``pores`` and ``throats``, which are compared with the restored
    ones.
    Raises InputError if the files do not belong together.
    """
    try:
        graph = BasinGraph.of_arrays(arrays)
        basins, sample = arrays["basins"], arrays["sample"]
        totals, name = provenance["result"], provenance["input"]["name"]
    except KeyError as error:
        raise InputError(
            f"The stored basins of these pores are incomplete: {error}. Segment the pores again."
        ) from None
    values = np.ascontiguousarray(labels.array(), np.int32)
    if basins.size != values.size or len(sample) != len(values):
        raise InputError(_OTHERS)
    numbering = numbering_of(values, graph)
    _check_labels(values, basins, numbering.labels_of)
    found = Pores.of(
        graph,
        numbering,
        PoreSettings.of_valid(provenance.get("settings", {})),
        labels.replace(values, name=name),
        totals,
        provenance=provenance,
        labels=values,
        sample=sample,
        # it was judged with the scan, whose air is not part of a stored result
        judges=False,
        _basins=Stack.of(basins),
        _slabs=Slabs(len(basins), len(basins), False),
    )
    for name, table in (tables or {}).items():
        _check_figures(getattr(found, name), table, name)
    return found


def _check_labels(labels: Int32s, basins: Array, label_of: Int32s) -> None:
    """Raise InputError unless pores consist of whole basins."""
    for pores, parts in zip(labels.reshape(basins.shape), basins, strict=True):
        if not np.array_equal(label_of[parts], pores):
            raise InputError(_OTHERS)


def _check_figures(found: pd.DataFrame, stored: pd.DataFrame, name: str) -> None:
    """Raise InputError if a stored table does not match the restored pores."""
    shared = [column for column in stored if column in found]
    same = len(found) == len(stored) and all(
        np.allclose(found[column], stored[column], _CLOSE, 0, equal_nan=True)
        for column in shared
        if stored[column].dtype.kind in "iuf" and found[column].dtype.kind in "iufb"
    )
    if not same:
        raise InputError(
            f"The stored basins do not match the table of {name}: one of the files was changed, or "
            "belongs to another result or another version of hushpore. Segment the pores again."
        )
