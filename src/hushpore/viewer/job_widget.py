"""The one widget behind every job, from the choice of a layer to its result."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Labels, Layer
from napari.utils.notifications import show_error, show_warning
from qtpy.QtCore import QEvent, Qt, QTimer
from qtpy.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from hushpore import jobs
from hushpore.base.errors import HushporeError
from hushpore.base.events import Note, Preview, Progress
from hushpore.viewer.device_choice import DeviceChoice
from hushpore.viewer.form import Field, SettingsForm, make_field
from hushpore.viewer.glyphs import Glyphs
from hushpore.viewer.layer_choice import LayerChoice
from hushpore.viewer.layer_field import LayerField
from hushpore.viewer.layers import volume_of
from hushpore.viewer.presets import PresetRow
from hushpore.viewer.previews import Previews
from hushpore.viewer.problem import Problem, explain
from hushpore.viewer.progress import (
    PARTS,
    Activity,
    Eta,
    Pace,
    bar_text,
    canvas_text,
    stage_in_words,
)
from hushpore.viewer.sentence import Sentence, link, plain_line, sign
from hushpore.viewer.status_line import StatusLine
from hushpore.viewer.target import Target, capture, slice_on_screen
from hushpore.viewer.timing_panel import TimingPanel
from hushpore.viewer.worker import JobWorker, Update

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.events import Job
    from hushpore.base.settings import Option, Settings
    from hushpore.base.volume import Volume

#: Milliseconds between two looks at the running job.
LOOK = 125

#: Seconds to wait for a job to stop when its widget goes away. One that is in a long step ends
#: after it by itself, unseen; the window does not stand still for that.
PATIENCE = 0.5

#: Name of the widget that shows the record of a layer.
RECORD = "How it was made"

LayerData = tuple[Any, dict[str, Any], str]


@dataclass(frozen=True)
class Outcome:
    """A finished job, made ready for the window in the worker's thread."""

    summary: str
    layers: list[Layer]
    timings: Mapping[str, float]


@dataclass
class Run:
    """What belongs to the job that runs now."""

    worker: JobWorker
    target: Target
    previews: Previews
    line: StatusLine
    activity: Activity | None = None
    eta: Eta = field(default_factory=Eta)
    pace: Pace = field(default_factory=Pace)
    notes: list[Note] = field(default_factory=list)


class JobWidget(QWidget):
    """Runs one kind of job on a layer and shows its result as layers.

    A subclass names the job and says which layers suit and how a result becomes layers. What it
    overrides as a class method may run in the worker's thread, and so has no access to the widget.

    Parameters
    ----------
    napari_viewer : napari.Viewer
        Given by napari.
    """

    #: Key of `hushpore.jobs.JOBS`.
    job: ClassVar[str]
    #: One sentence on what the job does, at the top of the widget.
    purpose: ClassVar[str]
    #: Name of the widget for the next step, and the link that opens it.
    next_step: ClassVar[tuple[str, str] | None] = None
    #: Stage that can be cut short with a result; empty for a job that has none before its end.
    ends_early_in: ClassVar[str] = ""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._now: Run | None = None
        self._running: list[JobWorker] = []
        self._details = ""
        self._title = jobs.JOBS[self.job].title
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK)
        self._timer.timeout.connect(self._look)
        self._build()
        self._make_ready()
        self.layers.changed.connect(self._show_facts)
        self._show_facts()
        # whichever way the widget goes, its job must not outlive it; nothing of the widget can be
        # asked by then, so this holds the list alone
        stop = partial(_stop, self._running)
        self.destroyed.connect(stop)
        QApplication.instance().aboutToQuit.connect(stop)

    def _make_ready(self) -> None:
        """Do now what would take seconds when Run is pressed."""
        Glyphs(self)
        self._importing = JobWorker(partial(_import, jobs.JOBS[self.job]), "hushpore imports")
        self._importing.start()

    # ---- what a subclass says

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Whether the job can work on a layer."""
        raise NotImplementedError

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Whether a layer is taken without being asked for."""
        return cls.accepts(layer)

    @classmethod
    def prepare(cls, target: Target) -> Volume:
        """Return the volume to give to the job; runs in the worker's thread."""
        return target.volume

    @classmethod
    def result_layers(cls, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result; runs in the worker's thread."""
        raise NotImplementedError

    def facts(self, volume: Volume) -> str:
        """Return the line about the chosen layer."""
        return volume.facts

    def settings(self) -> Settings:
        """Return the settings for a run.

        Raises
        ------
        InputError
            If one of them cannot be used.
        """
        return self.form.settings()

    def after_cancel(self) -> str:
        """Return what to offer once a job was cancelled, as HTML; empty where there is nothing."""
        return ""

    # ---- running

    @property
    def is_running(self) -> bool:
        """Whether a job of this widget runs."""
        return self._now is not None

    def run(self) -> None:
        """Start the job on the chosen layer; does nothing while one runs."""
        layer = self.layers.layer
        if self.is_running or layer is None:
            return
        self._details = ""
        self._result.say("")
        self._notes.say("")
        try:
            settings = self.settings()
            target = capture(layer, self._labels_of_axes(layer.ndim), self._layers_beside())
        except HushporeError as error:
            self._show_problem(explain(error))
            return
        # jobs on one device run one after another
        takes_gpu = jobs.JOBS[self.job].on_gpu or self.device.value() != "auto"
        line = self.device.resolved() if takes_gpu else "cpu"
        work = partial(self.work, target, settings, self.device.value())
        title = f"{self._title} {target.volume.name}"
        worker = JobWorker(work, title)
        worker.returned.connect(self._returned)
        worker.failed.connect(self._failed)
        worker.cancelled.connect(self._cancelled)
        self._now = now = Run(
            worker, target, Previews(self._viewer, target), StatusLine(self._viewer)
        )
        self._running.append(worker)
        self.timing.begin(worker.trace)
        self._show_running()
        now.activity = Activity(title, self.cancel)
        worker.start(line)
        self._look()
        self._timer.start()

    def cancel(self) -> None:
        """Ask the running job to stop."""
        if self._now is None:
            return
        self._now.worker.cancel()
        self._run_button.setText("Cancelling …")
        self._run_button.setEnabled(False)
        self._run_button.setToolTip("The job stops after the step that it is in.")
        self._allow_finish(False, "The job is being cancelled.")

    def finish(self) -> None:
        """Ask the running job to end now with what it has."""
        if self._now is None or not self.ends_early_in:
            return
        self._now.worker.finish(self.ends_early_in)
        self._finish_button.setText("Finishing …")
        self._allow_finish(False, "The result is made of what was learnt so far.")

    @classmethod
    def work(cls, target: Target, settings: Settings, device: str) -> Job:
        """Prepare, run and finish the job; driven in the worker's thread."""
        yield Progress("preparing", 0, 0, "", 0.0)
        volume = cls.prepare(target)
        result = yield from jobs.start(cls.job, volume, settings, device)
        # made here, for napari looks for contrast, thumbnail and colours when a layer is made
        layers = [Layer.create(*data) for data in cls.result_layers(result, target)]
        return Outcome(result.summary, layers, result.timings)

    def _layers_beside(self) -> list[Any]:
        """Return the layers that settings name, each once."""
        fields = self.form.fields.values()
        chosen = [field.layer for field in fields if isinstance(field, LayerField)]
        return list({id(layer): layer for layer in chosen if layer is not None}.values())

    def _labels_of_axes(self, ndim: int) -> tuple[str, ...]:
        return tuple(self._viewer.dims.axis_labels[-ndim:])

    # ---- while it runs

    def _look(self) -> None:
        """Take what the job has said since the last look, and show it."""
        if self._now is None:
            return
        before = self._now.worker.waits_for
        if before is not None and not self._now.worker.is_cancelling:
            self._stage.say(html.escape(f"waits for {before.name} to end"))
        index = slice_on_screen(self._viewer, self._now.target)
        if index is not None:
            self._now.worker.attend(index)
        self._show_update(self._now, self._now.worker.take())

    def _show_update(self, now: Run, update: Update) -> None:
        if update.notes:
            now.notes += update.notes
            self._show_notes(now.notes)
        if update.timing is not None:
            self.timing.show_timing(update.timing)
        self.timing.curve.add(update.metrics)
        for preview in update.previews.values():
            self._show_preview(now, preview)
        if update.progress is not None:
            self._show_progress(now, update.progress)

    def _show_progress(self, now: Run, progress: Progress) -> None:
        left = now.eta.left(progress.fraction)
        self._bar.setRange(0, PARTS if progress.fraction > 0 else 0)
        self._bar.setValue(round(PARTS * progress.fraction))
        self._bar.setFormat(bar_text(progress, left))
        text = html.escape(stage_in_words(progress))
        previewed = now.previews.place()
        if previewed is not None:
            text += " · " + link("preview", f"preview in slice {previewed}")
        self._stage.say(text)
        if not now.worker.is_cancelling and not now.worker.is_finishing:
            self._offer_finish(progress.stage)
        rate = now.pace.rate(progress)
        if rate is not None:
            self.timing.pace.add_point(f"{progress.unit}/s", now.pace.elapsed, rate)
        now.line.show(canvas_text(now.worker.name, progress, rate, left))
        if now.activity is not None:
            # last, for napari handles other events here, the end of this very job among them
            now.activity.show(progress)

    def _show_preview(self, now: Run, preview: Preview) -> None:
        """Show a preview; what goes wrong with it must not touch the job."""
        try:
            now.previews.show(preview)
        except Exception as error:
            now.notes.append(Note(f"The preview could not be shown: {error}", warning=True))
            self._show_notes(now.notes)

    def _go_to_preview(self) -> None:
        if self._now is not None:
            self._now.previews.go_to()

    # ---- the end

    def _returned(self, outcome: Outcome) -> None:
        assert self._now is not None
        previews, early = self._now.previews, self._now.worker.finished_early
        try:
            made = [
                previews.adopt(layer) or self._viewer.add_layer(layer) for layer in outcome.layers
            ]
        except Exception as error:
            self._failed(explain(error))
            return
        self._finish()
        if made:
            self._viewer.layers.selection.active = made[0]
        self.timing.show_totals(outcome.timings)
        text = ("Finished early. " if early else "") + html.escape(outcome.summary)
        if self.next_step is not None:
            text += ". " + link("next", self.next_step[1])
        text += " · " + link("record", RECORD)
        self._show_result(text)

    def _failed(self, problem: Problem) -> None:
        self._finish()
        self._show_problem(problem)

    def _cancelled(self) -> None:
        assert self._now is not None
        name = html.escape(self._now.target.volume.name)
        kept = html.escape(", ".join(self._now.previews.keep()))
        self._finish()
        became = f"What was done is kept as {kept}" if kept else "There was nothing to keep yet"
        text = f"Cancelled. {became}; {name} is unchanged."
        self._show_result(f"{text} {self.after_cancel()}".rstrip())

    def _finish(self) -> None:
        """Take down what belongs to the running job."""
        assert self._now is not None
        now, self._now = self._now, None
        self._timer.stop()
        self._running.clear()
        last = now.worker.take()
        self._show_update(now, Update(None, last.timing, {}, last.metrics, last.notes))
        now.previews.remove()
        now.line.remove()
        if now.activity is not None:
            now.activity.close()
        self._progress.hide()
        self._finish_button.hide()
        self._show_facts()

    def changeEvent(self, event: Any) -> None:  # noqa: N802
        """Stop the job when napari takes the widget out of its dock."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            _stop(self._running)

    # ---- what is shown

    def _make_field(self, opt: Option) -> Field:
        return LayerField(opt, self._viewer) if opt.beside else make_field(opt)

    def _build(self) -> None:
        self.layers = LayerChoice(self._viewer, self.accepts, self.prefers)
        self._facts = plain_line()
        self.form = SettingsForm(jobs.JOBS[self.job].settings, self._make_field)
        self.presets = PresetRow(self.job, self.form)
        self.device = DeviceChoice()
        self._run_button = QPushButton("Run")
        self._run_button.setStyleSheet("font-weight: bold; padding: 6px;")
        self._run_button.clicked.connect(self._press)
        self._finish_button = QPushButton("Finish now")
        self._finish_button.setStyleSheet("padding: 6px;")
        self._finish_button.clicked.connect(self.finish)
        self._finish_button.hide()
        self._result, self._notes = Sentence(self._viewer), Sentence(self._viewer)
        self._result.linkActivated.connect(self._follow)
        self.timing = TimingPanel(self._viewer)
        choice = QHBoxLayout()
        choice.addWidget(QLabel("Layer"))
        choice.addWidget(self.layers, 1)
        buttons = QHBoxLayout()
        buttons.addWidget(self._run_button, 1)
        buttons.addWidget(self._finish_button, 1)

        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(6, 6, 6, 6)
        column.setSpacing(6)
        column.addWidget(plain_line(self.purpose))
        column.addLayout(choice)
        column.addWidget(self._facts)
        column.addWidget(_rule())
        column.addWidget(self.form)
        column.addWidget(self.presets)
        column.addWidget(_rule())
        column.addWidget(self.device)
        column.addLayout(buttons)
        column.addWidget(self._build_progress())
        column.addWidget(self._result)
        column.addWidget(self._notes)
        column.addWidget(self.timing)
        column.addStretch(1)

        self._scroll = QScrollArea()
        self._scroll.setWidget(content)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._scroll)
        # what is inside must fit beside a scroll bar: there is none for the width
        self.setMinimumWidth(342)

    def _build_progress(self) -> QWidget:
        self._progress = QWidget()
        self._bar = QProgressBar()
        self._stage = Sentence(self._viewer)
        self._stage.linkActivated.connect(self._go_to_preview)
        column = QVBoxLayout(self._progress)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self._bar)
        column.addWidget(self._stage)
        self._progress.hide()
        return self._progress

    def _show_facts(self) -> None:
        """Say what the chosen layer is, and whether Run can be pressed."""
        layer, reason = self.layers.layer, ""
        if layer is None:
            text = reason = self._why_no_layer()
        else:
            try:
                volume = volume_of(layer, self._labels_of_axes(layer.ndim))
                text = "\n".join([self.facts(volume), *volume.notes])
            except HushporeError as error:
                text = reason = str(error)
        self._facts.setText(text)
        if not self.is_running:
            self._run_button.setText("Run")
            self._run_button.setEnabled(not reason)
            self._run_button.setToolTip(reason or f"{self._title} on this layer.")

    def _why_no_layer(self) -> str:
        for layer in self._viewer.layers:
            if getattr(layer, "rgb", False):
                return (
                    f"{layer.name} is a colour image (RGB), but grey values are needed. "
                    "Right-click the layer and choose 'Split RGB'."
                )
        return "Drop a CT stack on the window to begin, or try one: File > Open Sample > hushpore."

    def _show_running(self) -> None:
        self._run_button.setText("Cancel")
        self._run_button.setToolTip("Stop; only what the preview shows is kept.")
        self._finish_button.setText("Finish now")
        self._finish_button.setVisible(bool(self.ends_early_in))
        self._allow_finish(False, "Nothing has been learnt yet.")
        self._bar.setRange(0, 0)
        self._bar.setFormat("")
        self._stage.say("preparing")
        self._progress.show()
        self._bring_into_view(self._progress)

    def _offer_finish(self, stage: str) -> None:
        if stage == self.ends_early_in:
            self._allow_finish(True, "End now and keep the result so far.")
        else:
            self._allow_finish(False, f"While {stage} there is nothing to cut short.")

    def _allow_finish(self, is_allowed: bool, why: str) -> None:
        self._finish_button.setEnabled(is_allowed)
        self._finish_button.setToolTip(why)

    def _show_result(self, text: str) -> None:
        self._result.say(text)
        self._bring_into_view(self._result)

    def _show_problem(self, problem: Problem) -> None:
        self._details = problem.details
        text = f"{sign(not problem.expected)} {html.escape(problem.message)}"
        if not problem.expected:
            text += " " + link("copy", "copy details")
        self._show_result(text)
        (show_warning if problem.expected else show_error)(problem.message)

    def _show_notes(self, notes: list[Note]) -> None:
        lines = [
            f"{sign(False)} {html.escape(note.message)}"
            if note.warning
            else html.escape(note.message)
            for note in notes
        ]
        self._notes.say("<br>".join(lines))

    def _bring_into_view(self, widget: QWidget) -> None:
        """Scroll to a widget once it has its place."""
        self._wanted = widget
        QTimer.singleShot(0, self._scroll_to_wanted)

    def _scroll_to_wanted(self) -> None:
        self._scroll.ensureWidgetVisible(self._wanted, 0, 6)

    def _press(self) -> None:
        if self.is_running:
            self.cancel()
        else:
            self.run()

    def _follow(self, target: str) -> None:
        if target == "copy":
            QApplication.clipboard().setText(self._details)
        elif target == "record":
            self._open(RECORD)
        elif target == "next" and self.next_step is not None:
            self._open(self.next_step[0])

    def _open(self, name: str) -> None:
        dock, _ = self._viewer.window.add_plugin_dock_widget("hushpore", name, tabify=True)
        dock.show()
        dock.raise_()


def _stop(workers: list[JobWorker], *_: Any) -> None:
    """Cancel and wait, once however many signs of the end there are."""
    while workers:
        worker = workers.pop()
        worker.cancel()
        worker.wait(PATIENCE)


def _import(kind: jobs.Kind) -> Job:
    """Import the libraries behind a job, and have napari compile its colours of labels."""
    yield from ()
    kind.load()
    Labels(np.zeros((2, 2), np.int32))


def _rule() -> QFrame:
    rule = QFrame()
    # the name by which napari's style knows its own thin lines
    rule.setObjectName("QtCustomTitleBarLine")
    rule.setFixedHeight(1)
    return rule
