"""Layers that show a slice of a result: while its job runs, or as its settings would make it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Labels, Layer
from napari.utils.colormaps import CyclicLabelColormap
from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.viewer.layers.conversion import METADATA_KEY, placement_of, unwrapped
from hushpore.viewer.layers.lineage import CANCELLED, PREVIEW, find_layer, mark_as_made
from hushpore.viewer.running.task import slice_on_screen
from hushpore.viewer.running.worker import LatestOnlyWorker, gc_frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.events import Job, Preview
    from hushpore.viewer.layers.conversion import Placement
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target


#: How much of the slice is seen through labels.
OPACITY = 0.6

#: Standard deviation of a preview, as a share of the contrast range, up to which it is a blank: a
#: network that has learnt nothing yet gives 0.003, one that begins to see gives 0.05.
BLANK = 0.01

#: What changes of where a layer lies, with its slice and with the voxel size of the scan.
_MOVED = ("scale", "units", "translate")


class Previews:
    """The previews of one running job.

    A preview is a layer one slice thick, in the place of that slice, so that on the screen the
    slice itself seems to change; no copy of the volume is made.
    """

    def __init__(self, viewer: Any, target: Target) -> None:
        self._viewer, self._target = viewer, target
        self._layers: dict[str, Any] = {}
        self._made: dict[str, Any] = {}

    def make(self, preview: Preview) -> None:
        """Make the layer of a preview that has none yet, to be shown later.

        For the thread of the job: napari takes up to a tenth of a second for it.
        """
        is_first = preview.name not in self._made and preview.name not in self._layers
        if is_first and not self._is_blank(preview.image):
            self._made[preview.name] = self._layer_of(preview)

    def show(self, preview: Preview) -> None:
        """Lay a slice over its place in the volume, and refine it from then on.

        It begins when there is something to see: until then the user's own slice is better.
        """
        layer = self._layers.get(preview.name)
        if layer is not None:
            # a user who deletes the preview does not want it
            if layer in self._viewer.layers:
                self._refine(layer, preview)
        elif not self._is_blank(preview.image):
            layer = self._made.pop(preview.name, None) or self._layer_of(preview)
            self._refine(layer, preview)
            self._layers[preview.name] = layer
            _add_unselected(self._viewer, layer)
            if 0 < self._slices_away(layer) <= 1:
                self._go_to(layer)

    def has(self, preview: Preview) -> bool:
        """Whether there is a layer for it."""
        return preview.name in self._layers

    def only_refines(self, preview: Preview) -> bool:
        """Whether it only refines a slice that is shown already."""
        layer = self._layers.get(preview.name)
        return layer is not None and bool(layer.metadata[METADATA_KEY]["index"] == preview.index)

    def slice_index(self) -> int | None:
        """Return the slice that is previewed, for the user may be looking at another."""
        indices = (layer.metadata[METADATA_KEY]["index"] for layer in self._shown())
        return next((int(index[-1]) for index in indices if index), None)

    def go_to(self) -> None:
        """Show the slice that is previewed."""
        for layer in self._shown():
            self._go_to(layer)

    def adopt(self, made: Any) -> Any:
        """Let a preview become a layer of the result, or return None where there is none.

        napari takes a fifth of a second to remove a layer, in which the window would stand still.

        `made`: the layer of the result; the preview takes over what it shows.
        """
        for name, layer in self._layers.items():
            if layer in self._shown() and type(layer) is type(made):
                del self._layers[name]
                for shown in ("metadata", "data", *_MOVED, "name", "features"):
                    if hasattr(made, shown):
                        setattr(layer, shown, getattr(made, shown))
                return layer
        return None

    def keep(self) -> list[Any]:
        """Leave them to the user, one slice each, hidden under what they were made of."""
        kept = self._shown()
        self._layers.clear()
        below = find_layer(self._viewer, self._target.layer)
        for layer in kept:
            layer.visible = False
            layer.name = layer.name.replace(PREVIEW, f"{_slice_of(layer)}{CANCELLED}")
            mark_as_made(layer, self._target)
            if below is not None:
                layers = self._viewer.layers
                layers.move(layers.index(layer), layers.index(below))
        return kept

    def remove(self) -> None:
        """Take away what is left of them."""
        for layer in self._shown():
            self._viewer.layers.remove(layer)
        self._layers.clear()

    def _layer_of(self, preview: Preview) -> Any:
        kind = "labels" if preview.image.dtype.kind in "iub" else "image"
        keywords = {
            **_at_slice(self._target.placement, preview).kwargs(),
            **(self._target.appearance if kind == "image" else {}),
            "name": f"{self._target.volume.name} {preview.name}{PREVIEW}",
            "metadata": {METADATA_KEY: {"preview": preview.name, "index": preview.index}},
        }
        layer = Layer.create(_image(preview), keywords, kind)
        mark_as_made(layer, self._target)
        return layer

    def _refine(self, layer: Any, preview: Preview) -> None:
        layer.data = _image(preview)
        layer.metadata[METADATA_KEY]["index"] = preview.index
        # the layer may have been given another voxel size since the job began
        below = find_layer(self._viewer, self._target.layer)
        whole = self._target.placement if below is None else placement_of(below)
        before, now = placement_of(layer), _at_slice(whole, preview)
        for name in _MOVED:
            if getattr(before, name) != getattr(now, name):
                setattr(layer, name, getattr(now, name))

    def _is_blank(self, image: Any) -> bool:
        limits = self._target.appearance.get("contrast_limits")
        if limits is None or image.dtype.kind != "f":
            return False
        return bool(image.std() <= BLANK * (limits[1] - limits[0]))

    def _shown(self) -> list[Any]:
        return [layer for layer in self._layers.values() if layer in self._viewer.layers]

    def _go_to(self, layer: Any) -> None:
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


def _at_slice(placement: Placement, preview: Preview) -> Placement:
    """Return where the slice of a preview lies in a layer."""
    return placement.at((*preview.index, 0, 0))


def _slice_of(layer: Any) -> str:
    """Return which slice a preview is of, as its name says it; empty of a single image."""
    index = layer.metadata[METADATA_KEY]["index"]
    return f", slice {index[-1]}" if index else ""


def _add_unselected(viewer: Any, layer: Any) -> None:
    """Add a layer; what the user has at hand stays at hand, unless another is by then."""
    selected = set(viewer.layers.selection)
    viewer.add_layer(layer)

    def select_again() -> None:
        if unwrapped(viewer.layers.selection.active) is unwrapped(layer):
            viewer.layers.selection = selected.intersection(viewer.layers)

    # in a turn of its own, as it draws all controls
    QTimer.singleShot(0, select_again)


def _image(preview: Preview) -> Any:
    """Return the slice with as many axes as the volume has."""
    return preview.image.reshape((1,) * len(preview.index) + preview.image.shape)


class SlicePreview(QObject):
    """A layer one slice thick that follows the slice on the screen, while it is wanted.

    What it shows is found in a thread, one slice at a time and always the newest wanted. A subclass
    says how, by `_follow`.

    `what`: what is shown, for messages. `title`: of the layer, after the name of the volume.
    `colours`: of the labels that are found, from 1; none where it is an image, which then looks as
    that of the volume. `layer`: the layer that shows it, or None.
    """

    #: The user has deleted the layer, and so does not want it.
    dismissed = Signal()
    #: Why there is nothing to see; empty where there is.
    message_changed = Signal(str)

    def __init__(self, viewer: Any, what: str, title: str, colours: Sequence[str] = ()) -> None:
        super().__init__()
        self._viewer, self._what, self._title, self._colours = viewer, what, title, colours
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
            with gc_frozen():
                self._viewer.layers.remove(layer)

    def _follow(self, target: Target, find: Callable[[tuple[int, ...]], Job]) -> None:
        """Show what is found of a volume, from now on, in the slice on the screen.

        `find`: returns the job that finds it, of which the slice is at this position on the leading
        axes: an array (y, x).
        """
        self._target, self._find = target, find
        self._request()

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
            self.layer = self._layer_of(target, index, image.copy())
            _add_unselected(self._viewer, self.layer)
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

    def _layer_of(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        words = {
            **target.placement.at((*index, 0, 0)).kwargs(),
            "name": f"{target.volume.name} {self._title} (preview)",
            "metadata": {METADATA_KEY: {"preview": self._title, "index": index}},
        }
        if not self._colours:
            return Image(image, **words, **target.appearance)
        # not a direct one, for which napari compiles code for 1.5 s in every session
        colours = CyclicLabelColormap(colors=["transparent", *self._colours])
        return Labels(image, **words, colormap=colours, opacity=OPACITY)

    def _removed(self, event: Any) -> None:
        if self.layer is not None and unwrapped(event.value) is self.layer:
            self.layer = None
            self.hide()
            self.dismissed.emit()
