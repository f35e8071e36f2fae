"""A layer one slice thick over the slice on the screen, which shows there what a job would make."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.viewer.layers.conversion import METADATA_KEY, unwrapped
from hushpore.viewer.running.latest_only import LatestOnlyWorker
from hushpore.viewer.running.previews import select_again
from hushpore.viewer.running.priority import old_objects_kept
from hushpore.viewer.running.target import slice_on_screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.target import Target


class SlicePreview(QObject):
    """A layer one slice thick that follows the slice on the screen, while it is wanted.

    What it shows is found in a thread, one slice at a time and always the newest wanted. A subclass
    says how, by `_follow`, and makes the layer.

    `what`: what is shown, for messages. `layer`: the layer that shows it, or None.
    """

    #: The user has deleted the layer, and so does not want it.
    dismissed = Signal()
    #: Why there is nothing to see; empty where there is.
    message_changed = Signal(str)

    def __init__(self, viewer: Any, what: str) -> None:
        super().__init__()
        self._viewer, self._what = viewer, what
        self.layer: Any = None
        self._target: Target | None = None  # None while nothing is wanted
        self._find: Callable[[tuple[int, ...]], Job] | None = None
        self._is_away = False
        self._worker = LatestOnlyWorker(f"{what} of a slice")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        for change in ("point", "ndisplay", "order"):
            getattr(viewer.dims.events, change).connect(self._request)
        viewer.layers.events.removed.connect(self._removed)

    @property
    def is_busy(self) -> bool:
        """Whether a slice that is wanted is not shown yet."""
        return self._worker.is_busy

    def is_of(self, target: Target) -> bool:
        """Whether it shows the values of this volume already, with the voxel size that it has."""
        if self._target is None:
            return False
        before, now = self._target.volume, target.volume
        is_there = (before.spacing, before.unit, before.origin)
        return before.data is now.data and is_there == (now.spacing, now.unit, now.origin)

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

    def _follow(self, target: Target, find: Callable[[tuple[int, ...]], Job]) -> None:
        """Show what is found of a volume, from now on, in the slice on the screen.

        `find`: returns the job that finds it, of which the slice is at this position on the leading
        axes: an array (y, x).
        """
        self._target, self._find = target, find
        self._request()

    def _make_layer(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        """Return the layer, which no viewer has yet."""
        raise NotImplementedError

    def _request(self, event: Any = None) -> None:
        if self._target is None or self._find is None:
            return
        index = slice_on_screen(self._viewer, self._target)
        if index is None:
            self._worker.cancel()
            words = f"The {self._what} is shown on slices: switch 3D off to see it."
            self.message_changed.emit(words)
            if self.layer is not None and self.layer.visible:
                self.layer.visible, self._is_away = False, True
            return
        self._worker.submit(partial(self._find, index), (self._target, index))

    def _returned(self, tag: tuple[Target, tuple[int, ...]], found: Any) -> None:
        target, index = tag
        if target is not self._target:
            return
        self.message_changed.emit("")
        image = found.reshape((1,) * len(index) + found.shape)
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
        layer = self._make_layer(target, index, image)
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
