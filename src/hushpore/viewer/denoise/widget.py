"""The widget that denoises, with plots of the noise and the swipe between scan and result."""

from __future__ import annotations

import dataclasses
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from napari.layers import Image
from napari.utils.notifications import show_info, show_warning
from qtpy.QtCore import QObject, Signal

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.formatting import readable_number, readable_percent
from hushpore.base.preferences import SPEEDS
from hushpore.base.rescaled import held
from hushpore.denoising.settings import device_timing_key, store_timings
from hushpore.device.memory import folder_of
from hushpore.figures.drawing import draw_noise, noise_match_in_words
from hushpore.jobs import JOBS
from hushpore.viewer.forms.layout import Fold, link, plain_label
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    LayerData,
    identity,
    layer_data,
    layer_with,
    placement_of,
    point_at,
    unwrapped,
    voxel_at,
)
from hushpore.viewer.patches.layers import LatestBatch
from hushpore.viewer.results.record_panel import ask_for_file, save_in_thread, with_ending
from hushpore.viewer.running.previews import SlicePreview, add_unselected
from hushpore.viewer.running.task import capture
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    from napari.layers import Layer

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.denoising.result import Denoised
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.scan.noise_model import NoiseModel
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker


_HINT = (
    "Left: autocorrelation of the noise by distance in voxels. Right: power spectrum of the noise "
    "(1: white noise). Dots: measured in flat regions. Lines: the noise model used for training. "
    "After denoising: power of the residual in flat regions and at edges, over that of the noise."
)


class NoisePanel(Fold):
    """Two plots of the noise of a layer; folded at first, hidden until the noise is estimated."""

    def __init__(self, viewer: Any) -> None:
        super().__init__("Noise")
        self._viewer = viewer
        self._model: NoiseModel | None = None
        self._drawn: NoiseModel | None = None
        self._canvas: Any = None
        self._match: dict[str, Any] | None = None
        self._words = plain_label()
        self.add(self._words)
        self.button.toggled.connect(self._draw)
        self.hide()

    def show_model(self, model: NoiseModel | None, match: dict[str, Any] | None = None) -> None:
        """Show the noise of another layer; None if there is no estimate.

        `match`: ``residual.match`` in the record of its denoising, if it was denoised.
        """
        if model is self._model and match is self._match:
            return
        self._model, self._match, self._drawn = model, match, None
        self.setVisible(model is not None)
        self._draw()

    def _draw(self) -> None:
        if self._model is None or self._model is self._drawn or not self.button.isChecked():
            return
        # SciPy and matplotlib are imported late, so that the widget opens fast
        from hushpore.denoising.noise import noise_curves

        if self._canvas is None:
            from hushpore.viewer.results.plots import PlotCanvas

            self._canvas = PlotCanvas(self._viewer)
            self._canvas.setFixedHeight(150)
            self._canvas.setToolTip(_HINT)
            self._canvas.setAccessibleName("Noise")
            self.add(self._canvas)
            self._viewer.events.theme.connect(self._canvas.show_figure)
        self._drawn = self._model
        text = _origin(self._model)
        if self._match is not None:
            text = f"{text}. {noise_match_in_words(self._match)}"
        self._words.setText(text)
        self._canvas.clear()
        draw_noise(self._canvas.figure, noise_curves(self._model), self._match)
        self._canvas.show_figure()


def _origin(model: NoiseModel) -> str:
    """Return the standard deviation of the noise and its origin, in one line."""
    ends = readable_number(model.deviation), readable_number(model.deviation_error, 2)
    text = f"SD {' ± '.join(ends)}, from {model.blocks:,} flat regions"
    return f"{text}; increases with the grey value" if model.slope > 0 else text


class RingPreview(SlicePreview):
    """A preview of the slice on the screen without its rings."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "slice without rings", "without rings")

    def show(self, target: Target) -> None:
        """Start to show slices of a volume without rings."""
        if self.is_of(target):
            return
        self.hide()
        self._follow(target, partial(_without_rings, target, []))


def _without_rings(target: Target, cached: list[Any], index: tuple[int, ...]) -> Job:
    """Remove the rings of a slice; `cached` keeps the `SliceRings` of the volume."""
    from hushpore.base.events import Progress
    from hushpore.denoising.rings import SliceRings

    yield Progress("ring correction", 0, 0, "", 0.0)
    if not cached:
        cached.append(SliceRings(target.volume))
    return cached[0].corrected(index)


#: Name of the temporary layer, and text of the link that shows it.
SWIPE = "Before | after"

#: Distance from the line, in pixels of the screen, within which a press starts a drag.
REACH = 10

#: Colour of the line, which differs from all grey values.
_LINE_COLOUR = "yellow"


class Swipe:
    """A temporary layer over the denoised scan that shows the scan left of a line.

    The line starts in the middle and is dragged in the 2D view; 3D hides the layer until 2D is
    back. Deleting the layer ends the swipe. The values of the scan are not copied.

    `layer`: the temporary layer.
    """

    def __init__(self, viewer: Any, before: Any, after: Any) -> None:
        self._viewer, self._after = viewer, after
        values = before.data[0] if before.multiscale else before.data
        self._values = values if isinstance(values, np.ndarray) else lazy(values)
        self._axis = self._horizontal_axis()
        self._cut = int(self._values.shape[self._axis]) // 2
        self.layer = Image(
            self._left_part(),
            **placement_of(before).kwargs(),
            name=SWIPE,
            # the same grey values look the same on both sides
            contrast_limits=after.contrast_limits,
            colormap=after.colormap,
            gamma=after.gamma,
            metadata={METADATA_KEY: {"preview": "swipe"}},
        )
        self._show_line()
        after.visible = True
        add_unselected(viewer, self.layer)
        layers = viewer.layers
        layers.move(layers.index(self.layer), layers.index(after) + 1)
        after.events.contrast_limits.connect(self._follow_contrast)
        viewer.dims.events.order.connect(self._turn)
        viewer.dims.events.ndisplay.connect(self._show_in_2d)
        layers.events.removed.connect(self._follow_removal)
        viewer.mouse_drag_callbacks.append(self._pressed)
        self._show_in_2d()

    @property
    def is_shown(self) -> bool:
        """Whether the temporary layer exists."""
        return self.layer in self._viewer.layers

    @property
    def place(self) -> float:
        """Position of the line along the horizontal axis of the scan, in voxels."""
        return float(self._cut - 0.5)

    def move(self, place: float) -> None:
        """Move the line to a position along the horizontal axis of the scan, in voxels."""
        # one column stays on each side, so that the line can be dragged back
        cut = int(np.clip(round(place + 0.5), 1, self._values.shape[self._axis] - 1))
        if cut != self._cut:
            self._cut = cut
            self.layer.data = self._left_part()

    def close(self) -> None:
        """Remove the temporary layer."""
        if self.is_shown:
            self._viewer.layers.remove(self.layer)

    def _left_part(self) -> Any:
        return self._values[(slice(None),) * self._axis + (slice(self._cut),)]

    def _horizontal_axis(self) -> int:
        missing = int(self._viewer.dims.ndim) - int(self._values.ndim)
        return max(int(self._viewer.dims.displayed[-1]) - missing, 0)

    def _show_line(self) -> None:
        box = self.layer.bounding_box
        box.points, box.line_color, box.line_thickness = False, _LINE_COLOUR, 2
        box.visible = True

    def _follow_contrast(self) -> None:
        self.layer.contrast_limits = self._after.contrast_limits

    def _turn(self) -> None:
        """Start in the middle again after the axes were exchanged."""
        self._axis = self._horizontal_axis()
        self._cut = self._values.shape[self._axis] // 2
        self.layer.data = self._left_part()

    def _show_in_2d(self) -> None:
        self.layer.visible = self._viewer.dims.ndisplay == 2

    def _follow_removal(self, event: Any) -> None:
        """Disconnect from the viewer when one of the two layers was removed."""
        if unwrapped(event.value) not in (unwrapped(self.layer), unwrapped(self._after)):
            return
        viewer = self._viewer
        viewer.layers.events.removed.disconnect(self._follow_removal)
        self._after.events.contrast_limits.disconnect(self._follow_contrast)
        viewer.dims.events.order.disconnect(self._turn)
        viewer.dims.events.ndisplay.disconnect(self._show_in_2d)
        viewer.mouse_drag_callbacks.remove(self._pressed)
        self.close()

    def _pressed(self, viewer: Any, event: Any) -> Any:
        """Drag the line if the press is close to it."""
        if event.button != 1 or viewer.dims.ndisplay != 2 or not self.layer.visible:
            return
        axis = viewer.dims.ndim - self._values.ndim + self._axis
        line = voxel_at(viewer, self.layer, event.position)
        line[self._axis] = self.place
        away = event.position[axis] - point_at(viewer, self.layer, line)[self._axis]
        if abs(away) * viewer.scene.camera.zoom > REACH:
            return
        # the camera would move the view
        event.handled = True
        yield
        while event.type == "mouse_move":
            event.handled = True
            self.move(voxel_at(viewer, self.layer, event.position)[self._axis])
            yield


def lazy(values: Any) -> Any:
    """Return values as a Dask array with one chunk for each slice, which is read when needed."""
    import dask.array

    da: Any = dask.array
    if isinstance(values, da.Array):
        return values
    chunks = (1,) * (values.ndim - 2) + values.shape[-2:]
    # name=False: dask would hash all values for a name
    return da.from_array(values, chunks=chunks, name=False)


#: Correlation of neighbouring voxels above which noise is called correlated.
_NOTABLE = 0.1

#: Share of the contrast below which noise is called low.
_LOW = 0.04

#: Approximate number of voxels along each axis from which the contrast is estimated.
_SAMPLED = 64

#: Links shown after a cancel.
_APPLY, _RESUME = "apply", "resume"

#: Link that saves the trained model.
_SAVE_MODEL = "save model"

#: Link that shows or removes the swipe between scan and denoised scan.
_SWIPE = "swipe"

#: Links in the line about the noise, and their texts.
_CORRECT_RINGS, _LINKED = "correct rings", "correct them here"
_SEGMENT = "Skip to Pores"

_WITHOUT_RINGS = "Preview: this slice without its rings. Hide the preview layer to compare."


class DenoiseWidget(JobWidget):
    """Denoises an image layer; the results are image layers."""

    job = "denoise"
    next_steps: ClassVar[dict[str, str]] = {"Pores": "Segment pores"}
    fact_links: ClassVar[dict[str, str]] = {_LINKED: _CORRECT_RINGS, _SEGMENT: "next"}

    def __init__(self, napari_viewer: Any) -> None:
        self._noise = NoiseLine()
        # training of the last run while it can be resumed
        self._kept: Training | None = None
        self._again: DenoiseSettings | None = None
        self._swipe: Swipe | None = None
        # the last denoised layer, and how well its residual matches its noise
        self._matched: tuple[str, dict[str, Any] | None] = "", None
        super().__init__(napari_viewer)
        self.noise = NoisePanel(napari_viewer)
        upper = self._upper.column
        upper.insertWidget(upper.indexOf(self._voxel_size), self.noise)
        # connected to a widget, because a thread may finish after the window has closed
        self._noise.found.connect(self._facts.outdated)
        self._facts.outdated.connect(self._show_noise)
        self.layer.changed.connect(self._show_noise)
        self.rings, self._ring_words = RingPreview(napari_viewer), plain_label()
        self._no_rings = False  # whether the user has deleted the layer of the preview
        upper.insertWidget(upper.indexOf(self._voxel_size), self._ring_words)
        self._ring_words.hide()
        self.rings.message_changed.connect(self._say_of_rings)
        self.rings.dismissed.connect(self._dismiss_rings)
        self.form.changed.connect(self._show_rings)
        self.layer.changed.connect(self._show_rings)
        # settings and device of the last local run, and the kind of run of the displayed time
        self._ran_as: tuple[DenoiseSettings, str] | None = None
        self._timed_as = ""
        self.form.changed.connect(self._show_time)
        self.device.changed.connect(self._show_time)
        self.run_on.changed.connect(self._show_time)
        self._show_time()

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Whether a layer can be the input: any greyscale image."""
        return isinstance(layer, Image) and not layer.rgb and layer.dtype != bool

    @classmethod
    def result_layers(cls, result: Denoised, target: Target) -> list[LayerData]:
        """Return the denoised image, with the contrast of the noisy one, and the hidden residual.

        The residual (noisy minus denoised) should contain only noise.
        """
        (denoised,) = super().result_layers(result, target)
        denoised[1]["name"] = target.named("denoised")
        # for predictions in the widget for patches
        denoised[1]["metadata"][METADATA_KEY]["model"] = result.model
        has_residual = "residual" in result.provenance
        return [denoised, _residual(result, target)] if has_residual else [denoised]

    @classmethod
    def work(cls, target: Target, settings: Settings, device: str) -> Job:
        """Run the job and pass its training batches to the widget for patches."""
        return LatestBatch.watch(super().work(target, settings, device), target)

    def facts(self, volume: Volume) -> str:
        """Return the line about the layer, with the noise."""
        noise = self._noise.text(self.layer.value, volume)
        return f"{volume.facts} · {noise}" if noise else volume.facts

    def _show_noise(self) -> None:
        layer, (scan, match) = self.layer.value, self._matched
        is_of_scan = layer is not None and scan == identity(layer)
        self.noise.show_model(self._noise.model(layer), match if is_of_scan else None)

    def run(self) -> JobWorker:
        """Start the job, and remove the ring preview, which the preview of the job replaces."""
        worker = super().run()
        self._ran_as = self._runs_as()
        self._show_rings()
        return worker

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        self._kept = None
        super()._show_outcome(outcome, made)
        if self._ran_as is not None:
            store_timings(*self._ran_as, outcome.result.provenance)
            self._timed_as = ""
            self._show_time()
        if self._messages.message is not None:
            match = outcome.result.provenance.get("residual", {}).get("match")
            self._matched = self._messages.message.layer, match
        self._show_noise()

    def _runs_as(self) -> tuple[DenoiseSettings, str] | None:
        """Return settings and device of a run; None for a run on a cluster."""
        if self.run_on.value:
            return None
        return cast("DenoiseSettings", self.form.value), self.device.value

    def _show_time(self) -> None:
        """Show the expected time, if a similar run was done on this computer before."""
        try:
            runs_as = self._runs_as()
            kind = "" if runs_as is None else device_timing_key(*runs_as)
        except InputError:
            # shown when Run is pressed
            kind = ""
        # the time is read from a file, so only when the kind of run changes
        if kind != self._timed_as:
            self._timed_as = kind
            self.form.know(timings=SPEEDS.numbers(kind) if kind else {})

    def _show_rings(self) -> None:
        layer = self.layer.value
        try:
            asked = cast("DenoiseSettings", self.form.value).correct_rings
            wanted = asked and layer is not None and not self.is_running
            target = capture(layer, self._facts.labels_of_axes(layer.ndim)) if wanted else None
        except HushporeError:
            # the error is shown beside the setting or layer
            asked, target = False, None
        self._no_rings = self._no_rings and asked
        if target is None or self._no_rings:
            self.rings.hide()
            self._ring_words.hide()
        elif not self.rings.is_of(target):
            self.rings.show(target)

    def _dismiss_rings(self) -> None:
        self._no_rings = True
        self._ring_words.hide()

    def _say_of_rings(self, message: str) -> None:
        self._ring_words.setText(message or _WITHOUT_RINGS)
        self._ring_words.show()

    def settings(self) -> Settings:
        """Return the settings for a run, with a file for the state of the training."""
        if self._again is not None:
            return self._again
        settings = cast("DenoiseSettings", super().settings())
        self._kept = None
        # to resume after a cancel, on this computer only
        if not settings.model and not self.run_on.value:
            self._kept = Training(settings, identity(self.layer.value))
            settings = self._kept.settings
        return settings

    def result_links(self, result: Any) -> list[str]:
        """Offer the swipe, and to save the trained model unless a saved one was only applied."""
        is_new = getattr(result, "model", None) and not result.provenance["settings"]["model"]
        model = [link(_SAVE_MODEL, "Save model …")] if is_new else []
        return [link(_SWIPE, SWIPE), *model]

    def _show_or_hide_swipe(self) -> None:
        """Show the swipe over the last result, or remove it."""
        if self._swipe is not None and self._swipe.is_shown:
            self._swipe.close()
            return
        message, after = self._messages.message, self._made[:1]
        before = None if message is None else layer_with(self._viewer, message.layer)
        if before is None or not after or after[0] not in self._viewer.layers:
            show_warning("The swipe needs the scan and the denoised scan, but one was removed.")
            return
        self._swipe = Swipe(self._viewer, before, after[0])
        show_info("Drag the yellow line. Left of it is the scan, right of it the denoised scan.")

    def _ask_and_save_model(self) -> None:
        name = f"{self.layer.value.name} model.safetensors"
        kinds = "Trained model (*.safetensors)"
        path = ask_for_file(self.native, "Save model", name, kinds)
        if path is not None and self.result is not None:
            path = with_ending(path, ("safetensors",), "safetensors")
            # asked for by the dialog
            save = partial(self.result.model.save, path, overwrite=True)
            self._saving = save_in_thread(path, save)

    @property
    def resumes(self) -> bool:
        """Whether the run that starts goes on with a cancelled training."""
        return self._again is not None

    @property
    def _if_closed(self) -> str:
        settings: Any = self.form.value
        if settings.checkpoint:
            return f"it stops; training continues from {settings.checkpoint} when you run it again"
        return "it stops, and its training is lost (a Checkpoint file, under More, keeps it)"

    def after_cancel(self) -> str:
        """Offer to denoise with the training so far, and to resume it."""
        self._discard_training()
        if self._kept is None or not Path(self._kept.settings.checkpoint).exists():
            return ""
        apply = link(_APPLY, "Denoise with what was trained")
        return f"{apply} · {link(_RESUME, 'Resume training')}"

    def _failed(self, problem: Problem) -> None:
        self._kept = None
        super()._failed(problem)

    def _forget(self, event: Any) -> None:
        super()._forget(event)
        self._discard_training()

    def _discard_training(self) -> None:
        """Discard the training of a layer that was removed, and its links."""
        if (
            self._kept is not None
            and not self.is_running
            and self._kept.layer_in(self._viewer) is None
        ):
            self._kept = self._messages.message = None
            self._show_message()

    def _follow(self, target: str) -> None:
        if target == _CORRECT_RINGS:
            self.form.update({"correct_rings": True})
        elif target == _SWIPE:
            self._show_or_hide_swipe()
        elif target == _SAVE_MODEL:
            self._ask_and_save_model()
        elif target in (_APPLY, _RESUME):
            self._resume_training(target == _APPLY)
        else:
            super()._follow(target)

    def _resume_training(self, only_apply: bool) -> None:
        assert self._kept is not None
        self.layer.value = self._kept.layer_in(self._viewer)
        self._again = self._kept.settings
        try:
            self._try_to_run()
        finally:
            self._again = None
        if only_apply:
            self.finish()


class Training:
    """A training that can be resumed after a cancel.

    `settings`: settings of the run, with its checkpoint. If the user has not named one, it is a
    temporary file that is deleted with this object. `layer`: `identity` of the layer trained on.
    """

    def __init__(self, settings: DenoiseSettings, layer: str) -> None:
        file = settings.checkpoint or str(folder_of(self) / "training.safetensors")
        self.settings = dataclasses.replace(settings, checkpoint=file)
        self.layer = layer

    def layer_in(self, viewer: Any) -> Any:
        """Return the layer, or None if it was removed."""
        return layer_with(viewer, self.layer)


def _residual(result: Denoised, target: Target) -> LayerData:
    # the difference is computed for each slice that is shown
    noisy, denoised = lazy(target.volume.data), lazy(result.volume.data)
    spread = 3 * result.provenance["residual"]["deviation"] or 1.0
    data, keywords, kind = layer_data(
        result.volume.replace(noisy.astype("f4") - denoised),
        placement=target.placement,
        name=target.named("removed noise"),
        visible=False,
        contrast_limits=(-spread, spread),
    )
    # for display only, so not offered as an input of jobs
    keywords["metadata"][METADATA_KEY]["preview"] = True
    return data, keywords, kind


class NoiseLine(QObject):
    """Estimates the noise of layers in a thread, once per layer.

    Lazy arrays are skipped, because too much data would be read for one line in a form.
    """

    #: Emitted when a layer has been analysed.
    found = Signal()

    def __init__(self) -> None:
        super().__init__()
        # values of a layer with their text and model
        self._estimates: weakref.WeakKeyDictionary[Any, tuple[Any, str, NoiseModel]]
        self._estimates = weakref.WeakKeyDictionary()
        self._wanted: tuple[Any, int] | None = None
        self._worker = LatestOnlyWorker("hushpore noise")
        # a problem is shown when the image is denoised
        self._worker.returned.connect(self._returned)

    def text(self, layer: Any, volume: Volume) -> str:
        """Return the line about the noise; starts the estimate if there is none."""
        values, text, _ = self._estimates.get(layer, (None, "", None))
        # a weak reference, so that a layer removed meanwhile is freed
        wanted = weakref.ref(layer), id(volume.data)
        if values is volume.data:
            return text
        if wanted != self._wanted and isinstance(held(volume.data), np.ndarray):
            self._wanted = wanted
            self._worker.submit(partial(calling, _estimate, volume), wanted)
        return ""

    def model(self, layer: Any) -> NoiseModel | None:
        """Return the noise model of a layer, or None if there is no noise or no estimate yet."""
        model = None if layer is None else self._estimates.get(layer, (None, "", None))[2]
        return model if model is not None and model.deviation else None

    def _returned(self, wanted: tuple[Any, int], estimate: tuple[Any, str, NoiseModel]) -> None:
        if (layer := wanted[0]()) is not None:
            self._estimates[layer] = estimate
            self.found.emit()


def _estimate(volume: Volume) -> tuple[Any, str, NoiseModel]:
    """Return the values of a volume, their noise in words, and its model."""
    from hushpore.scan.noise import estimate_noise

    model = estimate_noise(volume)
    return volume.data, words(volume, model), model


def words(volume: Volume, model: NoiseModel) -> str:
    """Return the noise in a few words, with the setting that helps."""
    noise = model.diagnosis
    if not model.deviation:
        return "no noise detected: nothing to denoise"
    if noise.rings:
        return f"noise: ring artefacts ⚠ (best corrected in the reconstruction, or {_LINKED})"
    if model.doubts:
        axes = noise.correlated_axes
        if len(axes) == 1:
            remedy = JOBS["denoise"].settings.as_in_a_form(f"correlated_along={axes}")
            return f"noise: stripes along {axes} ⚠ (under More, set {remedy})"
        return "noise level could not be estimated ⚠"
    correlation = model.nearest_correlation
    kind = "uncorrelated"
    if correlation >= _NOTABLE:
        kind = f"correlated (r = {correlation:.2f} to the next voxel)"
    step = [max(1, n // _SAMPLED) for n in volume.shape]
    sample = volume.data[tuple(slice(None, None, n) for n in step)]
    low, high = np.percentile(sample, (2, 98))
    share = model.deviation / (high - low) if high > low else 1.0
    of_range = f"{readable_percent(share)} of the grey range"
    unit = volume.metadata.get("value_unit", "") or "grey levels"
    text = f"noise SD {readable_number(model.deviation)} {unit} ({of_range}), {kind} ✓"
    if share < _LOW:
        text += f" · Noise is low; denoising may erase pores of 1 to 3 voxels. {_SEGMENT}"
    return text
