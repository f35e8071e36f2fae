"""The widget that runs many scans with the same settings."""

from __future__ import annotations

import dataclasses
import html
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicgui.widgets import CheckBox, FileEdit, LineEdit, create_widget
from napari.utils.notifications import show_error
from qtpy.QtCore import QEvent, QObject, QTimer
from qtpy.QtWidgets import (
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.settings import Settings, option
from hushpore.jobs import JOBS
from hushpore.runs.batch import TABLE, run_batch
from hushpore.runs.batch_groups import (
    draw_groups,
    group_table,
    has_figures,
    note_on_units,
    scan_figures,
)
from hushpore.runs.batch_workers import State
from hushpore.runs.pore_result import labels_file
from hushpore.runs.presets import load_preset, remember, remembered
from hushpore.runs.reading import Reading
from hushpore.viewer.batch.scan_list import ALLOW_COMPRESSED, NAME, ScanList
from hushpore.viewer.forms.device_choice import DeviceChoice
from hushpore.viewer.forms.docking import CANCEL, RUN, SharesSide, ValueOf, bind
from hushpore.viewer.forms.fields import compact_file_edit
from hushpore.viewer.forms.form import annotation_of
from hushpore.viewer.forms.layout import PinnedColumn, ScrolledColumn, fill
from hushpore.viewer.forms.presets import PresetBox
from hushpore.viewer.forms.rich_label import RichLabel, link, plain_label, sign
from hushpore.viewer.layers.reader import read_in_thread
from hushpore.viewer.results.plots import SAVE_TIP, PlotCanvas
from hushpore.viewer.running.progress import RunButtons
from hushpore.viewer.running.worker import JobWorker
from hushpore.viewer.running.worker_container import WorkerContainer, is_script

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from hushpore.runs.batch import Batch
    from hushpore.viewer.running.problem import Problem

#: Milliseconds between two updates of a running batch.
POLL_INTERVAL = 200
#: Name under which the options are remembered.
_REMEMBERED_AS = "batch"
_TRUST = (
    "Also read files compressed more than 1,000:1 or with more than 100,000 frames or pages, which "
    "may be damaged or fill the memory. Use it only for scans from a source that you trust."
)


@dataclass(frozen=True)
class BatchOptions(Settings):
    """The options that the widget remembers; scans and result folder are never remembered."""

    denoise: bool = option(True, "Denoise each scan before it is measured.", label="Denoise first")
    measure: str = option(
        "pores",
        "What to measure in each scan: pores, or phases (materials).",
        label="Measure",
        choices=("pores", "phases"),
    )
    pair: str = option(
        "",
        "Name of a repeat scan for each scan, or of the other half of its projections: {name}_odd "
        "is bread_odd.tif beside bread.tif, {name%_even}_odd is bread_odd.tif beside "
        "bread_even.tif, ../odd/{name} is in another folder. Empty: none.",
        label="Paired scan (Noise2Noise)",
    )
    resample: bool = option(
        False,
        "Interpolate scans with uneven or missing slices to an even spacing.",
        label="Resample uneven slices",
    )
    crop: str = option(
        "",
        "Part of each scan: sample (without surrounding air and padding), cylinder (the largest "
        "upright cylinder inside the sample), or a box in voxels along z,y,x: "
        "100:300,0:512,0:512. Empty: the whole scan.",
        label="Crop",
    )
    bin: str = option(
        "",
        "Average blocks of voxels, after cropping: 2, or along z,y,x: 1,2,2. Empty: no binning.",
        label="Bin",
    )
    groups: str = option(
        "",
        "Groups for the plots: 'folder' (the folder of each scan), or a CSV file with the columns "
        "name and group. Empty: one group.",
        label="Groups",
    )
    jobs: int = option(
        1, "Number of scans to process at once, if memory allows.", minimum=1, maximum=64,
        label="Scans at once",
    )  # fmt: skip


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
        SharesSide(self.native, "Batch")
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
        batch: Any = partial(run_batch, self.scans.value, **self._arguments())
        options = {opt.name: getattr(self, opt.name).value for opt in BatchOptions.options()}
        if not is_script():
            remember(_REMEMBERED_AS, BatchOptions(**options))
        self._states = {}
        worker = JobWorker(batch, "hushpore batch")
        worker.prepare = partial(_keep_state, self._states)
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
        if self.output.value is None:
            return
        folder = self.output.value.expanduser() / name
        found = [file for file in (labels_file(folder), folder / "phases.tif") if file.exists()]
        if not found:
            return
        # the labels lie above the scan, so they are opened after it
        then = partial(self._open_labels, name, found[0])
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
        """Return the arguments of `run_batch`."""
        denoise = load_preset(self.denoise_preset.value, "denoise")
        if self.pair.value:
            denoise = dataclasses.replace(denoise, **{"pair": self.pair.value})
        return {
            "output": self.output.value.expanduser(),
            "steps": {
                "denoise": denoise if self.denoise.value else None,
                self.measure.value: load_preset(
                    (self.pores_preset if self._of_pores else self.phases_preset).value,
                    self.measure.value,
                ),
            },
            "reading": Reading(
                resample=self.resample.value,
                crop=self.crop.value.strip(),
                bin=self.bin.value.strip(),
                voxel_size=self.voxel_size.value.strip(),
                trust=self.trust.value,
            ),
            "jobs": self.jobs.value,
            "overwrite": self.overwrite.value,
            "groups": self.groups.value.strip(),
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
            self._bar.setFormat(f"{progress.done} of {progress.total} scans")
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
        self._files = QPushButton("Add &files …", toolTip=tip, clicked=self._ask_files)
        tip = "Add a folder that holds one scan."
        self._folder = QPushButton("Add f&older …", toolTip=tip, clicked=self._ask_folder)
        tip = "Remove the selected scans from the list."
        self._remove = QPushButton("Remo&ve", toolTip=tip, clicked=tree.remove_selected)
        last = None if is_script() else remembered(_REMEMBERED_AS, BatchOptions)
        last = last or BatchOptions()
        for each in BatchOptions.options():
            field = create_widget(getattr(last, each.name), annotation_of(each))
            setattr(self, each.name, field)
        self.crop.native.setPlaceholderText("none, sample, cylinder, or a box")
        self.bin.native.setPlaceholderText("none, or 2")
        self.pair.native.setPlaceholderText("none, or {name}_odd")
        self.groups.native.setPlaceholderText("none, folder, or groups.csv")
        # never remembered, because it belongs to these scans
        self.voxel_size = LineEdit(
            name="voxel_size", annotation=str,
            tooltip="Voxel size of all scans, if their files give none or a wrong one: 15.4um, or "
            "along z, y and x: 5,0.49,0.49mm.",
        )  # fmt: skip
        self.voxel_size.native.setPlaceholderText("from the files, or 15.4um")
        self.denoise.changed.connect(self._allow_presets)
        self.measure.changed.connect(self._allow_presets)
        self.denoise_preset = ValueOf(lambda: PresetBox("denoise"), "denoise_preset")
        self.pores_preset = ValueOf(lambda: PresetBox("pores"), "pores_preset")
        self.phases_preset = ValueOf(lambda: PresetBox("phases"), "phases_preset")
        tip = "Folder for the results: a subfolder for each scan, and the table of all scans."
        self.output = FileEdit(mode="d", name="output", nullable=True, annotation=Path, tooltip=tip)
        compact_file_edit(self.output, "Folder for all results", "Folder for all results")
        self.output.changed.connect(self._show_ready)
        tip = "If off, the batch does not start when such results exist."
        self.overwrite = CheckBox(
            name="overwrite", text="Overwrite results of other settings", annotation=bool,
            tooltip=tip,
        )  # fmt: skip
        # never remembered: it should be a decision each time
        self.trust = CheckBox(
            name="trust", text=ALLOW_COMPRESSED, annotation=bool,
            tooltip=_TRUST,
        )  # fmt: skip
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
        form = QFormLayout()
        form.addRow("Voxel size", self.voxel_size.native)
        form.addRow(self.resample.native)
        form.addRow("Cr&op", self.crop.native)
        form.addRow("&Bin", self.bin.native)
        form.addRow(self.denoise.native)
        form.addRow("&Denoise preset", self.denoise_preset.native)
        form.addRow("Paired scan (&Noise2Noise)", self.pair.native)
        form.addRow("&Measure", self.measure.native)
        form.addRow("Po&res preset", self.pores_preset.native)
        form.addRow("&Phases preset", self.phases_preset.native)
        form.addRow("Results in", self.output.native)
        form.addRow("&Groups", self.groups.native)
        form.addRow("S&cans at once", self.jobs.native)
        form.addRow(self.overwrite.native)
        form.addRow(self.trust.native)
        purpose = plain_label(
            "Runs many scans with the same settings. Failures are skipped; finished scans are not "
            "repeated."
        )
        buttons = fill(QHBoxLayout(), self._files, self._folder, self._remove)
        scans = self.scans.native
        # scrolls, because a low window with Results open is too small for the form
        upper = ScrolledColumn(purpose, scans, buttons, form)
        upper.column.setStretchFactor(scans, 1000)
        lower = ScrolledColumn(self._reason, self._bar, self._result, self._show_plot)
        self.native.layout().addWidget(PinnedColumn(upper, self._buttons, lower))
        self.native.setMinimumWidth(300)
        # items and attributes of the container; their layout is done above
        self.extend([self.scans, self.voxel_size, self.resample, self.crop, self.bin, self.denoise,
                     self.denoise_preset, self.pair, self.measure, self.pores_preset,
                     self.phases_preset, self.output, self.groups, self.jobs,
                     self.overwrite, self.trust])  # fmt: skip

    def _why_not(self) -> str:
        """Return the reason why a batch cannot start; empty if it can."""
        if not self.scans.value:
            return "Add scans first: files, or folders with one scan each."
        has_folder = self.output.line_edit.value.strip()
        return "" if has_folder else "Choose a folder for the results first."

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
        self.scans.native.clear_figures()
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
        for widget in self[1:]:
            widget.enabled = allowed
        self._allow_presets()

    @property
    def _of_pores(self) -> bool:
        return bool(self.measure.value == "pores")

    def _allow_presets(self) -> None:
        """Enable the presets that have an effect, unless a batch runs."""
        allowed = not self.is_running
        self.denoise_preset.enabled = self.pair.enabled = allowed and self.denoise.value
        self.pores_preset.enabled = allowed and self._of_pores
        self.phases_preset.enabled = allowed and not self._of_pores

    def _ask_files(self) -> None:
        self.add(QFileDialog.getOpenFileNames(self.native, "Scans")[0])

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


def _keep_state(states: dict[str, State], event: object) -> None:
    """Keep the newest state of each scan; in the worker's thread."""
    if isinstance(event, State):
        states[event.name] = event
