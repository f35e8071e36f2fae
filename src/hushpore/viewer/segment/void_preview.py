"""The void over the slice on the screen, as a job of these settings would find it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from napari.layers import Labels
from napari.utils.colormaps import DirectLabelColormap
from qtpy.QtCore import QObject, Signal

from hushpore.viewer.layers.conversion import KEY, unwrapped
from hushpore.viewer.running.latest_only import LatestOnlyWorker
from hushpore.viewer.running.target import slice_on_screen
from hushpore.viewer.segment.grey_histogram import VOID_COLOUR, WEAK_COLOUR

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.target import Target


class _Request(NamedTuple):
    """What is to be shown."""

    target: Target
    slice_void: SliceVoid
    settings: PoreSettings
    greys: GreySurvey


#: How much of the slice is seen through the void.
OPACITY = 0.6


class VoidPreview(QObject):
    """A labels layer one slice thick that follows the slice on the screen, while it is wanted.

    It is found in a thread, one slice at a time and always the newest wanted.
    """

    #: The user has deleted the layer, and so does not want it.
    dismissed = Signal()
    #: Why there is nothing to see; empty where there is.
    message_changed = Signal(str)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self._layer: Any = None
        self._wanted: _Request | None = None
        self._is_away = False
        self._worker = LatestOnlyWorker("void of a slice")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        viewer.dims.events.point.connect(self._request)
        viewer.dims.events.ndisplay.connect(self._request)
        viewer.dims.events.order.connect(self._request)
        viewer.layers.events.removed.connect(self._removed)

    @property
    def layer(self) -> Any:
        """The layer that shows it, or None."""
        return self._layer

    @property
    def is_busy(self) -> bool:
        """Whether a slice that is wanted is not shown yet."""
        return self._worker.is_busy

    def show(self, target: Target, settings: PoreSettings, greys: GreySurvey) -> None:
        """Show the void of a volume, from now on, in the slice on the screen."""
        from hushpore.pores.preview import SliceVoid

        before = self._wanted
        if before is not None and before.target.volume.data is target.volume.data:
            slice_void = before.slice_void
        else:
            self.hide()
            slice_void = SliceVoid(target.volume)
        self._wanted = _Request(target, slice_void, settings, greys)
        self._request()

    def hide(self) -> None:
        """Show none."""
        self._wanted = None
        self._is_away = False
        self._worker.cancel()
        layer, self._layer = self._layer, None
        if layer is not None:
            self._viewer.layers.remove(layer)

    def _request(self, event: Any = None) -> None:
        if self._wanted is None:
            return
        index = slice_on_screen(self._viewer, self._wanted.target)
        if index is None:
            self._worker.cancel()
            self.message_changed.emit("The void is shown on slices: switch 3D off to see it.")
            if self._layer is not None and self._layer.visible:
                self._layer.visible, self._is_away = False, True
            return
        self._worker.submit(partial(_find, self._wanted, index), (self._wanted.target, index))

    def _returned(self, tag: tuple[Target, tuple[int, ...]], phase: Any) -> None:
        target, index = tag
        if self._wanted is None or target is not self._wanted.target:
            return
        self.message_changed.emit("")
        if phase is None:
            # no threshold, which is said elsewhere
            phase = np.zeros(target.volume.shape[-2:], np.uint8)
        image = phase.reshape((1,) * len(index) + phase.shape)
        if self._layer is None:
            self._layer = self._add(target, index, image)
            return
        self._layer.data = image
        if self._layer.metadata[KEY]["index"] != index:
            self._layer.metadata[KEY]["index"] = index
            self._layer.translate = target.placement.at((*index, 0, 0)).translate
        if self._is_away:
            self._layer.visible, self._is_away = True, False

    def _failed(self, tag: object, problem: Problem) -> None:
        self.message_changed.emit(problem.message)

    def _add(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        colours = {None: np.zeros(4), 0: np.zeros(4), 1: VOID_COLOUR, 2: WEAK_COLOUR}
        layer = Labels(
            image,
            **target.placement.at((*index, 0, 0)).kwargs(),
            name=f"{target.volume.name} void (preview)",
            metadata={KEY: {"preview": "void", "index": index}},
            colormap=DirectLabelColormap(color_dict=colours),
            opacity=OPACITY,
        )
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(layer)
        # what the user has at hand stays at hand
        self._viewer.layers.selection = selected
        return layer

    def _removed(self, event: Any) -> None:
        if self._layer is not None and unwrapped(event.value) is self._layer:
            self._layer = None
            self.hide()
            self.dismissed.emit()


def _find(wanted: _Request, index: tuple[int, ...]) -> Job:
    """Find the void of a slice, as the job of a worker."""
    from hushpore.pores.job import prepare, warm_up_kind

    yield from prepare(warm_up_kind(wanted.settings))
    return wanted.slice_void.phase(index, wanted.settings, wanted.greys)
