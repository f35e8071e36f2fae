"""The widget that denoises."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from napari.layers import Image
from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.base.config import SPEEDS
from hushpore.base.errors import HushporeError, InputError
from hushpore.base.formatting import readable_number, readable_percent
from hushpore.base.rescaled import held
from hushpore.denoising.time_estimate import device_timing_key, store_timings
from hushpore.device.memory import give_back_freed
from hushpore.device.scratch import folder_of
from hushpore.viewer.denoise.noise_panel import NoisePanel, RingPreview
from hushpore.viewer.forms.rich_label import link, plain_label
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import METADATA_KEY, LayerData, layer_data
from hushpore.viewer.layers.lineage import find_layer, identity
from hushpore.viewer.patches.layers import LatestBatch
from hushpore.viewer.running.preloading import UNTIL_DRAWN, load_torch_libraries
from hushpore.viewer.running.task import capture

if TYPE_CHECKING:
    from napari.layers import Layer

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.denoising.noise.model import NoiseModel
    from hushpore.denoising.result import Denoised
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker

#: Correlation of neighbours from which on it is worth a word.
_NOTABLE = 0.1

#: Noise, as a share of the contrast, below which it is low.
_LOW = 0.04

#: Voxels along each axis, about, that tell the contrast.
_SAMPLED = 64

#: Links that are offered after a cancel.
_APPLY, _RESUME = "apply", "resume"

#: What is said of rings, with the link that has them corrected.
_CORRECT_RINGS, _LINKED = "correct rings", "correct them here"
_SEGMENT = "segment without denoising first"
RINGS_WORDS = f"best corrected in the reconstruction, else {_LINKED}"

#: What is said of the preview of slices without them.
_WITHOUT_RINGS = "Over the scan lies this slice without its rings; hide that layer to compare."


class DenoiseWidget(JobWidget):
    """Denoises an image layer; the results are image layers."""

    job = "denoise"
    next_step = ("Segment pores", "Segment pores")
    fact_links: ClassVar[dict[str, str]] = {_LINKED: _CORRECT_RINGS, _SEGMENT: "next"}

    def __init__(self, napari_viewer: Any) -> None:
        self._noise = NoiseLine()
        # that of the last run, for as long as one may go on with it
        self._kept: Training | None = None
        self._again: DenoiseSettings | None = None
        super().__init__(napari_viewer)
        self.noise = NoisePanel(napari_viewer)
        upper = self._upper.column
        upper.insertWidget(upper.indexOf(self._voxel_size), self.noise)
        # by way of what goes with the window: a thread may find something after that
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
        # settings and device of the last run here, and the kind of that whose time is said
        self._ran_as: tuple[DenoiseSettings, str] | None = None
        self._timed_as = ""
        self.form.changed.connect(self._show_time)
        self.device.changed.connect(self._show_time)
        self.run_on.changed.connect(self._show_time)
        self._show_time()

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Any greyscale image."""
        return isinstance(layer, Image) and not layer.rgb and layer.dtype != bool

    @classmethod
    def result_layers(cls, result: Denoised, target: Target) -> list[LayerData]:
        """Return the image, in the grey scale of the noisy one, so that the two compare.

        With it comes what was removed, hidden at first: it should look like noise, and nothing
        else.
        """
        (denoised,) = super().result_layers(result, target)
        denoised[1]["name"] = f"{target.volume.name} denoised"
        # what shows patches can then show what this model makes of them
        denoised[1]["metadata"][METADATA_KEY]["model"] = result.model
        has_residual = "residual" in result.provenance
        return [denoised, _removed(result, target)] if has_residual else [denoised]

    @classmethod
    def work(cls, target: Target, settings: Settings, device: str) -> Job:
        """Let the widget of patches look at the batches that are trained on."""
        return LatestBatch.watch(super().work(target, settings, device), target)

    def facts(self, volume: Volume) -> str:
        """Say what the noise is like, too."""
        found = self._noise.text(self.layer.value, volume)
        return f"{volume.facts} · {found}" if found else volume.facts

    def _show_noise(self) -> None:
        self.noise.show_model(self._noise.model(self.layer.value))

    def run(self) -> JobWorker:
        """Start, and take the slice without rings away: that of the job comes in its place."""
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

    def _runs_as(self) -> tuple[DenoiseSettings, str] | None:
        """Return settings and device of a run; None where it is another computer's."""
        if self.run_on.value:
            return None
        return cast("DenoiseSettings", self.form.value), self.device.value

    def _show_time(self) -> None:
        """Say how long it will take, where one like it was run here before."""
        try:
            runs_as = self._runs_as()
            kind = "" if runs_as is None else device_timing_key(*runs_as)
        except InputError:
            # said when Run is pressed
            kind = ""
        # with most changes of the form it stays, and need not be read again
        if kind != self._timed_as:
            self._timed_as = kind
            self.form.know(timings=SPEEDS.numbers(kind) if kind else {})

    def _show_rings(self) -> None:
        """Show the slice on the screen without its rings, where they are to be corrected."""
        layer = self.layer.value
        try:
            asked = cast("DenoiseSettings", self.form.value).correct_rings
            wanted = asked and layer is not None and not self.is_running
            target = capture(layer, self._facts.labels_of_axes(layer.ndim)) if wanted else None
        except HushporeError:
            # what cannot be used is said where it is chosen
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
        """Return the settings for a run, with a file to keep what is learnt."""
        if self._again is not None:
            return self._again
        settings = cast("DenoiseSettings", super().settings())
        self._kept = None
        # which is for going on after a cancel, on this computer
        if not settings.model and not self.run_on.value:
            self._kept = Training(settings, identity(self.layer.value))
            settings = self._kept.settings
        return settings

    @property
    def _if_closed(self) -> str:
        settings: Any = self.form.value
        if settings.checkpoint:
            return f"it stops; training continues from {settings.checkpoint} when you run it again"
        return "it stops, and its training is lost (a Checkpoint file, under More, keeps it)"

    def after_cancel(self) -> str:
        """Offer to use what was learnt, and to go on."""
        self._let_go_of_training()
        if self._kept is None or not Path(self._kept.settings.checkpoint).exists():
            return ""
        apply = link(_APPLY, "Denoise with what was trained")
        return f"{apply} · {link(_RESUME, 'Resume training')}"

    def _failed(self, problem: Problem) -> None:
        self._kept = None
        super()._failed(problem)

    def _forget(self, event: Any) -> None:
        super()._forget(event)
        self._let_go_of_training()

    def _let_go_of_training(self) -> None:
        """Let go of what was learnt of a layer that is gone, and offer it no more."""
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
        elif target in (_APPLY, _RESUME):
            self._resume_training(target == _APPLY)
        else:
            super()._follow(target)

    def _resume_training(self, only_apply: bool) -> None:
        """Run again with what was learnt before the cancel; maybe end the training at once."""
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
    """A training that one may go on with after a cancel.

    `settings`: of the run, with the file in which it keeps what it learns: a temporary one, which
    goes with this, where the user has not named one. `layer`: what it learns of; see `identity`.
    """

    def __init__(self, settings: DenoiseSettings, layer: str) -> None:
        file = settings.checkpoint or str(folder_of(self) / "training.safetensors")
        self.settings = dataclasses.replace(settings, checkpoint=file)
        self.layer = layer

    def layer_in(self, viewer: Any) -> Any:
        """Return the layer, or None where it is gone."""
        return find_layer(viewer, self.layer)


def _removed(result: Denoised, target: Target) -> LayerData:
    import dask.array

    da: Any = dask.array
    # the difference is made of each slice as it is shown, and takes no memory
    noisy, denoised = (
        values
        if isinstance(values, da.Array)
        # without a name, for which dask would look at every value
        else da.from_array(values, chunks=(1,) * (values.ndim - 2) + values.shape[-2:], name=False)
        for values in (target.volume.data, result.volume.data)
    )
    spread = 3 * result.provenance["residual"]["deviation"] or 1.0
    data, keywords, kind = layer_data(
        result.volume.replace(noisy.astype("f4") - denoised),
        placement=target.placement,
        name=f"{target.volume.name} removed",
        visible=False,
        contrast_limits=(-spread, spread),
    )
    # to be looked at, and never offered to a job
    keywords["metadata"][METADATA_KEY]["preview"] = True
    return data, keywords, kind


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found of the noise of some values; nothing yet, where it is looked for."""

    values: Any = None
    text: str = ""
    model: NoiseModel | None = None


class NoiseLine(QObject):
    """Looks at the noise of layers, once each, in a thread.

    Values that lie on disk in pieces are not looked at: for a line in a form too much would be
    read.
    """

    #: Something more is known.
    found = Signal()

    def __init__(self) -> None:
        super().__init__()
        # by layer: the values that were looked at, and what was found
        self._known: weakref.WeakKeyDictionary[Any, _Found] = weakref.WeakKeyDictionary()
        # held by the one that looks: each takes 0.1 GB for it
        self._one_looks = threading.Lock()
        self._waiting: list[threading.Thread] = []
        self._until_drawn = QTimer(self, singleShot=True, interval=UNTIL_DRAWN)
        self._until_drawn.timeout.connect(self._start)

    def text(self, layer: Any, volume: Volume) -> str:
        """Return what is known by now; where nothing is, have it looked at."""
        known = self._known.get(layer, _Found())
        if known.values is volume.data or not isinstance(held(volume.data), np.ndarray):
            return known.text
        self._known[layer] = _Found(volume.data)
        # not the layer itself: one that is removed meanwhile would not be let go
        looking = partial(self._look, weakref.ref(layer), volume)
        self._waiting.append(threading.Thread(target=looking, name="hushpore noise", daemon=True))
        # with it beside, a widget that is opened takes twice its time, see `start_once_drawn`
        self._until_drawn.start()
        return ""

    def model(self, layer: Any) -> NoiseModel | None:
        """Return the model of a layer's noise, where there is noise and it is known by now."""
        model = None if layer is None else self._known.get(layer, _Found()).model
        return model if model is not None and model.deviation else None

    def _start(self) -> None:
        while self._waiting:
            self._waiting.pop(0).start()

    def _look(self, layer: weakref.ref[Any], volume: Volume) -> None:
        # others do so now, and this needs libraries of SciPy
        load_torch_libraries()
        with self._one_looks:
            # those that were removed while another was looked at need nothing
            if layer() is not None:
                self._look_at(layer, volume)
                give_back_freed()

    def _look_at(self, layer: weakref.ref[Any], volume: Volume) -> None:
        from hushpore.denoising.noise.estimation import estimate_noise

        try:
            model = estimate_noise(volume)
            found = _Found(volume.data, words(volume, model), model)
        except Exception:
            # what is wrong with the image is said when it is denoised
            return
        if (looked_at := layer()) is not None:
            self._known[looked_at] = found
        with contextlib.suppress(RuntimeError):  # the window was closed meanwhile
            self.found.emit()


def words(volume: Volume, model: NoiseModel) -> str:
    """Return what was found in a few words, with the setting that helps."""
    noise, count = model.diagnosis, model.count
    if not model.deviation:
        return "no noise found"
    if noise.rings:
        return f"noise: rings about the middle ⚠ ({RINGS_WORDS})"
    if count is None and model.doubts:
        axes = noise.correlated_axes
        if len(axes) == 1:
            return (
                f"noise: stripes along {axes} ⚠ (choose 'Line noise direction' {axes} under More)"
            )
        return "noise: not sure how much there is ⚠"
    alike = model.nearest_correlation
    kind = (
        f"correlated between neighbours ({alike:.2f})"
        if alike >= _NOTABLE
        else "independent from voxel to voxel"
    )
    strength = f"{readable_number(model.deviation)} {volume.metadata.get('value_unit', '')}".strip()
    step = [max(1, n // _SAMPLED) for n in volume.shape]
    sample = volume.data[tuple(slice(None, None, n) for n in step)]
    if count is not None:
        mean = readable_number(float(np.mean(sample)) / count, 2)
        strength, kind = "that of counts", f"of which a voxel has {mean} in the mean"
    text = f"noise: {strength}, {kind} ✓"
    low, high = np.percentile(sample, (2, 98))
    share = model.deviation / (high - low) if high > low else 1.0
    if share < _LOW:
        text += (
            f" · {readable_percent(share)} of the contrast: low, and pores of 1 to 3 voxels may "
            f"vanish; {_SEGMENT}"
        )
    return text
