"""The void over the slice on the screen, as a job of these settings would find it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Labels
from napari.utils.colormaps import CyclicLabelColormap
from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.viewer.layers.conversion import METADATA_KEY, unwrapped
from hushpore.viewer.running.latest_only import LatestOnlyWorker
from hushpore.viewer.running.previews import select_again
from hushpore.viewer.running.priority import old_objects_kept
from hushpore.viewer.running.target import slice_on_screen
from hushpore.viewer.segment.grey_histogram import VOID_COLOUR, WEAK_COLOUR

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.target import Target


#: How much of the slice is seen through the void.
OPACITY = 0.6


class VoidPreview(QObject):
    """A labels layer one slice thick that follows the slice on the screen, while it is wanted.

    It is found in a thread, one slice at a time and always the newest wanted.

    `layer`: the layer that shows it, or None.
    """

    #: The user has deleted the layer, and so does not want it.
    dismissed = Signal()
    #: Why there is nothing to see; empty where there is.
    message_changed = Signal(str)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self.layer: Any = None
        self._target: Target | None = None  # None while nothing is wanted
        self._is_away = False
        self._worker = LatestOnlyWorker("void of a slice")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        for change in ("point", "ndisplay", "order"):
            getattr(viewer.dims.events, change).connect(self._request)
        viewer.layers.events.removed.connect(self._removed)

    @property
    def is_busy(self) -> bool:
        """Whether a slice that is wanted is not shown yet."""
        return self._worker.is_busy

    def show(self, target: Target, settings: PoreSettings, greys: GreySurvey) -> None:
        """Show the void of a volume, from now on, in the slice on the screen."""
        from hushpore.pores.preview import SliceVoid

        if self._target is None or self._target.volume.data is not target.volume.data:
            self.hide()
            self._void = SliceVoid(target.volume)
        self._target, self._by = target, (settings, greys)
        self._request()

    def hide(self) -> None:
        """Show none."""
        self._target = None
        self._is_away = False
        self._worker.cancel()
        layer, self.layer = self.layer, None
        if layer is not None:
            # one slice: no garbage that is worth a search
            with old_objects_kept():
                self._viewer.layers.remove(layer)

    def _request(self, event: Any = None) -> None:
        if self._target is None:
            return
        index = slice_on_screen(self._viewer, self._target)
        if index is None:
            self._worker.cancel()
            self.message_changed.emit("The void is shown on slices: switch 3D off to see it.")
            if self.layer is not None and self.layer.visible:
                self.layer.visible, self._is_away = False, True
            return
        find = partial(_find, self._void, index, *self._by)
        self._worker.submit(find, (self._target, index))

    def _returned(self, tag: tuple[Target, tuple[int, ...]], phase: Any) -> None:
        target, index = tag
        if target is not self._target:
            return
        self.message_changed.emit("")
        if phase is None:
            # no threshold, which is said elsewhere
            phase = np.zeros(target.volume.shape[-2:], np.uint8)
        image = phase.reshape((1,) * len(index) + phase.shape)
        if self.layer is None:
            self.layer = self._add(target, index, image)
            return
        # in place: for another array napari compiles what draws the layer anew
        np.copyto(self.layer.data, image)
        self.layer.refresh(extent=False, highlight=False)
        if self.layer.metadata[METADATA_KEY]["index"] != index:
            self.layer.metadata[METADATA_KEY]["index"] = index
            self.layer.translate = target.placement.at((*index, 0, 0)).translate
        if self._is_away:
            self.layer.visible, self._is_away = True, False

    def _failed(self, tag: object, problem: Problem) -> None:
        self.message_changed.emit(problem.message)

    def _add(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        # not a direct one, for which napari compiles code for 1.5 s in every session
        colours = CyclicLabelColormap(colors=["transparent", VOID_COLOUR, WEAK_COLOUR])
        layer = Labels(
            image.copy(),
            **target.placement.at((*index, 0, 0)).kwargs(),
            name=f"{target.volume.name} void (preview)",
            metadata={METADATA_KEY: {"preview": "void", "index": index}},
            colormap=colours,
            opacity=OPACITY,
        )
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(layer)
        # what the user has at hand stays at hand; in a turn of its own, as it draws all controls
        QTimer.singleShot(0, partial(select_again, self._viewer, selected, layer))
        return layer

    def _removed(self, event: Any) -> None:
        if self.layer is not None and unwrapped(event.value) is self.layer:
            self.layer = None
            self.hide()
            self.dismissed.emit()


def _find(
    void: SliceVoid, index: tuple[int, ...], settings: PoreSettings, greys: GreySurvey
) -> Job:
    yield from prepare_kernels(settings)
    return void.phase(index, settings, greys)


def prepare_kernels(settings: PoreSettings | None = None) -> Job:
    """Compile or load the kernels that settings need, by default those of a form just opened."""
    from hushpore.pores.job import prepare, warm_up_kind
    from hushpore.pores.settings import PoreSettings

    yield from prepare(warm_up_kind(settings or PoreSettings()))
