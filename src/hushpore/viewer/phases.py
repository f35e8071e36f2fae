"""The widget that measures phases: its panels, its layers and its tables."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import CyclicLabelColormap
from qtpy.QtCore import QPointF, Qt
from qtpy.QtGui import QColor
from qtpy.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QHeaderView,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_grey
from hushpore.pores.phases.labelling import are_separate, find_thresholds
from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.phases.result import COLOURS
from hushpore.pores.settings import PoreSettings
from hushpore.scan.exterior import find_exterior
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import METADATA_KEY, known_of, layer_data
from hushpore.viewer.results.pore_layer import LENGTHS, map_layers
from hushpore.viewer.results.table import TableView
from hushpore.viewer.running.previews import OPACITY, SlicePreview
from hushpore.viewer.segment.grey_panel import GreyHistogram, GreyPanel, prepare_kernels
from hushpore.viewer.strokes import StrokePanel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pandas as pd
    from napari.layers import Layer
    from qtpy.QtGui import QPainter

    from hushpore.base.arrays import Float64s
    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.pores.phases.result import Phases
    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.runs.pipeline import Written
    from hushpore.viewer.forms.choices import LayerChoice
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker


def phase_layers(result: Phases, target: Target) -> list[LayerData]:
    """Return the layers of a result: labels with colours and names, regions, thickness."""
    common: dict[str, Any] = {"placement": target.placement, "provenance": result.provenance}
    name = target.named("phases")
    data, keywords, kind = labels_layer(result.labels_volume, result.phases, name=name, **common)
    keywords["metadata"][METADATA_KEY]["phases"] = result
    layers = [(data, keywords, kind)]
    if result.regions is not None:
        regions, name = result.regions_volume, target.named("regions")
        regions = regions.replace(result.regions.labels, name=name)
        layers.append(regions_layer(regions, result.region_table, result.names, **common))
    if result.thickness is not None:
        name = target.named("thickness")
        layers.append(thickness_layer(result.thickness_volume, name=name, **common))
    if result.probabilities is not None:
        doubt = result.volume.derived(result.doubt, target.named("doubt"))
        looks: dict[str, Any] = {"contrast_limits": (0.0, 100.0), "colormap": "inferno"}
        layers.append(layer_data(doubt, visible=False, **looks, **common))
    layers += map_layers(result.transport, result.provenance, target.placement)
    return layers


def labels_layer(labels: Volume, phases: pd.DataFrame, **more: Any) -> LayerData:
    """Return labels of phases in their colours, with their names.

    ``**more``: as for `hushpore.viewer.layers.conversion.layer_data`; also in the functions below.
    """
    features = features_of(phases)
    # not a DirectLabelColormap, for which napari compiles code for 1.5 s in every session
    colours = CyclicLabelColormap(colors=["transparent", *COLOURS])
    return layer_data(
        labels, "labels", colormap=colours, opacity=OPACITY, features=features, **more
    )


def regions_layer(
    regions: Volume, table: pd.DataFrame, names: Sequence[str], **more: Any
) -> LayerData:
    """Return the hidden layer of regions, with phase and size of each."""
    features = _regions_features(table, names)
    data, keywords, kind = layer_data(regions, "labels", visible=False, features=features, **more)
    keywords["metadata"][METADATA_KEY][LENGTHS] = True
    return data, keywords, kind


def thickness_layer(thickness: Volume, **more: Any) -> LayerData:
    """Return the hidden layer of local thickness, with colours from diameter 0."""
    values = thickness.array()
    largest = float(values[np.isfinite(values)].max(initial=0)) or 1.0
    limits = (0.0, largest)
    data, keywords, kind = layer_data(
        thickness, contrast_limits=limits, colormap="viridis", visible=False, **more
    )
    keywords["metadata"][METADATA_KEY][LENGTHS] = True
    return data, keywords, kind


def features_of(phases: pd.DataFrame) -> pd.DataFrame:
    """Return a table of phases as features, which napari shows for the label under the pointer."""
    columns = {"index": phases["phase"], "phase": phases["name"], "share": phases["share"]}
    return type(phases)(columns)


def _regions_features(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    named = table["phase"].map(dict(enumerate(names, 1)))
    columns = {"index": table["label"], "phase": named}
    sizes = {name: table[name] for name in ("volume", "equivalent_diameter")}
    return type(table)({**columns, **sizes})


def table_of(result: Phases) -> pd.DataFrame:
    """Return the table of phases as shown: without empty measures, the most important first."""
    first = ("name", "share", "specific_surface", "thickness", "thickness_deviation", "num_regions")
    measured = result.phases.dropna(axis=1, how="all").drop(columns="phase")
    shares = [f"{100 * share:.3g} %" for share in measured["share"]]
    return measured.assign(share=shares)[sorted(measured, key=lambda name: name not in first)]


def contacts_of(result: Phases) -> pd.DataFrame:
    """Return the table of contacts as shown."""
    table = result.contacts
    pairs = [f"{one} – {other}" for one, other in table[["name_1", "name_2"]].to_numpy()]
    measured = table[[measure.name for measure in CONTACTS[2:]]]
    return type(table)({"contact": pairs, **measured})


class PhasePreview(SlicePreview):
    """A preview of the phases in the slice on the screen."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "phases", "phases", COLOURS)

    def show(
        self,
        target: Target,
        settings: PhaseSettings,
        thresholds: tuple[float, ...],
        greys: GreySurvey,
    ) -> None:
        """Start to show the phases of a volume in the slice on the screen.

        Surrounding air is excluded as in `hushpore.pores.preview.SliceVoid`.
        """
        from hushpore.pores.preview import SliceVoid

        if not self.is_of(target):
            self.hide()
            self._void = SliceVoid(target.volume)
        how = settings.of_pores(thresholds[0])
        if settings.sample_mask:
            # the mask defines the sample
            how = dataclasses.replace(how, exterior="keep")
        self._follow(target, partial(_find, target.volume, self._void, thresholds, how, greys))


def _find(
    volume: Volume,
    void: SliceVoid,
    thresholds: tuple[float, ...],
    how: PoreSettings,
    greys: GreySurvey,
    index: tuple[int, ...],
) -> Job:
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.void.threshold import make_void

    yield from prepare_kernels(how)
    values = np.asarray(volume.data[index])
    labels = np.ones(values.shape, np.uint8)
    with KernelThreads(1) as threads:
        for threshold in thresholds:
            labels += make_void(values, threshold, True, threads)
    labels[void.excluded(index, how, greys)] = 0
    return labels


class PhaseHistogram(GreyHistogram):
    """A histogram of grey values, with the thresholds between phases as lines.

    The name of a line is the number of the phase below it.
    """

    TIP = (
        "Histogram of the grey values in the colours of the phases. Drag a line or click to move "
        "the nearest threshold, or use the left and right keys (Shift: larger steps). Up and down "
        "select the next line"
    )

    def _paint(self, painter: QPainter, text: QColor) -> None:
        """Draw the histogram; values of lines only where there is space."""
        self._written: list[tuple[float, float]] = []
        super()._paint(painter, text)

    def _kinds(
        self, values: Float64s, pale: QColor
    ) -> tuple[list[QColor], npt.NDArray[np.integer[Any]]]:
        if not self.lines:
            return [pale], np.zeros(values.size, np.int64)
        return [QColor(colour) for colour in COLOURS], np.searchsorted(
            [*self.lines.values()], values
        )

    def _paint_label(
        self, painter: QPainter, text: QColor, name: str, value: float, x: float
    ) -> None:
        label, metrics = readable_grey(value), painter.fontMetrics()
        width = metrics.horizontalAdvance(label)
        left = min(max(x - width / 2, 2.0), self.width() - width - 2.0)
        if any(left < end and start < left + width for start, end in self._written):
            # the value is also in the table
            return
        self._written.append((left - 4, left + width + 4))
        painter.setPen(text)
        painter.drawText(QPointF(left, metrics.ascent() + 1), label)

    def _word(self, name: str) -> str:
        return f"threshold above phase {name}"


_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class PhasePanel(GreyPanel):
    """The histogram of the input layer; moving a line sets the thresholds in the form.

    `form`: the form of `PhaseSettings`. `thresholds`: thresholds of the next run, if known.
    """

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        shown = QCheckBox(
            "Show phases",
            toolTip="Overlay the phases at these thresholds on the slice. Surrounding air is found "
            "slice by slice here; a sample mask is used in the run only.",
        )  # fmt: skip
        super().__init__(viewer, layers, form, PhaseHistogram(viewer), PhasePreview(viewer), shown)
        self.thresholds: tuple[float, ...] = ()
        self._build()
        self.follow()

    def _tell_form(self, layer: Any) -> None:
        self._form.know(holds_labels=layer is not None and not isinstance(layer, Image))

    # ---- synchronized with the form

    def _show(self) -> None:
        """Update lines, names and preview from the form."""
        settings = self._settings()
        if settings is None:
            return
        if settings.is_classified:
            self.thresholds = ()
            self.preview.hide()
            self._table.hide()
            self.histogram.show_lines({}, reason="Phases are found from strokes")
            return
        self.thresholds = settings.grey_values
        greys = None if self.greys is None else self.greys.of(settings.of_pores(0.0))
        reason = ""
        if not self.thresholds and greys is not None:
            try:
                self.thresholds = find_thresholds(greys.histogram, settings.phases)
            except InputError as error:
                reason = "No thresholds"
                self._say(str(error))
        self._form.know(thresholds=self.thresholds)
        self._otsu.setEnabled(bool(settings.grey_values))
        if greys is None:
            self._table.hide()
            return
        lines = {str(number): value for number, value in enumerate(self.thresholds, 1)}
        self.histogram.show_lines(lines, reason=reason)
        try:
            self._fill_table(settings.named(len(lines) + 1) if lines else (), greys)
        except InputError as error:
            # there are more names than phases
            self._say(str(error))
        if self.shown.isChecked() and self._target is not None and self.thresholds:
            self.preview.show(self._target, settings, self.thresholds, greys)

    def advice(self) -> str:
        """Return what to know before painting; empty if there is nothing to say."""
        if self.greys is not None and are_separate(self.greys.histogram, self.thresholds):
            return "The histogram has a clear valley at each threshold: thresholds may be enough."
        keep = PoreSettings(exterior="keep")
        if self._target is None or not (drift := find_exterior(self._target.volume, keep).drift):
            return ""
        text = f"The grey value of the solid drifts by {100 * drift:.0f} % of the contrast. "
        if (settings := self._settings()) is not None and settings.count == 2:
            return f"{text}Flatten the scan: thresholds may then be enough."
        # flattening takes the solids for one, and made strokes worse (docs/howto/strokes.md)
        return f"{text}Paint each phase where it is dark and where it is bright."

    def _moved(self, name: str, value: float) -> None:
        """Set a moved threshold in the form, between its neighbours."""
        step, values = self.histogram.step, list(self.thresholds)
        at = int(name) - 1
        moved = self.histogram.rounded(value)
        if at > 0:
            moved = max(moved, values[at - 1] + step)
        if at + 1 < len(values):
            moved = min(moved, values[at + 1] - step)
        before, after = values[max(at - 1, 0)], values[min(at + 1, len(values) - 1)]
        if (at > 0 and moved <= before) or (at + 1 < len(values) and moved >= after):
            # no space between the neighbours
            self._show()
            return
        values[at] = round(moved, 9)
        self.shown.setChecked(True)
        self._form["thresholds"].value = _as_text(values)

    def _renamed(self, item: QTableWidgetItem) -> None:
        settings = self._settings()
        if settings is None or item.column():
            return
        count = self._table.rowCount()
        names = [item.text().replace(",", " ").strip() for item in self._names(count)]
        unnamed = [f"phase {number}" for number in range(1, count + 1)]
        # default names are left out
        names = ["" if name == usual else name for name, usual in zip(names, unnamed, strict=True)]
        while names and not names[-1]:
            names.pop()
        self._form["names"].value = ", ".join(names)
        self._show()

    def _names(self, count: int) -> list[QTableWidgetItem]:
        return [cast("QTableWidgetItem", self._table.item(row, 0)) for row in range(count)]

    def _settings(self) -> PhaseSettings | None:
        try:
            settings = cast("PhaseSettings", self._form.value)
        except InputError as error:
            self._say(str(error))
            return None
        self._say("")
        return settings

    # ---- appearance

    def _build(self) -> None:
        self._otsu = QPushButton(
            "Otsu", clicked=self._find_again,
            toolTip="Find the thresholds with multi-Otsu again.",
        )  # fmt: skip
        self._otsu.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._table = table = QTableWidget(
            0, 3, accessibleName="Phases: names, grey values and shares",
            toolTip="Double-click a name to change it.",
            selectionMode=QTableWidget.SelectionMode.SingleSelection,
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
            # arrow keys move between cells, the Tab key leaves the table
            tabKeyNavigation=False,
        )  # fmt: skip
        table.setHorizontalHeaderLabels(["Phase", "Grey values", "Voxels"])
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 8)
        header = table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        table.itemChanged.connect(self._renamed)
        row = fill(QHBoxLayout(), self.shown, self._log, None, self._otsu, spacing=2)
        fill(QVBoxLayout(self), self.histogram, row, self._table, self._line, spacing=4)

    def _fill_table(self, names: Sequence[str], greys: GreySurvey) -> None:
        self._table.setVisible(bool(names))
        if not names:
            return
        ends = [float(greys.range.low), *self.thresholds, float(greys.range.high)]
        up_to = [0.0, *(greys.histogram.share_beyond(value) for value in self.thresholds), 1.0]
        with signals_blocked(self._table):
            self._table.setRowCount(len(names))
            for row, name in enumerate(names):
                low, high = (readable_grey(end) for end in ends[row : row + 2])
                share = f"{100 * max(up_to[row + 1] - up_to[row], 0.0):.3g} %"
                for column, text in enumerate((name, f"{low} – {high}", share)):
                    item = QTableWidgetItem(text)
                    if column:
                        item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEditable)
                        item.setTextAlignment(_RIGHT)
                    else:
                        item.setData(Qt.ItemDataRole.DecorationRole, QColor(COLOURS[row]))
                    self._table.setItem(row, column, item)
        rows = self._table.verticalHeader().defaultSectionSize() * len(names)
        self._table.setFixedHeight(self._table.horizontalHeader().sizeHint().height() + rows + 2)

    def _find_again(self) -> None:
        self._form["thresholds"].value = ""


def _as_text(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.10g}" for value in values)


class PhasesWidget(JobWidget):
    """Separates and measures phases; the result is a labels layer with two tables."""

    job = "phases"
    takes_labels = True
    in_one_image = "Phases are measured"
    room_for_result: ClassVar = (0.46, 27)

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self.panel = PhasePanel(napari_viewer, self.layer, self.form)
        self.tables = PhaseTables()
        upper, column = self._upper.column, self._lower.column
        parts = napari_viewer, self.layer, self.form, self.panel.advice, self._press_run
        self.strokes_panel = StrokePanel(*parts)
        for part in (self.panel, self.strokes_panel):
            upper.insertWidget(upper.indexOf(self.form.native), part)
        self.strokes_panel.follow()
        column.insertWidget(column.indexOf(self._result) + 1, self.tables)

    def run(self) -> JobWorker:
        """Start the job, and remove the preview, which the phases replace."""
        worker = super().run()
        self.panel.remove_preview()
        self.strokes_panel.stop()
        self.tables.hide()
        return worker

    @classmethod
    def result_layers(cls, result: Phases, target: Target) -> list[LayerData]:
        """Return labels in the colours of the phases, regions and thickness."""
        return phase_layers(result, target)

    @classmethod
    def cluster_layers(cls, result: Written, target: Target) -> list[LayerData]:
        """Return the same layers, of the result that the cluster has written."""
        return phase_layers(result.result, target)

    def settings(self) -> Settings:
        """Return the settings for a run; labels are used as phases."""
        settings = super().settings()
        if isinstance(self.layer.value, Labels):
            return dataclasses.replace(settings, are_labels=True)  # type: ignore[call-arg]
        return settings

    def facts(self, volume: Volume) -> str:
        """Return the line about the layer, with an explanation of labels."""
        facts = super().facts(volume)
        is_labels = isinstance(self.layer.value, Labels)
        return f"{facts} · each label counts as a phase" if is_labels else facts

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        super()._show_outcome(outcome, made)
        self.tables.show_result(outcome.result)

    def _show_message(self) -> None:
        super()._show_message()
        if hasattr(self, "tables"):
            # as long as the message about the run is shown
            message = self._messages.message
            is_chosen = message is not None and message.scan == self._messages.scan
            is_of_scan = is_chosen and self.result is not None
            if is_of_scan:
                self.tables.setVisible(self.tables.has_content)
            elif (measured := _measured(self.layer.value)) is not None:
                self.tables.show_result(measured)
            else:
                self.tables.hide()

    def _set_voxel_size(self, text: str) -> None:
        super()._set_voxel_size(text)
        measured = next(filter(None, map(_measured, [*self._made, self.layer.value])), None)
        if measured is None:
            # areas and lengths do not scale with the voxel shape
            self.tables.clear()
            return
        if self.result is not None:
            self.result = measured
        self.tables.show_result(measured)

    def _forget(self, event: Any) -> None:
        super()._forget(event)
        if self.result is None and hasattr(self, "tables"):
            self.tables.clear()


def _measured(layer: Layer | None) -> Phases | None:
    """Return the measured phases of a layer, if its voxel size has not changed."""
    phases = None if layer is None else known_of(layer).get("phases")
    if phases is None or not np.allclose(phases.volume.spacing, layer.scale):  # type: ignore[union-attr]
        return None
    measured: Phases = phases
    return measured


class PhaseTables(QWidget):
    """Tables of phases and of their contacts; hidden while empty."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = TableView("Measured phases", PHASES)
        self.contacts = TableView("Contacts between phases", CONTACTS)
        self.phases.rows.colours = COLOURS
        fill(QVBoxLayout(self), self.phases, self.contacts, spacing=4)
        self.hide()

    @property
    def has_content(self) -> bool:
        """Whether there are rows."""
        return self.phases.rows.rowCount() > 0

    def clear(self) -> None:
        """Empty and hide the tables."""
        self.phases.show_table(self.phases.rows.whole[:0])
        self.hide()

    def show_result(self, result: Phases) -> None:
        """Show the tables of a result."""
        volume = result.volume
        for view, table in (
            (self.phases, table_of(result)), (self.contacts, contacts_of(result)),
        ):  # fmt: skip
            view.show_table(table, volume.unit, volume.n_spatial)
            view.setFixedHeight(view.height_of(len(table)))
            view.setVisible(len(table) > 0)
        self.show()
