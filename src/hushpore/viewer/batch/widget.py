"""The widget that sends many scans through the same settings."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_error
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import (
    QCheckBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError
from hushpore.base.settings import Settings, option
from hushpore.runs.batch import TABLE, run_batch
from hushpore.runs.batch_workers import State
from hushpore.runs.last_used import remember, remembered
from hushpore.runs.pore_result import labels_file
from hushpore.runs.presets import load_preset
from hushpore.viewer.batch.scan_list import NAME, ScanList
from hushpore.viewer.forms.docking import SharesSide
from hushpore.viewer.forms.presets import PresetBox
from hushpore.viewer.forms.rich_label import Sentence, plain_line, sign
from hushpore.viewer.running.worker import JobWorker, stop_with

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hushpore.base.events import Job
    from hushpore.runs.batch import Batch, Batching
    from hushpore.viewer.running.problem import Problem

#: Name of the widget.
BATCH = "Batch of scans"
#: Milliseconds between two looks at the running batch.
LOOK = 200
#: Seconds to wait for a scan to stop when the window closes.
_PATIENCE = 0.8
#: Under which its options are remembered.
_NAME_KEPT = "batch"


@dataclass(frozen=True)
class BatchOptions(Settings):
    """What the widget begins with the next time; never which scans, nor where results go."""

    denoise: bool = option(True, "Denoise each scan before its pores are segmented.")
    resample: bool = option(False, "Interpolate uneven or missing slices.")
    jobs: int = option(1, "How many scans at once.", minimum=1, maximum=64)


class BatchWidget(QWidget):
    """Lists scans, runs them one by one or several at once, and opens their results.

    Parameters
    ----------
    napari_viewer : napari.Viewer
        Given by napari.
    """

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        SharesSide(self)
        self._viewer = napari_viewer
        self._worker: JobWorker | None = None
        self._running: list[JobWorker] = []
        self._states: dict[str, State] = {}
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK)
        self._timer.timeout.connect(self._look)
        self.setAcceptDrops(True)
        self._build()
        self._show_ready()
        stop_with(self, self._running, _PATIENCE)

    # ---- what is to be done

    @property
    def scans(self) -> list[str]:
        """The paths that are listed."""
        return self.tree.paths

    def add(self, paths: Iterable[str]) -> None:
        """List further scans: files, or folders that hold one scan each."""
        self.tree.add(paths)

    def run(self) -> None:
        """Start the batch; does nothing while one runs."""
        if self._worker is not None or not self.scans:
            return
        self._states, how = {}, self._how()
        if how is None:
            return
        remember(_NAME_KEPT, self._options())
        scans, states = self.scans, self._states
        self._worker = worker = JobWorker(
            lambda: _listening(run_batch(scans, **how), states), "hushpore batch"
        )
        worker.returned.connect(self._returned)
        worker.failed.connect(self._failed)
        worker.cancelled.connect(self._cancelled)
        self._running.append(worker)
        self._show_running()
        # jobs on one device run one after another
        worker.start("cpu")
        self._timer.start()

    def cancel(self) -> None:
        """Stop; what is done stays, and a new start goes on from there."""
        if self._worker is not None:
            self._run_button.setText("Stopping …")
            self._run_button.setEnabled(False)
            self._worker.cancel()

    def open_result(self, row: int) -> None:
        """Open the scan of a row and the pores of its result as layers."""
        name = self.tree.topLevelItem(row).text(NAME)
        folder = Path(self._output.text()).expanduser() / name
        labels = labels_file(folder)
        if not labels.exists():
            return
        try:
            self._viewer.open(self.scans[row], plugin="hushpore")
            self._viewer.open(str(labels), plugin="hushpore")
        except Exception as error:
            show_error(f"{name} cannot be opened: {error}")

    def _options(self) -> BatchOptions:
        return BatchOptions(
            self._denoise.isChecked(), self._resample.isChecked(), self._jobs.value()
        )

    def _how(self) -> dict[str, Any] | None:
        """Return how the batch is run, or None where that is not clear; says why."""
        try:
            settings = {
                job: load_preset(box.currentText(), job) for job, box in self._presets.items()
            }
        except HushporeError as error:
            self._result.say(f"{sign(False)} {html.escape(str(error))}")
            return None
        return {
            "output": Path(self._output.text()).expanduser(),
            "steps": {
                "denoise": settings["denoise"] if self._denoise.isChecked() else None,
                "pores": settings["pores"],
            },
            "device": "auto",
            "resample": self._resample.isChecked(),
            "jobs": self._jobs.value(),
            "overwrite": self._overwrite.isChecked(),
        }

    # ---- while it runs

    def _look(self) -> None:
        if self._worker is None:
            return
        update = self._worker.take()
        if update.progress is not None:
            progress = update.progress
            self._bar.setValue(round(1000 * progress.fraction))
            self._bar.setFormat(f"{progress.done} of {progress.total} scans")
        self.tree.show_states(self._states)

    def _returned(self, batch: Batch) -> None:
        self._finish()
        failed = f"{sign(False)} " if batch.count("failed") else ""
        table = html.escape(str(batch.folder / TABLE))
        self._result.say(f"{failed}{html.escape(batch.summary)}. The table: {table}")

    def _failed(self, problem: Problem) -> None:
        self._finish()
        self._result.say(f"{sign(not problem.expected)} {html.escape(problem.message)}")

    def _cancelled(self) -> None:
        self._finish()
        self._result.say("Stopped. Run goes on from here.")

    def _finish(self) -> None:
        self._look()
        self._timer.stop()
        self._running.clear()
        self._worker = None
        self._bar.hide()
        self._show_ready()

    # ---- how it looks

    def _build(self) -> None:
        self.tree = ScanList()
        self.tree.wanted.connect(self.open_result)
        self.tree.changed.connect(self._show_ready)
        self._files = _button("Add &files …", "Scans that are one file each.", self._ask_files)
        self._folder = _button("Add f&older …", "A folder that holds one scan.", self._ask_folder)
        self._remove = _button(
            "Remo&ve", "Take the selected scans off the list.", self.tree.take_off
        )
        self._denoise = QCheckBox("Denoise before pores are segmented")
        self._resample = QCheckBox("Interpolate uneven or missing slices")
        self._resample.setToolTip("Read each scan at an even spacing, where it is not even.")
        self._presets = {job: PresetBox(job) for job in ("denoise", "pores")}
        self._output = QLineEdit()
        self._output.setPlaceholderText("Folder for all results")
        self._output.textChanged.connect(self._show_ready)
        self._choose = _button("…", "Choose the folder.", self._ask_output)
        self._jobs = QSpinBox()
        self._jobs.setRange(1, 64)
        self._jobs.setToolTip("How many scans at once, as far as memory allows.")
        self._overwrite = QCheckBox("Make results of other settings again")
        self._run_button = QPushButton("Run")
        self._run_button.setStyleSheet("font-weight: bold; padding: 6px;")
        self._run_button.clicked.connect(lambda: self.cancel() if self._worker else self.run())
        self._bar = QProgressBar()
        self._bar.setRange(0, 1000)
        self._bar.hide()
        self._result, self._reason = Sentence(self._viewer), plain_line()
        self._lay_out()

    def _lay_out(self) -> None:
        buttons, where, form = QHBoxLayout(), QHBoxLayout(), QFormLayout()
        for button in (self._files, self._folder, self._remove):
            buttons.addWidget(button)
        where.addWidget(self._output, 1)
        where.addWidget(self._choose)
        form.addRow(self._resample)
        form.addRow(self._denoise)
        form.addRow("&Denoise preset", self._presets["denoise"])
        form.addRow("Po&res preset", self._presets["pores"])
        form.addRow("Results in", where)
        form.addRow("At on&ce", self._jobs)
        form.addRow(self._overwrite)
        column = QVBoxLayout(self)
        column.setContentsMargins(6, 6, 6, 6)
        column.addWidget(plain_line("Sends many scans through the same settings. What fails stops "
                                    "nothing; what is done is not done again."))  # fmt: skip
        column.addWidget(self.tree, 1)
        column.addLayout(buttons)
        column.addLayout(form)
        column.addWidget(self._run_button)
        column.addWidget(self._reason)
        column.addWidget(self._bar)
        column.addWidget(self._result)
        self._denoise.toggled.connect(self._presets["denoise"].setEnabled)
        last = remembered(_NAME_KEPT, BatchOptions) or BatchOptions()
        self._denoise.setChecked(last.denoise)
        self._resample.setChecked(last.resample)
        self._jobs.setValue(last.jobs)
        self.setMinimumWidth(300)

    def _show_ready(self) -> None:
        if self._worker is not None:
            return
        reason = ""
        if not self._output.text().strip():
            reason = "Choose a folder for the results first."
        if not self.scans:
            reason = "Add scans first: files, or folders with one scan each."
        self._run_button.setText("Run")
        self._run_button.setEnabled(not reason)
        self._run_button.setToolTip(reason or "Start, or go on where it was stopped.")
        self._reason.setText(reason)
        self._reason.setVisible(bool(reason))
        self._allow_changes(True)

    def _show_running(self) -> None:
        self._run_button.setText("Cancel")
        self._run_button.setToolTip("Stop; what is done stays.")
        self._result.say("")
        self._bar.setValue(0)
        self._bar.setFormat("")
        self._bar.show()
        self._allow_changes(False)

    def _allow_changes(self, allowed: bool) -> None:
        self.tree.is_fixed = not allowed
        for widget in (self._files, self._folder, self._remove, self._resample, self._denoise,
                       self._output, self._choose, self._jobs, self._overwrite):  # fmt: skip
            widget.setEnabled(allowed)
        self._presets["pores"].setEnabled(allowed)
        self._presets["denoise"].setEnabled(allowed and self._denoise.isChecked())

    def _ask_files(self) -> None:
        self.add(QFileDialog.getOpenFileNames(self, "Scans")[0])

    def _ask_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Folder of one scan")
        self.add([folder] if folder else [])

    def _ask_output(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, "Folder for all results")
        if folder:
            self._output.setText(folder)

    def dragEnterEvent(self, event: Any) -> None:  # noqa: N802
        """Take files and folders that are dragged in."""
        if event.mimeData().hasUrls() and self._worker is None:
            event.acceptProposedAction()

    def dropEvent(self, event: Any) -> None:  # noqa: N802
        """List them."""
        self.add(url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile())


def _listening(batch: Batching, states: dict[str, State]) -> Job:
    """Pass a batch's events on, and keep the newest state of each scan; in the worker's thread."""
    try:
        while True:
            try:
                event = next(batch)
            except StopIteration as end:
                done: Batch = end.value
                return done
            if isinstance(event, State):
                states[event.name] = event
            else:
                yield event
    finally:
        batch.close()


def _button(text: str, tip: str, pressed: Any) -> QPushButton:
    button = QPushButton(text)
    button.setToolTip(tip)
    button.clicked.connect(pressed)
    return button
