"""The widget that runs many scans with the same settings, and its list of scans."""

from __future__ import annotations

import dataclasses
import html
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from napari.utils.notifications import show_error
from qtpy.QtCore import QEvent, QObject, QSize, Qt, QTimer, Signal
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QHeaderView,
    QProgressBar,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.events import mapped
from hushpore.base.formatting import readable_number
from hushpore.base.settings import option
from hushpore.io.guards import CONSENT
from hushpore.jobs import JOBS
from hushpore.runs.batch import TABLE, run_batch
from hushpore.runs.batch_groups import (
    draw_groups,
    group_table,
    has_figures,
    note_on_units,
    scan_figures,
)
from hushpore.runs.batch_workers import State, names_of
from hushpore.runs.pore_result import labels_file
from hushpore.runs.presets import DEFAULT, load_preset, remember, remembered
from hushpore.runs.reading import Reading
from hushpore.viewer.forms.choices import DeviceChoice
from hushpore.viewer.forms.form import PresetField, SettingsForm
from hushpore.viewer.forms.layout import (
    CANCEL,
    RUN,
    PinnedColumn,
    RichLabel,
    ScrolledColumn,
    ValueOf,
    bind,
    fill,
    link,
    plain_label,
    sign,
)
from hushpore.viewer.layers.reader import read_in_thread
from hushpore.viewer.results.plots import SAVE_TIP, PlotCanvas
from hushpore.viewer.running.progress import RunButtons
from hushpore.viewer.running.status import POLL_INTERVAL
from hushpore.viewer.running.worker import JobWorker
from hushpore.viewer.running.worker_container import WorkerContainer, is_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from hushpore.base.events import Job
    from hushpore.runs.batch import Batch
    from hushpore.viewer.running.problem import Problem

T = TypeVar("T")

#: The first columns; the numbers of the results follow, and are shown before the result.
NAME, STATE, RESULT = range(3)

_TITLES = ("Scan", "State", "Result")
#: Advice on extremely compressed files.
_ALLOW = Reading.as_in_a_form("If you trust its source, set trust=True.")


class ScanList(QTreeWidget):
    """The list of scans without duplicates, named as their results."""

    #: Emitted when scans were added or removed.
    changed = Signal()
    #: Emitted with the row of a scan that the user opens by a double click or Enter.
    wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.is_fixed = False
        self.setHeaderLabels(_TITLES)
        self.setRootIsDecorated(False)
        self.setSelectionMode(QTreeWidget.SelectionMode.ExtendedSelection)
        self.header().setSectionResizeMode(STATE, QHeaderView.ResizeMode.ResizeToContents)
        self.header().setSectionsClickable(True)
        self.header().sectionClicked.connect(self._sort)
        self._sorted_by, self._is_ascending = -1, True
        self.setToolTip(
            "Double-click a finished scan to open it with its result. Click a title to sort."
        )
        self.setAccessibleName("Scans")
        self.itemDoubleClicked.connect(self._want)

    def sizeHint(self) -> QSize:  # noqa: N802
        """Return eight lines: the list takes the space that the form leaves."""
        return QSize(super().sizeHint().width(), 8 * self.fontMetrics().lineSpacing())

    def value(self) -> list[str]:
        """Return the paths of the scans."""
        items = (self.topLevelItem(row) for row in range(self.topLevelItemCount()))
        return [str(item.data(NAME, Qt.ItemDataRole.UserRole)) for item in items]

    def set(self, paths: Iterable[str | Path]) -> None:
        """Replace the list by these scans."""
        self.clear()
        self.add(paths)

    def add(self, paths: Iterable[str | Path]) -> None:
        """Add scans: files, or folders that hold one scan each."""
        listed = set(self.value())
        for path in (str(Path(given).resolve()) for given in paths):
            if path not in listed:
                listed.add(path)
                item = _Row([Path(path).name, "", ""])
                item.setData(NAME, Qt.ItemDataRole.UserRole, path)
                item.setToolTip(NAME, path)
                self.addTopLevelItem(item)
        self._name_rows()

    def remove_selected(self) -> None:
        """Remove the selected scans from the list."""
        for item in self.selectedItems():
            self.takeTopLevelItem(self.indexOfTopLevelItem(item))
        self._name_rows()

    def show_states(self, states: Mapping[str, State]) -> None:
        """Show the states of scans, by their names."""
        for row in range(self.topLevelItemCount()):
            item = self.topLevelItem(row)
            state = states.get(item.text(NAME))
            if state is not None:
                percent = f" {100 * state.fraction:.0f} %" if state.state == "running" else ""
                item.setText(STATE, state.state + percent)
                message = state.message.replace(CONSENT, _ALLOW)
                item.setText(RESULT, message)
                item.setToolTip(RESULT, message)

    def show_figures(self, figures: pd.DataFrame) -> None:
        """Show the numbers of results in columns; see `hushpore.runs.batch_groups.scan_figures`."""
        self.setColumnCount(len(_TITLES) + figures.shape[1])
        self.setHeaderLabels([*_TITLES, *map(str, figures)])
        for row in range(self.topLevelItemCount()):
            item = self.topLevelItem(row)
            name = item.text(NAME)
            values = figures.loc[name] if name in figures.index else [float("nan")] * len(figures.T)
            for column, value in enumerate(values, len(_TITLES)):
                key = value
                if isinstance(value, str):
                    # imported late: with the pore engine
                    from hushpore.pores.forms.limits import VERDICTS

                    text, key = value, VERDICTS.index(value)
                elif figures.columns[column - len(_TITLES)] == "Pores":
                    text = f"{value:,.0f}"
                else:
                    text = readable_number(value)
                item.setText(column, "" if isinstance(key, float) and math.isnan(key) else text)
                item.setData(column, Qt.ItemDataRole.UserRole, float(key))
                item.setTextAlignment(column, Qt.AlignmentFlag.AlignRight)
        # the headline of a result is long
        header = self.header()
        header.moveSection(header.visualIndex(RESULT), header.count() - 1)
        for column in range(len(_TITLES), header.count()):
            self.resizeColumnToContents(column)

    def _sort(self, column: int) -> None:
        """Sort by a column; a second click reverses the order."""
        self._is_ascending = column != self._sorted_by or not self._is_ascending
        self._sorted_by = column
        order = Qt.SortOrder.AscendingOrder if self._is_ascending else Qt.SortOrder.DescendingOrder
        self.header().setSortIndicatorShown(True)
        self.header().setSortIndicator(column, order)
        self.sortItems(column, order)

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Remove scans with Delete, and open one with Enter."""
        if event.matches(QKeySequence.StandardKey.Delete) and not self.is_fixed:
            self.remove_selected()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentItem():
            self._want(self.currentItem())
        else:
            super().keyPressEvent(event)

    def _want(self, item: QTreeWidgetItem) -> None:
        self.wanted.emit(self.indexOfTopLevelItem(item))

    def _name_rows(self) -> None:
        for row, name in enumerate(names_of([Path(path) for path in self.value()])):
            self.topLevelItem(row).setText(NAME, name)
        self.changed.emit()


class _Row(QTreeWidgetItem):
    """A scan, sorted by the numbers of a column, or else by its text."""

    def __lt__(self, other: QTreeWidgetItem) -> bool:
        column = self.treeWidget().sortColumn()
        if column < len(_TITLES):
            return bool(self.text(column).casefold() < other.text(column).casefold())
        ours, theirs = (row.data(column, Qt.ItemDataRole.UserRole) for row in (self, other))
        # scans without a number come first
        first, second = (
            -math.inf if value is None or math.isnan(value) else value for value in (ours, theirs)
        )
        return bool(first < second)


#: Name under which the options are remembered.
_REMEMBERED_AS = "batch"


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Reading):
    """The settings of a batch; scans, names and paths are never remembered."""

    denoise: bool = option(True, "Denoise each scan before it is measured.", label="Denoise first")
    denoise_preset: str = option(DEFAULT, "Saved settings for denoising.")
    one_network: bool = option(
        False,
        "Train one network on the middles of all scans, and denoise each with it, instead of a "
        "network for each. For one kind of sample, scanned with the same settings.",
        label="One network for all",
    )
    pair: str = option(
        "",
        "Name of a repeat scan for each scan, or of the other half of its projections: {name}_odd "
        "is bread_odd.tif beside bread.tif, {name%_even}_odd is bread_odd.tif beside "
        "bread_even.tif, ../odd/{name} is in another folder. Empty: none.",
        label="Paired scan (Noise2Noise)",
    )
    measure: str = option(
        "pores",
        "What to measure in each scan: pores, or phases (materials).",
        choices=("pores", "phases"),
    )
    pores_preset: str = option(DEFAULT, "Saved settings for pores.")
    phases_preset: str = option(DEFAULT, "Saved settings for phases.")
    output: str = option(
        "",
        "Folder for the results: a subfolder for each scan, and the table of all scans.",
        label="Results in",
        path="folder",
    )
    groups: str = option(
        "",
        "Groups for the plots: 'folder' (the folder of each scan), or a CSV file with the columns "
        "name and group. Empty: one group.",
    )
    jobs: int = option(
        1, "Number of scans to process at once, if memory allows.", minimum=1, maximum=64,
        label="Scans at once",
    )  # fmt: skip
    overwrite: bool = option(
        False,
        "If off, the batch does not start when such results exist.",
        label="Overwrite other settings",
        of_run=True,
    )

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return the reasons why settings have no effect with the others, by name."""
        other = "phases" if self.measure == "pores" else "pores"
        unused = {f"{other}_preset": f"Not used: {self.measure} are measured."}
        if not self.denoise:
            unused |= dict.fromkeys(
                ("denoise_preset", "one_network", "pair"), "Not used: nothing is denoised."
            )
        return unused


#: Settings in the form: all of the batch, and of reading those that suit many scans.
_SHOWN = (
    *("voxel_size", "resample", "crop", "bin", "trust"),
    *(opt.name for opt in BatchOptions.options()[len(Reading.options()) :]),
)

#: What is shown in empty fields.
_IF_EMPTY = {
    "voxel_size": "from the files, or 15.4um",
    "crop": "none, sample, cylinder, or a box",
    "bin": "none, or 2",
    "pair": "none, or {name}_odd",
    "groups": "none, folder, or groups.csv",
}


class BatchWidget(WorkerContainer):
    """Lists scans, runs them one by one or several at once, and opens their results.

    A magicgui container of scans, settings and the result folder::

        batch.scans.value = ["one.tif", "two.tif"]
        batch.output.value = "results"
        batch.run()
        print(batch.wait().summary)
    """

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(name="batch")
        self._viewer = napari_viewer
        self._states: dict[str, State] = {}
        self._timer = QTimer(self.native, interval=POLL_INTERVAL, timeout=self._look)
        _Drops(self)
        self._build()
        self._show_ready()

    # ---- running

    def add(self, paths: Iterable[str | Path]) -> None:
        """Add scans: files, or folders that hold one scan each."""
        self.scans.native.add(paths)

    def run(self) -> JobWorker:
        """Start the batch, unless one runs; return its worker.

        Raises InputError if there are no scans, there is no folder for the results, or a preset
        cannot be read.
        """
        if self.worker is not None:
            return self.worker
        reason = self._why_not()
        if reason:
            raise InputError(reason)
        scans, arguments = self.scans.value, self._arguments()
        if not is_script():
            remember(_REMEMBERED_AS, self.form.value)
        states = self._states = dict[str, State]()

        def work() -> Job:
            return mapped(run_batch(scans, **arguments), partial(_keep_state, states))

        worker = JobWorker(work, "hushpore batch")
        self._follow_worker(worker)
        self._show_running()
        # jobs on one device run one after another
        first = "denoise" if self.denoise.value else self.measure.value
        worker.start(self._device.resolved(JOBS[first]))
        self._timer.start()
        return worker

    @property
    def _if_closed(self) -> str:
        return "it stops; finished scans are kept, and a new run continues with the others"

    def cancel(self) -> None:
        """Stop the batch; finished scans are kept, and a new start continues from there."""
        if self.worker is not None:
            self._buttons.show_cancelling()
            self.worker.cancel()

    def open_result(self, row: int) -> None:
        """Open the scan of a row and the pores or phases of its result as layers."""
        name = self.scans.native.topLevelItem(row).text(NAME)
        if not self.output.value:
            return
        folder = Path(self.output.value) / name
        files = [file for file in (labels_file(folder), folder / "phases.tif") if file.exists()]
        if not files:
            return
        # the labels lie above the scan, so they are opened after it
        then = partial(self._open_labels, name, files[0])
        read_in_thread(self._viewer, self.scans.value[row], trust=self.trust.value, then=then)

    def _open_labels(self, name: str, file: Path) -> None:
        try:
            self._viewer.open(str(file), plugin="hushpore")
        except Exception as error:
            show_error(f"The result of {name} cannot be opened: {error}")

    def plot(self) -> PlotCanvas:
        """Plot the scans of the finished batch by group, in a dock below the canvas.

        Raises InputError if there is nothing to plot.
        """
        if self.result is None or not has_figures(table := _grouped(self.result)):
            raise InputError("Nothing to plot yet. Run a batch first.")
        canvas = PlotCanvas(self._viewer)
        draw_groups(canvas.figure, table)
        canvas.numbers = group_table(table)
        canvas.setMinimumHeight(220)
        save = QPushButton("&Save plot …", toolTip=SAVE_TIP)
        save.clicked.connect(partial(canvas.ask_and_save, "groups.png"))
        panel = QWidget()
        fill(QVBoxLayout(panel), canvas, fill(QHBoxLayout(), None, save), margin=6, wide=canvas)
        canvas.show_figure()
        self._viewer.window.add_dock_widget(panel, name="Scans of the batch", area="bottom")
        return canvas

    def _arguments(self) -> dict[str, Any]:
        options = cast("BatchOptions", self.form.value)
        denoise = load_preset(options.denoise_preset, "denoise")
        if options.pair:
            denoise = dataclasses.replace(denoise, **{"pair": options.pair})
        preset = getattr(options, f"{options.measure}_preset")
        reading = {opt.name: getattr(options, opt.name) for opt in Reading.options()}
        return {
            "output": options.output,
            "steps": {
                "denoise": denoise if options.denoise else None,
                options.measure: load_preset(preset, options.measure),
            },
            "reading": Reading(**reading),
            "jobs": options.jobs,
            "overwrite": options.overwrite,
            "groups": options.groups,
            "one_network": options.one_network,
        }

    def _press(self) -> None:
        try:
            self.run()
        except HushporeError as error:
            self._result.say(f"{sign(False)} {html.escape(str(error))}")

    # ---- while it runs

    def _look(self) -> None:
        if self.worker is None:
            return
        update = self.worker.take()
        if update.progress is not None:
            progress = update.progress
            self._bar.setValue(round(1000 * progress.fraction))
            self._bar.setFormat(f"{progress.done} of {progress.total} {progress.unit}")
        self.scans.native.show_states(self._states)

    def _returned(self, batch: Batch) -> None:
        self._finish()
        failed = f"{sign(False)} " if batch.count("failed") else ""
        table = link((batch.folder / TABLE).as_uri(), TABLE)
        grouped = _grouped(batch)
        has_plot = has_figures(grouped)
        if has_plot:
            self.scans.native.show_figures(scan_figures(batch.table))
        note = html.escape(note_on_units(grouped)) if has_plot else ""
        units = f"<br>{sign(False)} {note}" if note else ""
        self._result.say(f"{failed}{html.escape(batch.summary)}. Table: {table}{units}")
        self.result = batch
        self._show_plot.setVisible(has_plot)
        self.called.emit(batch)

    def _failed(self, problem: Problem) -> None:
        self._finish()
        self._result.say(f"{sign(not problem.expected)} {html.escape(problem.message)}")
        self.failed.emit(problem)

    def _cancelled(self) -> None:
        self._finish()
        self._result.say("Stopped. Run continues from here.")
        self.failed.emit(None)

    def _finish(self) -> None:
        self._look()
        self._timer.stop()
        self._workers.clear()
        self._bar.hide()
        self._show_ready()

    # ---- appearance

    def _build(self) -> None:
        self.scans = ValueOf(ScanList, "scans", list[str])
        tree = self.scans.native
        tree.wanted.connect(self.open_result)
        self.scans.changed.connect(self._show_ready)
        tip = "Add scans that are single files."
        self._files = QPushButton(
            "Add &files …",
            minimumWidth=40,
            toolTip=tip,
            clicked=lambda: self.add(QFileDialog.getOpenFileNames(self.native, "Scans")[0]),
        )
        tip = "Add a folder that holds one scan."
        self._folder = QPushButton(
            "Add f&older …", minimumWidth=40, toolTip=tip, clicked=self._ask_folder
        )
        tip = "Remove the selected scans from the list."
        self._remove = QPushButton(
            "Remo&ve", minimumWidth=40, toolTip=tip, clicked=tree.remove_selected
        )
        presets = {f"{job}_preset": PresetField for job in ("denoise", "pores", "phases")}
        self.form = SettingsForm(BatchOptions, shown=_SHOWN, fields=presets)
        last = None if is_script() else remembered(_REMEMBERED_AS, BatchOptions)
        if last is not None:
            self.form.value = last
        for name, hint in _IF_EMPTY.items():
            self.form[name].native.setPlaceholderText(hint)
        self.form.output.changed.connect(self._show_ready)
        # hidden; it only determines the device of "auto"
        self._device = DeviceChoice()
        self._device.setParent(self.native)
        self._device.hide()
        self._buttons = RunButtons("Batch", "", "Finished scans are kept.")
        self._buttons.run.clicked.connect(self._press)
        self._buttons.cancel.clicked.connect(self.cancel)
        bind(self.native, RUN, self._buttons.run.click)
        bind(self.native, CANCEL, self.cancel)
        self._bar = QProgressBar(maximum=1000, visible=False)
        tip = "Plot all scans by group: porosity, number and size of pores, or phase fractions."
        self._show_plot = QPushButton("&Plot scans", toolTip=tip, clicked=self.plot, visible=False)
        self._result, self._reason = RichLabel(self._viewer), plain_label()
        self._result.setOpenExternalLinks(True)
        self._lay_out()

    def _lay_out(self) -> None:
        purpose = plain_label(
            "Runs many scans with the same settings. Failures are skipped; finished scans are not "
            "repeated."
        )
        buttons = fill(QHBoxLayout(), self._files, self._folder, self._remove, spacing=2)
        scans = self.scans.native
        # scrolls, because a low window with Results open is too small for the form
        upper = ScrolledColumn(purpose, scans, buttons, self.form.native)
        upper.column.setStretchFactor(scans, 1000)
        lower = ScrolledColumn(self._reason, self._bar, self._result, self._show_plot)
        self.native.layout().addWidget(PinnedColumn(upper, self._buttons, lower))
        # items and attributes of the container; their layout is done above
        self.extend([self.scans, *self.form])

    def _why_not(self) -> str:
        if not self.scans.value:
            return "Add scans first: files, or folders with one scan each."
        return "" if self.output.value else "Choose a folder for the results first."

    def _show_ready(self) -> None:
        if self.is_running:
            return
        reason = self._why_not()
        self._buttons.show_idle(reason, "Start, or continue where the batch was stopped")
        self._reason.setText(reason)
        self._reason.setVisible(bool(reason))
        self._allow_changes(True)

    def _show_running(self) -> None:
        self._show_plot.hide()
        # the numbers of an earlier batch
        self.scans.native.setColumnCount(len(_TITLES))
        self._buttons.show_running()
        self._result.say("")
        self._bar.setValue(0)
        self._bar.setFormat("")
        self._bar.show()
        self._allow_changes(False)

    def _allow_changes(self, allowed: bool) -> None:
        self.scans.native.is_fixed = not allowed
        for button in (self._files, self._folder, self._remove):
            button.setEnabled(allowed)
        self.form.native.setEnabled(allowed)

    def _ask_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self.native, "Folder of one scan")
        self.add([folder] if folder else [])


class _Drops(QObject):
    """Adds files and folders that are dropped on the widget."""

    def __init__(self, batch: BatchWidget) -> None:
        super().__init__(batch.native)
        self._batch = batch
        batch.native.setAcceptDrops(True)
        batch.native.installEventFilter(self)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        """Accept local files and folders, unless a batch runs."""
        if event.type() == QEvent.Type.DragEnter and event.mimeData().hasUrls():
            if not self._batch.is_running:
                event.acceptProposedAction()
            return True
        if event.type() == QEvent.Type.Drop:
            urls = event.mimeData().urls()
            self._batch.add(url.toLocalFile() for url in urls if url.isLocalFile())
            return True
        return False


def _grouped(batch: Batch) -> pd.DataFrame:
    """Return the table of a batch with a column of groups; one group if there are none."""
    if "group" in batch.table:
        return batch.table
    return batch.table.assign(group="all scans")


def _keep_state(states: dict[str, State], event: T) -> T:
    """Keep the newest state of each scan; in the worker's thread."""
    if isinstance(event, State):
        states[event.name] = event
    return event
