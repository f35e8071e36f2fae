"""Plots of the noise of a scan, slices without rings, and the swipe between scan and result."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image

from hushpore.base.formatting import readable_number
from hushpore.figures.drawing import (
    SCREEN,
    add_legend,
    add_plots,
    draw_noise_match,
    frame,
    noise_match_in_words,
)
from hushpore.viewer.forms.layout import Fold, plain_label
from hushpore.viewer.layers.conversion import METADATA_KEY, placement_of, unwrapped
from hushpore.viewer.running.previews import SlicePreview, add_unselected

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.arrays import Array
    from hushpore.base.events import Job
    from hushpore.scan.noise_model import NoiseModel
    from hushpore.viewer.running.task import Target


#: Colours of the axes of a volume.
_COLOURS = dict(zip("xyz", SCREEN, strict=True))

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
        text = words(self._model)
        if self._match is not None:
            text = f"{text}. {noise_match_in_words(self._match)}"
        self._words.setText(text)
        self._canvas.clear()
        plot(self._canvas.figure, noise_curves(self._model), self._match)
        self._canvas.show_figure()


def words(model: NoiseModel) -> str:
    """Return the standard deviation of the noise and its origin, in one line."""
    ends = readable_number(model.deviation), readable_number(model.deviation_error, 2)
    text = f"SD {' ± '.join(ends)}, from {model.blocks:,} flat regions"
    return f"{text}; increases with the grey value" if model.slope > 0 else text


def plot(figure: Any, curves: pd.DataFrame, match: dict[str, Any] | None = None) -> None:
    """Plot the curves returned by `noise_curves`, and the residual of a denoising, if any."""
    kinds = {"correlation": "Distance, voxels", "spectrum": "Cycles per voxel"}
    plots = add_plots(figure, 2 if match is None else 3)
    if match is not None:
        draw_noise_match(plots[-1], match, SCREEN[::-1])
        plots[-1].set_title("Residual", fontsize=8, color="#808080")
    for axes, (kind, label) in zip(plots, kinds.items(), strict=False):
        for axis, curve in curves[curves["curve"] == kind].groupby("axis", sort=True):
            error = curve["error"] if kind == "correlation" else None
            colour = _COLOURS[str(axis)]
            dots: Any = {"fmt": "o", "markersize": 3, "elinewidth": 1, "color": colour}
            axes.errorbar(curve["at"], curve["measured"], error, **dots)
            axes.plot(curve["at"], curve["drawn"], color=colour, linewidth=1, label=axis)
        axes.axhline(0, color="#808080", linewidth=0.5)
        frame(axes, label)
        axes.set_title(kind.capitalize(), fontsize=8, color="#808080")
        if kind == "correlation":
            add_legend(axes, handlelength=1, loc="upper right")


class RingPreview(SlicePreview):
    """A preview of the slice on the screen without its rings."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "slice without rings", "without rings")

    def show(self, target: Target) -> None:
        """Start to show slices of a volume without rings."""
        if self.is_of(target):
            return
        self.hide()
        self._follow(target, partial(_find, target, []))


def _find(target: Target, cached: list[Any], index: tuple[int, ...]) -> Job:
    """Remove the rings of a slice; `known` caches the `SliceRings` of the volume."""
    from hushpore.base.events import Progress
    from hushpore.denoising.rings import SliceRings

    yield Progress("ring correction", 0, 0, "", 0.0)
    if not cached:
        cached.append(SliceRings(target.volume))
    return cached[0].corrected(index)


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
        along = index[self._axis]
        if isinstance(along, slice):
            first, end, step = along.indices(self._end)
            along = slice(first, end, step)
        elif along < 0:
            along += self._end
        return np.asarray(self._values[(*index[: self._axis], along, *index[self._axis + 1 :])])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Return all values."""
        return np.asarray(self[()], dtype)
