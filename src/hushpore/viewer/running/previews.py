"""Preview layers: a slice of the result of a running job, or of the current settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari.layers import Image, Labels, Layer
from napari.utils.colormaps import CyclicLabelColormap
from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.viewer.layers.conversion import (
    CANCELLED,
    METADATA_KEY,
    PREVIEW,
    layer_with,
    mark_as_made,
    name_of,
    placement_of,
    point_at,
    unwrapped,
    voxel_at,
)
from hushpore.viewer.running.task import slice_on_screen
from hushpore.viewer.running.worker import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.events import Job, Preview
    from hushpore.viewer.layers.conversion import Placement
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target


#: Opacity of labels over the slice.
OPACITY = 0.6

#: A preview is blank if its standard deviation is at most this share of the contrast range: an
#: untrained network gives 0.003, a network that begins to show structure 0.05.
BLANK = 0.01

#: Attributes of a preview that depend on its slice and on the voxel size.
_MOVED = ("scale", "units", "translate")


class Previews:
    """The previews of one running job.

    A preview is a layer one slice thick at the position of its slice, so that the scan seems to
    change; the volume is not copied.
    """

    def __init__(self, viewer: Any, target: Target) -> None:
        self._viewer, self._target = viewer, target
        self._layers: dict[str, Any] = {}

    def show(self, preview: Preview) -> None:
        """Show a preview over its slice, or update it.

        Blank previews are not shown, because the original slice shows more.
        """
        layer = self._layers.get(preview.name)
        if layer is not None:
            # not after the user has deleted the preview
            if layer in self._viewer.layers:
                self._refine(layer, preview)
        elif not self._is_blank(preview.image):
            layer = self._layers[preview.name] = self._layer_of(preview)
            add_unselected(self._viewer, layer)
            if 0 < self._slices_away(layer) <= 1:
                self._go_to(layer)

    def has(self, preview: Preview) -> bool:
        """Whether the preview has a layer."""
        return preview.name in self._layers

    def slice_index(self) -> int | None:
        """Return the index of the previewed slice, which may not be on the screen."""
        indices = (layer.metadata[METADATA_KEY]["index"] for layer in self._shown())
        return next((int(index[-1]) for index in indices if index), None)

    def go_to(self) -> None:
        """Go to the previewed slice."""
        for layer in self._shown():
            self._go_to(layer)

    def keep(self) -> list[Any]:
        """Keep the previews as hidden layers below their scan, one slice each."""
        kept = self._shown()
        self._layers.clear()
        below = layer_with(self._viewer, self._target.layer)
        for layer in kept:
            layer.visible = False
            layer.name = layer.name.replace(PREVIEW, f"{_slice_of(layer)}{CANCELLED}")
            mark_as_made(layer, self._target)
            if below is not None:
                layers = self._viewer.layers
                layers.move(layers.index(layer), layers.index(below))
        return kept

    def remove(self) -> None:
        """Remove the previews."""
        for layer in self._shown():
            self._viewer.layers.remove(layer)
        self._layers.clear()

    def _layer_of(self, preview: Preview) -> Any:
        kind = "labels" if preview.image.dtype.kind in "iub" else "image"
        keywords = {
            **self._placement(preview).kwargs(),
            **(self._target.appearance if kind == "image" else {}),
            "name": f"{name_of(self._target.volume.name, preview.name)}{PREVIEW}",
            "metadata": {METADATA_KEY: {"preview": preview.name, "index": preview.index}},
        }
        layer = Layer.create(_image(preview), keywords, kind)
        mark_as_made(layer, self._target)
        return layer

    def _refine(self, layer: Any, preview: Preview) -> None:
        layer.data = _image(preview)
        layer.metadata[METADATA_KEY]["index"] = preview.index
        before, now = placement_of(layer), self._placement(preview)
        for name in _MOVED:
            if getattr(before, name) != getattr(now, name):
                setattr(layer, name, getattr(now, name))

    def _placement(self, preview: Preview) -> Placement:
        """Return the placement of the slice of a preview."""
        # the voxel size of the input layer may have changed since the job started
        below = layer_with(self._viewer, self._target.layer)
        whole = self._target.placement if below is None else placement_of(below)
        return whole.at((*preview.index, 0, 0))

    def _is_blank(self, image: Any) -> bool:
        limits = self._target.appearance.get("contrast_limits")
        if limits is None or image.dtype.kind != "f":
            return False
        return bool(image.std() <= BLANK * (limits[1] - limits[0]))

    def _shown(self) -> list[Any]:
        return [layer for layer in self._layers.values() if layer in self._viewer.layers]

    def _go_to(self, layer: Any) -> None:
        dims, place = self._viewer.dims, point_at(self._viewer, layer, [0] * layer.ndim)
        for axis in range(layer.ndim - 2):
            dims.set_point(dims.ndim - layer.ndim + axis, float(place[axis]))

    def _slices_away(self, layer: Any) -> float:
        """Return the distance between the preview and the slice on the screen, in slices."""
        away = voxel_at(self._viewer, layer, self._viewer.dims.point)[:-2]
        return round(float(max(map(abs, away), default=0.0)), 3)


def _slice_of(layer: Any) -> str:
    """Return the slice of a preview for its name; empty for a single image."""
    index = layer.metadata[METADATA_KEY]["index"]
    return f", slice {index[-1]}" if index else ""


def add_unselected(viewer: Any, layer: Any) -> None:
    """Add a layer without changing the selection of the user."""
    selected = set(viewer.layers.selection)
    viewer.add_layer(layer)

    def select_again() -> None:
        if unwrapped(viewer.layers.selection.active) is unwrapped(layer):
            viewer.layers.selection = selected.intersection(viewer.layers)

    # in the next turn, because napari redraws all layer controls
    QTimer.singleShot(0, select_again)


def _image(preview: Preview) -> Any:
    """Return the slice with as many axes as the volume has."""
    return preview.image.reshape((1,) * len(preview.index) + preview.image.shape)


class SlicePreview(QObject):
    """A preview layer one slice thick that follows the slice on the screen.

    Slices are computed in a thread, one at a time; only the last request is kept. A subclass passes
    the computation to `_follow`.

    `what`: name for messages. `title`: title of the layer, after the name of the volume. `colours`:
    colours of the labels from 1; empty for an image, which has the appearance of the volume.
    `layer`: the preview layer, or None.
    """

    #: Emitted when the user has deleted the layer.
    dismissed = Signal()
    #: Emitted with the reason for a missing preview; empty if there is a preview.
    message_changed = Signal(str)

    def __init__(self, viewer: Any, what: str, title: str, colours: Sequence[str] = ()) -> None:
        super().__init__()
        self._viewer, self._what, self._title, self._colours = viewer, what, title, colours
        self.layer: Any = None
        self._target: Target | None = None  # None while the preview is off
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
        """Whether a requested slice is not shown yet."""
        return self._worker.is_busy

    def is_of(self, target: Target) -> bool:
        """Whether the preview already shows this volume with this voxel size."""
        if self._target is None:
            return False
        before, now = self._target.volume, target.volume
        geometry = (before.spacing, before.unit, before.origin)
        return before.data is now.data and geometry == (now.spacing, now.unit, now.origin)

    def hide(self) -> None:
        """Switch the preview off."""
        self._target = None
        self._is_away = False
        self._worker.cancel()
        layer, self.layer = self.layer, None
        if layer is not None:
            self._viewer.layers.remove(layer)

    def _follow(self, target: Target, find: Callable[[tuple[int, ...]], Job]) -> None:
        """Start to show the result of a computation for the slice on the screen.

        `find`: takes the position on the leading axes and returns the job that computes the slice,
        (y, x).
        """
        self._target, self._find = target, find
        self._request()

    def _request(self, event: Any = None) -> None:
        if self._target is None or self._find is None:
            return
        index = slice_on_screen(self._viewer, self._target)
        if index is None:
            self._worker.cancel()
            self.message_changed.emit(f"The preview ({self._what}) is shown in 2D only.")
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
            self.layer = self._layer_of(target, index, image)
            add_unselected(self._viewer, self.layer)
            return
        self.layer.data = image
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
            # the input may be a preview, which becomes a result under this layer
            "name": f"{name_of(target.volume.name, self._title)}{PREVIEW}",
            "metadata": {METADATA_KEY: {"preview": self._title, "index": index}},
        }
        if not self._colours:
            return Image(image, **words, **target.appearance)
        # not a DirectLabelColormap, for which napari compiles code for 1.5 s in every session
        colours = CyclicLabelColormap(colors=["transparent", *self._colours])
        return Labels(image, **words, colormap=colours, opacity=OPACITY)

    def _removed(self, event: Any) -> None:
        if self.layer is not None and unwrapped(event.value) is self.layer:
            self.layer = None
            self.hide()
            self.dismissed.emit()
