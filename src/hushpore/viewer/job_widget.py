"""The widget of every job, from the choice of a layer to the result, and where jobs differ."""

from __future__ import annotations

import html
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from napari.layers import Image, Labels
from qtpy.QtWidgets import QHBoxLayout, QLabel

from hushpore import jobs
from hushpore.base.errors import HushporeError, InputError
from hushpore.runs.presets import remember, remembered
from hushpore.viewer.docks import NARROW, OF_JOB, SharesSide, open_page, require_canvas
from hushpore.viewer.forms.choices import (
    VOXEL_SIZE,
    DeviceChoice,
    LayerChoice,
    LayerFacts,
    RunOn,
    VoxelSizeField,
)
from hushpore.viewer.forms.form import PresetRow, SettingsForm
from hushpore.viewer.forms.layout import (
    CANCEL,
    NEXT_SLICE,
    PREVIOUS_SLICE,
    RUN,
    PinnedColumn,
    ScrolledColumn,
    ValueOf,
    bind,
    fill,
    link,
    plain_label,
    rule,
    sign,
    step_slice,
)
from hushpore.viewer.layers.conversion import (
    LayerData,
    hide_previous_results,
    identity,
    is_result,
    layer_data,
    layers_of_other_scans,
    remove_leftovers,
    watch_painting,
)
from hushpore.viewer.layers.start import LINKS, follow_start_link
from hushpore.viewer.layers.visibility import (
    SHOWN,
    explain_unopened,
    keep_status_empty,
    show_scale_bar,
    shown_image,
)
from hushpore.viewer.results.pore_layer import name_in_words
from hushpore.viewer.results.record_panel import ask_and_save_result
from hushpore.viewer.running.messages import RECORD, SHOW, RunMessages
from hushpore.viewer.running.problem import Problem, explain
from hushpore.viewer.running.progress import JobProgress, ProgressPresenter, RunButtons, RunState
from hushpore.viewer.running.task import Outcome, Target, capture, cluster_task, local_task
from hushpore.viewer.running.worker import JobWorker
from hushpore.viewer.running.worker_container import WorkerContainer, is_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from napari.layers import Layer

    from hushpore.base.events import Job, Note, Remedy
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.viewer.forms.fields import Field


class JobHooks(WorkerContainer):
    """Job, valid input layers, result layers and links of a widget, for subclasses to define.

    Class methods may run in the worker's thread and have no access to the widget.
    """

    form: SettingsForm

    #: Key of `hushpore.jobs.JOBS`.
    job: ClassVar[str]
    #: Names of the widgets for the next steps, and the texts of the links that open them.
    next_steps: ClassVar[dict[str, str]] = {}
    #: Link texts in the line about the layer, with their targets for `_follow`.
    fact_links: ClassVar[dict[str, str]] = {SHOWN: "shown image"}
    #: Share of the height, and maximum lines, for the result below the buttons.
    room_for_result: ClassVar[tuple[float, int]] = (0.29, 16)
    #: Field classes that replace the default ones, by name of the setting.
    fields: ClassVar[dict[str, type[Field]]] = {}

    #: Whether labels can be the input, too.
    takes_labels: ClassVar[bool] = False
    #: "Pores are segmented", if that is done in one image at a time; empty if a series is accepted.
    in_one_image: ClassVar[str] = ""

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Whether a layer can be the input: any greyscale image, and labels if `takes_labels`."""
        is_grey = isinstance(layer, Image) and not layer.rgb
        return is_grey or (cls.takes_labels and isinstance(layer, Labels))

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Whether a layer is chosen automatically: a scan, denoised or not.

        Results of this job, measurements of other jobs, and labels are not.
        """
        made = [job for job, kind in jobs.JOBS.items() if job == cls.job or not kind.gives]
        is_input = isinstance(layer, Image) and cls.accepts(layer)
        return is_input and not any(is_result(layer, job) for job in made)

    @classmethod
    def prepare(cls, target: Target) -> Volume:
        """Return the input volume of the job; runs in the worker's thread."""
        return target.volume

    @classmethod
    def result_layers(cls, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result: its volume as an image; runs in the worker's thread."""
        name = target.named(jobs.JOBS[cls.job].title.lower())
        words = {"placement": target.placement, "provenance": result.provenance}
        return [layer_data(result.volume, **words, **{**target.appearance, "name": name})]

    @classmethod
    def cluster_layers(cls, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result saved by a cluster; runs in the worker's thread."""
        return cls.result_layers(result, target)

    def facts(self, volume: Volume) -> str:
        """Return the line about the chosen layer.

        Raises InputError if it is a series that the job does not accept.
        """
        if self.in_one_image and volume.leading_shape:
            raise InputError(
                f"{volume.facts} · {self.in_one_image} in one image at a time. {SHOWN}, or split "
                "the layer (right-click: Split Stack)."
            )
        return volume.facts

    def settings(self) -> Settings:
        """Return the settings for a run.

        Raises InputError if a setting is invalid.
        """
        return self.form.value

    @property
    def resumes(self) -> bool:
        """Whether the run that starts goes on with a cancelled one."""
        return False

    def result_links(self, result: Any) -> list[str]:
        """Return further links below a result, as HTML."""
        return []

    def after_cancel(self) -> str:
        """Return the links shown after a cancel, as HTML; empty if there are none."""
        return ""


#: Link targets: use the settings of the previous scan; run the job again; remove its layers.
KEEP_SETTINGS, RUN_AGAIN, REMOVE_OTHERS = "keep settings", "run again", "remove others"


class JobWidget(JobHooks):
    """Runs a job on a layer and shows its result as layers.

    A magicgui container; the layer, the settings by name and the device are attributes::

        widget.layer.value = viewer.layers["scan"]
        widget.threshold.value = "li"
        widget.run()
        pores = widget.wait()

    A subclass sets the job, and may define what `JobHooks` lists.

    `result`: result of the last run; None until it ends and after its layers are removed.
    """

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(name=self.job)
        require_canvas(napari_viewer)
        self._viewer = napari_viewer
        self._now: RunState | None = None
        self._made: list[Layer] = []
        # settings that do not carry over to other scans, by scan
        self._own: dict[str, dict[str, Any]] = {}
        self._left: dict[str, Any] = {}
        self._description = jobs.JOBS[self.job]
        self._build()
        self._make_ready()
        self.layer.changed.connect(self._follow_layer)
        self._follow_layer()
        napari_viewer.layers.events.removed.connect(self._forget)
        napari_viewer.layers.events.inserted.connect(self._follow_others)
        show_scale_bar(napari_viewer)

    def _make_ready(self) -> None:
        """Bind the keys, and prepare the window."""
        # not with the module, which opens a widget before the readers and writers are there
        from hushpore.viewer.layers.layer_files import prefer_our_writers

        prefer_our_writers()
        explain_unopened()
        keep_status_empty(self._viewer)
        bind(self.native, RUN, self._press_run)
        bind(self.native, CANCEL, self.cancel)
        bind(self.native, PREVIOUS_SLICE, partial(step_slice, self._viewer, -1))
        bind(self.native, NEXT_SLICE, partial(step_slice, self._viewer, 1))
        SharesSide(self.native, self.job.capitalize())

    # ---- running

    @property
    def is_running(self) -> bool:
        """Whether a job of this widget is running."""
        return self._now is not None

    def run(self) -> JobWorker:
        """Start the job on the chosen layer, unless one runs; return its worker.

        Raises InputError if there is no layer, or a setting is invalid.
        """
        if self._now is not None:
            return self._now.worker
        layer = self.layer.value
        if layer is None:
            raise InputError(str(self._facts.text()))
        self._messages.clear()
        settings = self.settings()
        labels = self._facts.labels_of_axes(layer.ndim)
        others, scans = self.form.layers(scans=False), self.form.layers(scans=True)
        target = capture(layer, labels, others, self.job, scans)
        if not is_script():
            remember(self.job, self.form.value)
        # jobs on one device run one after another
        device, line = self.device.value, self.device.native.resolved()
        work = partial(self.work, target, settings, device)
        where = self.run_on.value
        if where:
            line = where
            work = partial(cluster_task, type(self), target, settings, device, where)
        worker = JobWorker(work, f"{self._description.title} {target.volume.name}")
        self._follow_worker(worker)
        self._made = []
        self._now = RunState(self._viewer, worker, target, self.cancel)
        worker.start(line)
        self._presenter.begin(self._now, self.resumes)
        self._lower.bring_into_view(self._progress)
        return worker

    def cancel(self) -> None:
        """Ask the running job to stop."""
        if self._now is None:
            return
        self._now.worker.cancel()
        self._buttons.show_cancelling()

    def finish(self) -> None:
        """Ask the running job to finish early with a result."""
        stage = self._description.ends_early_in
        if self._now is not None and stage:
            self._now.worker.finish(stage)
            self._buttons.show_finishing()

    @classmethod
    def work(cls, target: Target, settings: Settings, device: str) -> Job:
        """Return the generator of the task; it runs in the worker's thread."""
        return (yield from local_task(cls, target, settings, device))

    def _go_to_preview(self) -> None:
        if self._now is not None:
            self._now.previews.go_to()

    # ---- end of a job

    def _returned(self, outcome: Outcome) -> None:
        assert self._now is not None
        try:
            hide_previous_results(self._viewer, self._now.target)
            self._now.previews.remove()
            for layer in outcome.layers:
                # before napari describes the layer in its status line
                name_in_words(layer)
                self._viewer.add_layer(layer)
                watch_painting(layer)
        except Exception as error:
            self._failed(explain(error))
        else:
            self._show_outcome(outcome, list(outcome.layers))

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        """Show the message about a finished job, after all its layers."""
        assert self._now is not None
        target = self._now.target
        # some may have been deleted since
        made = list(filter(self._viewer.layers.__contains__, made))
        from hushpore.viewer.layers.voxel_size import link_scales

        link_scales(self._viewer, made, target)
        self._finish()
        self.result, self._made = outcome.result, made
        if made:
            self._viewer.layers.selection.active = made[0]
        self.timing.show_totals(outcome.timings)
        more = self.result_links(outcome.result)
        text = self._messages.of_result(outcome, self.next_steps, more)
        self._show_result(text, target, outcome.remarks)
        self.called.emit(outcome.result)

    def _failed(self, problem: Problem) -> None:
        assert self._now is not None
        target = self._now.target
        self._finish()
        self._show_problem(problem, target)
        self.failed.emit(problem)

    def _cancelled(self) -> None:
        assert self._now is not None
        target = self._now.target
        remove_leftovers(self._viewer, target)
        self._made = self._now.previews.keep()
        self._finish()
        name, links = target.volume.name, self.after_cancel()
        self._show_result(self._messages.of_cancel(name, bool(self._made), links), target)
        self.failed.emit(None)

    def _finish(self) -> None:
        """Remove the progress displays of the finished job."""
        assert self._now is not None
        self._now = None
        self._workers.clear()
        self._presenter.end()
        self._show_facts()

    def _follow_others(self, event: Any = None) -> None:
        """Update scale bar and facts after layers were added or removed."""
        show_scale_bar(self._viewer)
        self._show_facts()

    def _forget(self, event: Any) -> None:
        """Free a result whose layers are all removed: it may hold gigabytes."""
        self._follow_others()
        if event.value in self._made:
            self._made.remove(event.value)
            if not self._made:
                self.result = None

    # ---- appearance

    def _build(self) -> None:
        job = self._description
        self.layer = LayerChoice(self._viewer, self.accepts, self.prefers)
        self._facts = LayerFacts(self._viewer, self.facts, self.fact_links)
        self._facts.outdated.connect(self._show_facts)
        self._facts.linkActivated.connect(self._follow)
        self._voxel_size = VoxelSizeField()
        self._voxel_size.given.connect(self._set_voxel_size)
        self.form = SettingsForm(job.settings, viewer=self._viewer, fields=self.fields)
        last_used = None if is_script() else remembered(self.job, job.settings)
        if last_used is not None:
            self.form.value = last_used
        self.presets = PresetRow(self.job, self.form)
        self.device = ValueOf(lambda: DeviceChoice(job), "device")
        self.run_on = ValueOf(RunOn, "run_on")
        if not job.cluster:
            # hide it before it has a parent, or it would open as a separate window
            self.run_on.native.hide()
        self._buttons = RunButtons(job.title, job.ends_early_in)
        self._buttons.run.clicked.connect(self._press_run)
        self._buttons.cancel.clicked.connect(self.cancel)
        self._buttons.finish.clicked.connect(self.finish)
        self._progress = JobProgress(self._viewer)
        self._progress.stage.linkActivated.connect(self._go_to_preview)
        said = self._messages = RunMessages(self._viewer)
        self._result, self._remarks, self.timing = said.result, said.remarks, said.timing
        said.remarks.reword = self._description.settings.as_in_a_form
        said.remarks.remedy_chosen.connect(self._apply)
        self._result.linkActivated.connect(self._follow)
        self._presenter = ProgressPresenter(
            self.native, self._buttons, self._progress, said.remarks, said.timing
        )
        choice = fill(QHBoxLayout(), QLabel("Layer"), self.layer.native, wide=self.layer.native)
        self._upper = ScrolledColumn(
            plain_label(job.purpose), choice, self._facts, self._voxel_size, self.form.native,
        )  # fmt: skip
        # the first screen needs no scroll at 1366 x 768
        self._upper.column.setSpacing(4)
        for part in (rule(), self.presets, self.device.native, self.run_on.native):
            self.form.more.add(part)
        self._lower = ScrolledColumn(self._progress, said.result, said.remarks, said.timing)
        parts = self._upper, self._buttons, self._lower
        self.native.layout().addWidget(PinnedColumn(*parts, *self.room_for_result))
        self.native.setMinimumWidth(NARROW)
        # items and attributes of the container; their layout is done above
        self.extend([self.layer, *self.form, self.device])
        if job.cluster:
            self.append(self.run_on)

    def _follow_layer(self) -> None:
        """Update the widget for the chosen layer; a different scan starts with reset settings."""
        layer, before = self.layer.value, self._messages.scan
        self._messages.choose(layer)
        scan = self._messages.scan
        if layer is None or scan != before:
            self._voxel_size.hide()
        if before and scan != before:
            is_new = scan not in self._own
            self._own[before] = self._left = self.form.begin_scan(self._own.get(scan, {}))
            lost = self.form.changed_from(self._left)
            hint = (
                f"New scan; settings of the previous scan were reset: {html.escape(lost)}. "
                f"{link(KEEP_SETTINGS, 'Use them here too')}"
            )
            hints = [hint] if lost and is_new else []
            if scan and layers_of_other_scans(self._viewer, scan):
                hints.append(link(REMOVE_OTHERS, "Remove the previous scan's layers"))
            self._messages.hint("" if self.is_running else "<br>".join(hints))
        self._show_facts()
        self._show_message()

    def _show_facts(self) -> None:
        """Show the facts about the input layer, and enable Run if it suits."""
        reason = self._facts.show_layer(self.layer.value)
        self.form.know(volume=self._facts.volume)
        if not self.is_running:
            self._buttons.show_idle(reason)

    def _set_voxel_size(self, text: str) -> None:
        # imported late, because it loads the pore engine
        from hushpore.viewer.layers.voxel_size import set_voxel_size

        layer = self.layer.value
        try:
            outdated = set_voxel_size(self._viewer, layer, text)
        except InputError as error:
            self._voxel_size.refuse(error)
            return
        self._voxel_size.hide()
        if outdated:
            names = html.escape(" and ".join(outdated))
            words = (
                f"{sign(False)} The voxel shape has changed: the measurements of {names} are out "
                f"of date. {link(RUN_AGAIN, 'Run again')}"
            )
            self._messages.hint(words)
        self._show_message()

    def _show_result(self, text: str, target: Target, remarks: tuple[Note, ...] = ()) -> None:
        """Show the message about a run and its remarks, while its scan is chosen."""
        self._messages.say(text, target, remarks)
        self._show_message()
        self._lower.bring_into_view(self._result)

    def _show_problem(self, problem: Problem, target: Target | None = None) -> None:
        message = self._description.settings.as_in_a_form(problem.message)
        self._messages.say_problem(replace(problem, message=message), target)
        if target is not None:
            self._show_message()
        self._lower.bring_into_view(self._result)

    def _show_message(self) -> None:
        """Show the message about the last run, or the layer of the running job."""
        if self._now is None:
            self._messages.show()
            return
        target, layer = self._now.target, self.layer.value
        is_chosen = layer is not None and identity(layer) == target.layer
        self._progress.of = "" if is_chosen else target.volume.name

    def _press_run(self) -> None:
        """Start the job by its button or key, unless it runs."""
        if not self.is_running and self.layer.value is not None:
            self._try_to_run()

    def _try_to_run(self) -> None:
        """Start the job, or show in the widget why it cannot start."""
        try:
            self.run()
        except HushporeError as error:
            self._show_problem(explain(error))

    def _apply(self, remedy: Remedy) -> None:
        """Run again with the settings of a remedy, or open the widget of another job."""
        if remedy.job:
            self._open_job(remedy.job, remedy.settings)
            return
        self.form.update(dict(remedy.settings))
        self._try_to_run()

    def _open_job(self, job: str, settings: Mapping[str, Any]) -> None:
        """Open the widget of another job with the chosen layer and some settings."""
        opened = open_page(self._viewer, OF_JOB[job])
        if (layer := self.layer.value) is not None and opened.accepts(layer):
            opened.layer.value = layer
        opened.form.update(dict(settings))

    def _follow(self, target: str) -> None:
        shown = [layer for layer in self._made if layer in self._viewer.layers]
        if target == VOXEL_SIZE and self._facts.volume is not None:
            self._voxel_size.ask(self._facts.volume)
        elif target == "save" and shown:
            ask_and_save_result(self.native, shown[0])
        elif target == RUN_AGAIN:
            self._try_to_run()
        elif target == KEEP_SETTINGS:
            self.form.update(self._left)
            self._messages.hint("")
            self._show_message()
        elif target == "shown image":
            series = self.layer.value
            made = shown_image(self._viewer, series, self._facts.labels_of_axes(series.ndim))
            series.visible = False
            self._viewer.add_layer(made)
            self.layer.value = made
        elif target == REMOVE_OTHERS:
            for each in layers_of_other_scans(self._viewer, self._messages.scan):
                self._viewer.layers.remove(each)
            self._messages.hint("")
            self._show_message()
        elif target == SHOW:
            for layer in shown:
                self._viewer.layers.move(self._viewer.layers.index(layer), -1)
                layer.visible = True
        elif target == "record":
            # the record panel shows the active layer
            self._viewer.layers.selection.active = (shown or [self.layer.value])[0]
            open_page(self._viewer, RECORD)
        elif target in LINKS:
            follow_start_link(target, self.native, self._viewer)
        elif target in self.next_steps:
            open_page(self._viewer, target)
