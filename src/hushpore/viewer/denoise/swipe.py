"""The swipe: a line on the slice, with the scan left of it and the denoised scan right of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image

from hushpore.viewer.layers.conversion import METADATA_KEY, placement_of, unwrapped
from hushpore.viewer.running.previews import add_unselected

if TYPE_CHECKING:
    from hushpore.base.arrays import Array

#: Name of the temporary layer, and text of the link that shows it.
NAME = "Before | after"

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
        self._values = before.data[0] if before.multiscale else before.data
        self._axis = self._horizontal_axis()
        self._cut = int(self._values.shape[self._axis]) // 2
        self.layer = Image(
            self._left_part(),
            **placement_of(before).kwargs(),
            name=NAME,
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

    def _left_part(self) -> LeftPart:
        return LeftPart(self._values, self._axis, self._cut)

    def _horizontal_axis(self) -> int:
        """Return the axis of the scan that runs from left to right on the screen."""
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
        at = self.layer.world_to_data(event.position)
        line = np.array(at)
        line[self._axis] = self.place
        away = event.position[axis] - self.layer.data_to_world(line)[self._axis]
        if abs(away) * viewer.scene.camera.zoom > REACH:
            return
        # the camera would move the view
        event.handled = True
        yield
        while event.type == "mouse_move":
            event.handled = True
            self.move(self.layer.world_to_data(event.position)[self._axis])
            yield


class LeftPart:
    """The part of an array before an index along an axis; the values are read when indexed."""

    def __init__(self, values: Any, axis: int, end: int) -> None:
        self._values, self._axis, self._end = values, axis, end
        shape = list(values.shape)
        shape[axis] = end
        self.shape, self.dtype, self.ndim = tuple(shape), np.dtype(values.dtype), values.ndim

    def __getitem__(self, index: Any) -> Array:
        """Return values; `index` has an integer or a slice for each of the first axes."""
        index = index if isinstance(index, tuple) else (index,)
        index = (*index, *[slice(None)] * (self.ndim - len(index)))
        found = index[self._axis]
        if isinstance(found, slice):
            first, end, step = found.indices(self._end)
            found = slice(first, end, step)
        elif found < 0:
            found += self._end
        return np.asarray(self._values[(*index[: self._axis], found, *index[self._axis + 1 :])])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Return all values."""
        return np.asarray(self[()], dtype)
