"""The one widget behind every job, from the choice of a layer to its result."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from napari.layers import Image, Layer
from napari.utils.colormaps import AVAILABLE_COLORMAPS
from napari.utils.notifications import show_error, show_warning
from napari.utils.theme import get_theme
from qtpy.QtCore import QEvent, Qt, QTimer
from qtpy.QtGui import QColor
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
from hushpore.viewer.form import SettingsForm
from hushpore.viewer.layer_choice import LayerChoice
from hushpore.viewer.layers import KEY, Placement, placement_of, volume_of
from hushpore.viewer.problem import Problem, explain
from hushpore.viewer.progress import PARTS, Activity, Eta, bar_text, stage_in_words
from hushpore.viewer.timing_panel import TimingPanel
from hushpore.viewer.worker import JobWorker, Update

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume

#: Milliseconds between two looks at the running job.
LOOK = 125

#: Seconds to wait for a job to stop when its widget goes away.
PATIENCE = 10.0

#: Places in a sentence where a colour of the theme goes.
_TEXT, _WARNING, _ERROR = "@text@", "@warning@", "@error@"

LayerData = tuple[Any, dict[str, Any], str]


@dataclass(frozen=True)
class Target:
    """The layer as it was when Run was pressed: what happens to it later changes nothing.

    Attributes
    ----------
    volume : Volume
        Its values and geometry.
    placement : Placement
        Where it lies.
    kind : str
        ``"image"`` or ``"labels"``.
    look : dict
        Contrast limits, gamma and colour map of an image, for results shown beside it.
    """

    volume: Volume
    placement: Placement
    kind: str
    look: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A finished job, made ready for the window in the worker's thread."""

    summary: str
    layers: list[LayerData]
    timings: Mapping[str, float]


@dataclass
class _Run:
    """What belongs to the job that runs now."""

    worker: JobWorker | None = None
    target: Target | None = None
    activity: Activity | None = None
    eta: Eta = field(default_factory=Eta)
    notes: list[Note] = field(default_factory=list)
    previews: dict[str, Any] = field(default_factory=dict)

    def stop(self, *_: Any) -> None:
        """Cancel, and wait for the thread."""
        if self.worker is not None and self.worker.is_running:
            self.worker.cancel()
            self.worker.wait(PATIENCE)


class JobWidget(QWidget):
    """Runs one kind of job on a layer and shows its result as layers.

    A subclass names the job and says which layers suit and how a result becomes layers. What it
    overrides as a class method runs in the worker's thread, and so has no access to the widget.

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

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._now = _Run()
        self._details = ""
        self._said: dict[QLabel, str] = {}
        self._title = jobs.JOBS[self.job].title
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK)
        self._timer.timeout.connect(self._look)
        self._build()
        self.layers.changed.connect(self._show_facts)
        napari_viewer.events.theme.connect(self._repaint)
        self._show_facts()
        # whichever way the widget goes, its job must not outlive it; a partial, for Qt does not
        # keep alive what a bound method belongs to
        stop = partial(_Run.stop, self._now)
        self.destroyed.connect(stop)
        QApplication.instance().aboutToQuit.connect(stop)

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

    # ---- running

    @property
    def is_running(self) -> bool:
        """Whether a job of this widget runs."""
        return self._now.worker is not None

    def run(self) -> None:
        """Start the job on the chosen layer; does nothing while one runs."""
        layer = self.layers.layer
        if self.is_running or layer is None:
            return
        self._clear_messages()
        try:
            target = self._capture(layer)
            settings = self.form.settings()
        except HushporeError as error:
            self._show_problem(explain(error))
            return
        work = partial(self.work, target, settings, self.device.value())
        worker = JobWorker(work, f"hushpore {self.job}")
        self._now.worker, self._now.target = worker, target
        self._now.eta, self._now.notes, self._now.previews = Eta(), [], {}
        worker.returned.connect(self._returned)
        worker.failed.connect(self._failed)
        worker.cancelled.connect(self._cancelled)
        self._show_running()
        self._now.activity = Activity(f"{self._title}: {target.volume.name}", self.cancel)
        worker.start()
        self._timer.start()

    def cancel(self) -> None:
        """Ask the running job to stop."""
        if self._now.worker is None:
            return
        self._now.worker.cancel()
        self._run_button.setText("Cancelling …")
        self._run_button.setEnabled(False)
        self._run_button.setToolTip("The job stops after the step that it is in.")

    @classmethod
    def work(cls, target: Target, settings: Settings, device: str) -> Job:
        """Prepare, run and finish the job; driven in the worker's thread."""
        yield Progress("preparing", 0, 0, "", 0.0)
        volume = cls.prepare(target)
        result = yield from jobs.start(cls.job, volume, settings, device)
        return Outcome(result.summary, cls.result_layers(result, target), result.timings)

    def _capture(self, layer: Any) -> Target:
        kind, look = "labels", dict[str, Any]()
        if isinstance(layer, Image):
            kind = "image"
            look = {"contrast_limits": tuple(layer.contrast_limits), "gamma": layer.gamma}
            if layer.colormap.name in AVAILABLE_COLORMAPS:
                look["colormap"] = layer.colormap.name
        volume = volume_of(layer, self._labels_of_axes(layer.ndim))
        return Target(volume, placement_of(layer), kind, look)

    def _labels_of_axes(self, ndim: int) -> tuple[str, ...]:
        return tuple(self._viewer.dims.axis_labels[-ndim:])

    # ---- while it runs

    def _look(self) -> None:
        """Take what the job has said since the last look, and show it."""
        worker = self._now.worker
        if worker is not None:
            self._show_update(worker.take())

    def _show_update(self, update: Update) -> None:
        self._now.notes += update.notes
        if update.notes:
            self._show_notes(self._now.notes)
        if update.timing is not None:
            self.timing.show_stages(
                {name: stage.seconds for name, stage in update.timing.stages.items()}
            )
        for preview in update.previews.values():
            self._try_preview(preview)
        if update.progress is not None:
            self._show_progress(update.progress)

    def _show_progress(self, progress: Progress) -> None:
        left = self._now.eta.left(progress.fraction)
        busy = progress.fraction <= 0
        self._bar.setRange(0, 0 if busy else PARTS)
        self._bar.setValue(round(PARTS * progress.fraction))
        self._bar.setFormat(bar_text(progress, left))
        self._say(self._stage, html.escape(stage_in_words(progress)) + self._preview_place())
        if self._now.activity is not None:
            # last, for napari handles other events here, the end of this very job among them
            self._now.activity.show(progress)

    def _try_preview(self, preview: Preview) -> None:
        """Show a preview; what goes wrong with it must not touch the job."""
        try:
            self._show_preview(preview)
        except Exception as error:
            self._now.previews[preview.name] = None
            message = f"The preview could not be shown: {error}"
            self._now.notes.append(Note(message, warning=True))
            self._show_notes(self._now.notes)

    def _show_preview(self, preview: Preview) -> None:
        """Lay the slice over its place in the layer, and refine it from then on."""
        target = self._now.target
        assert target is not None
        image = preview.image.reshape((1,) * len(preview.index) + preview.image.shape)
        if preview.name not in self._now.previews:
            kind = "labels" if image.dtype.kind in "iub" else "image"
            keywords = {
                **target.placement.at((*preview.index, 0, 0)).kwargs(),
                **(target.look if kind == "image" else {}),
                "name": f"{target.volume.name} {preview.name} (preview)",
                "metadata": {KEY: {"preview": preview.name, "index": preview.index}},
            }
            selected = set(self._viewer.layers.selection)
            layer = self._viewer.add_layer(Layer.create(image, keywords, kind))
            # what the user has at hand stays at hand
            self._viewer.layers.selection = selected
            self._now.previews[preview.name] = layer
            if self._slices_away(layer) <= 1:
                self._go_to(layer)
            return
        layer = self._now.previews[preview.name]
        # a user who deletes the preview does not want it
        if layer is not None and layer in self._viewer.layers:
            layer.data = image
            if layer.metadata[KEY]["index"] != preview.index:
                layer.metadata[KEY]["index"] = preview.index
                layer.translate = target.placement.at((*preview.index, 0, 0)).translate

    def _shown_previews(self) -> list[Any]:
        there = self._viewer.layers
        return [
            layer for layer in self._now.previews.values() if layer is not None and layer in there
        ]

    def _preview_place(self) -> str:
        """Say where the preview is, for the user may be looking at another slice."""
        for layer in self._shown_previews():
            index = layer.metadata[KEY]["index"]
            if index:
                return " · " + _link("preview", f"preview in slice {index[-1]}")
        return ""

    def _go_to_preview(self) -> None:
        for layer in self._shown_previews():
            self._go_to(layer)

    def _go_to(self, layer: Any) -> None:
        """Show the slice that a preview lies in."""
        dims = self._viewer.dims
        for axis in range(layer.ndim - 2):
            dims.set_point(dims.ndim - layer.ndim + axis, float(layer.extent.world[0][axis]))

    def _slices_away(self, layer: Any) -> float:
        """How many slices lie between the preview and what is on the screen, at most."""
        dims = self._viewer.dims
        first = dims.ndim - layer.ndim
        away = [
            abs(dims.point[first + axis] - layer.extent.world[0][axis]) / layer.extent.step[axis]
            for axis in range(layer.ndim - 2)
        ]
        return round(max(away, default=0.0), 3)

    # ---- the end

    def _returned(self, outcome: Outcome) -> None:
        previews = self._shown_previews()
        try:
            made = [self._add(data, previews) for data in outcome.layers]
        except Exception as error:
            self._failed(explain(error))
            return
        self._finish()
        if made:
            self._viewer.layers.selection.active = made[0]
        self.timing.show_stages(outcome.timings)
        text = html.escape(outcome.summary)
        if self.next_step is not None:
            text += ". " + _link("next", self.next_step[1])
        self._show_result(text)

    def _add(self, layer_data: LayerData, previews: list[Any]) -> Any:
        """Add a layer of the result, or let its preview become it.

        napari takes a fifth of a second to remove a layer, in which the window would stand still.
        """
        data, keywords, kind = layer_data
        for layer in previews:
            if layer.as_layer_data_tuple()[2] == kind:
                previews.remove(layer)
                del self._now.previews[layer.metadata[KEY]["preview"]]
                layer.metadata = keywords["metadata"]
                layer.data = data
                layer.translate = keywords["translate"]
                layer.name = keywords["name"]
                if "features" in keywords:
                    layer.features = keywords["features"]
                return layer
        return self._viewer.add_layer(Layer.create(*layer_data))

    def _failed(self, problem: Problem) -> None:
        self._finish()
        self._show_problem(problem)

    def _cancelled(self) -> None:
        name = self._now.target.volume.name if self._now.target else "the layer"
        self._finish()
        self._show_result(
            html.escape(f"Cancelled. The unfinished result was dropped; {name} is unchanged.")
        )

    def _finish(self) -> None:
        """Take down what belongs to a running job."""
        worker, activity = self._now.worker, self._now.activity
        self._timer.stop()
        if worker is not None:
            self._show_update(Update(notes=worker.take().notes))
        for layer in self._shown_previews():
            self._viewer.layers.remove(layer)
        self._now.worker = self._now.activity = self._now.target = None
        self._now.previews = {}
        if activity is not None:
            activity.close()
        self._progress_row.hide()
        self._show_facts()

    def changeEvent(self, event: Any) -> None:  # noqa: N802
        """Stop the job when napari takes the widget out of its dock."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self._now.stop()

    # ---- what is shown

    def _build(self) -> None:
        self.layers = LayerChoice(self._viewer, self.accepts, self.prefers)
        self._facts = _line(Qt.TextFormat.PlainText)
        self.form = SettingsForm(jobs.JOBS[self.job].settings)
        self.device = DeviceChoice()
        self._run_button = QPushButton("Run")
        self._run_button.clicked.connect(self._press)
        self._run_button.setStyleSheet("font-weight: bold; padding: 6px;")
        self._bar = QProgressBar()
        self._stage = _line()
        self._stage.linkActivated.connect(lambda _: self._go_to_preview())
        self._progress_row = QWidget()
        self._result, self._notes = _line(), _line()
        self._result.linkActivated.connect(self._follow)
        self.timing = TimingPanel()

        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(6, 6, 6, 6)
        column.setSpacing(6)
        column.addWidget(_line(Qt.TextFormat.PlainText, self.purpose))
        row = QHBoxLayout()
        row.addWidget(QLabel("Layer"))
        row.addWidget(self.layers, 1)
        column.addLayout(row)
        column.addWidget(self._facts)
        column.addWidget(_rule())
        column.addWidget(self.form)
        column.addWidget(_rule())
        column.addWidget(self.device)
        column.addWidget(self._run_button)
        inner = QVBoxLayout(self._progress_row)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(2)
        inner.addWidget(self._bar)
        inner.addWidget(self._stage)
        for widget in (self._progress_row, self._result, self._notes, self.timing):
            column.addWidget(widget)
        column.addStretch(1)
        for widget in (self._progress_row, self._result, self._notes):
            widget.hide()

        scroll = self._scroll = QScrollArea()
        scroll.setWidget(content)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self.setMinimumWidth(300)

    def _show_facts(self) -> None:
        """Say what the chosen layer is, and whether Run can be pressed."""
        layer, reason = self.layers.layer, ""
        if layer is None:
            text = reason = self._why_no_layer()
        else:
            try:
                volume = volume_of(layer, self._labels_of_axes(layer.ndim))
                text = self.facts(volume)
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
        self._run_button.setToolTip("Stop; layers stay as they are.")
        self._bar.setRange(0, 0)
        self._bar.setFormat("")
        self._say(self._stage, "preparing")
        self._bring_into_view(self._progress_row)

    def _press(self) -> None:
        if self.is_running:
            self.cancel()
        else:
            self.run()

    def _clear_messages(self) -> None:
        self._details = ""
        for line in (self._result, self._notes):
            self._say(line, "")
            line.hide()

    def _show_result(self, text: str) -> None:
        self._say(self._result, text)
        self._bring_into_view(self._result)

    def _show_problem(self, problem: Problem) -> None:
        self._details = problem.details
        sign = _sign(_WARNING if problem.expected else _ERROR)
        text = f"{sign} {html.escape(problem.message)}"
        if not problem.expected:
            text += " " + _link("copy", "copy details")
        self._show_result(text)
        (show_warning if problem.expected else show_error)(problem.message)

    def _show_notes(self, notes: list[Note]) -> None:
        sign = _sign(_WARNING)
        lines = [
            f"{sign} {html.escape(note.message)}" if note.warning else html.escape(note.message)
            for note in notes
        ]
        self._say(self._notes, "<br>".join(lines))
        self._notes.setVisible(bool(lines))

    def _bring_into_view(self, widget: QWidget) -> None:
        widget.show()
        # once it has its place
        QTimer.singleShot(0, widget, lambda: self._scroll.ensureWidgetVisible(widget, 0, 6))

    def _say(self, line: QLabel, text: str) -> None:
        """Show a sentence, the colours in it being the theme's."""
        self._said[line] = text
        theme = get_theme(self._viewer.theme)
        error = QColor(theme.error.as_hex())
        # napari's red is made for surfaces: too dark for a sign on a dark ground
        colours = {
            _TEXT: theme.text.as_hex(),
            _WARNING: theme.warning.as_hex(),
            _ERROR: (error.lighter(170) if theme.type == "dark" else error).name(),
        }
        for name, colour in colours.items():
            text = text.replace(name, colour)
        line.setText(text)

    def _repaint(self, event: Any = None) -> None:
        for line, text in self._said.items():
            self._say(line, text)

    def _follow(self, link: str) -> None:
        if link == "copy":
            QApplication.clipboard().setText(self._details)
        elif link == "next" and self.next_step is not None:
            dock, _ = self._viewer.window.add_plugin_dock_widget(
                "hushpore", self.next_step[0], tabify=True
            )
            dock.show()
            dock.raise_()


def _line(form: Qt.TextFormat = Qt.TextFormat.RichText, text: str = "") -> QLabel:
    """Return a label for a sentence: wrapped, and its text can be copied."""
    label = QLabel(text)
    label.setTextFormat(form)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextBrowserInteraction)
    return label


def _link(target: str, text: str) -> str:
    # Qt's own colour for links cannot be read on a dark ground
    return f'<a href="{target}" style="color: {_TEXT}">{text}</a>'


def _sign(colour: str) -> str:
    return f'<b style="color: {colour}">⚠</b>'


def _rule() -> QFrame:
    rule = QFrame()
    # the name by which napari's style knows its own thin lines
    rule.setObjectName("QtCustomTitleBarLine")
    rule.setFixedHeight(1)
    return rule
