"""The 3D view of pores inside the transparent sample, with pictures and films."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image
from napari.utils.colormaps import AVAILABLE_COLORMAPS
from napari.utils.notifications import show_info
from qtpy.QtCore import QObject, QRectF, Qt, QTimer, Signal
from qtpy.QtGui import QColor, QImage, QImageWriter, QPainter

from hushpore.base.errors import OutputError
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.layers.conversion import METADATA_KEY, identity, lineage_of, unwrapped
from hushpore.viewer.results.record_panel import save_with, with_ending
from hushpore.viewer.results.table import cell_text
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.arrays import Float32s, UInt8s
    from hushpore.viewer.results.pore_view import PoreView

#: Default column for colours in 3D.
SIZE = "equivalent_diameter"

#: Initial angles of napari's camera, in degrees.
ANGLES = (10.0, -30.0, 140.0)

#: Voxels of the transparent sample along its longest axis; a coarse shape is sufficient.
GHOST_SIDE = 128

#: Opacity of the transparent sample.
GHOST_OPACITY = 0.14

#: Frames of a film: one for each 10 degrees of a turn.
FRAMES = 36

#: Milliseconds per frame, so that a turn takes 4 s.
FRAME_TIME = 110

#: Maximum width of a film in pixels, for a small file.
FILM_WIDTH = 640

#: Pixels between the legend and the corner of a picture.
_MARGIN = 14

#: Width and height of the colour bar in the legend, in pixels.
_BAR = (180, 10)


class Scene3D(QObject):
    """Shows the pores of a view in 3D, and restores the window afterwards.

    `is_shown`: whether the scene is shown, or will be when the transparent sample is computed.
    """

    #: Emitted when 3D is switched on (True) or off (False).
    changed = Signal(bool)
    #: Emitted when the scene is visible.
    shown = Signal()
    #: Emitted with the number of recorded frames; 0 when recording has ended.
    filmed = Signal(int)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self._view: PoreView | None = None
        self._before: dict[str, Any] = {}
        self._ghost: Any = None
        self._frames: list[QImage] = []
        self._timer = QTimer(self, timeout=self._take_frame)
        self._worker = LatestOnlyWorker("transparent sample")
        self._worker.returned.connect(self._begin)
        self._worker.failed.connect(lambda *_: self._begin(None, None))

    @property
    def is_shown(self) -> bool:
        """Whether the scene is shown, or will be when the transparent sample is computed."""
        return self._view is not None

    @property
    def is_ready(self) -> bool:
        """Whether the scene is visible."""
        return bool(self._before)

    @property
    def is_filming(self) -> bool:
        """Whether a film is being recorded."""
        return bool(self._timer.isActive())

    def show(self, view: PoreView) -> None:
        """Show only the pores in 3D, coloured by size, inside the transparent sample."""
        if self.is_shown or view.tables.n_spatial != 3:
            return
        self._view = view
        sample = self._sample(view)
        if sample is None:
            self._begin(None, None)
        else:
            make = partial(calling, _ghost_of, sample, view.tables.totals)
            self._worker.submit(make, sample)
        self.changed.emit(True)

    def _begin(self, sample: Any, ghost: tuple[Float32s, int] | None) -> None:
        """Show the scene, once the transparent sample is computed."""
        view, viewer, camera = self._view, self._viewer, self._viewer.scene.camera
        if view is None:
            return
        self._before = {
            "visible": {layer: layer.visible for layer in viewer.layers},
            "camera": {name: getattr(camera, name) for name in ("center", "zoom", "angles")},
            "column": view.column,
            "opacity": view.layer.opacity,
            "point": viewer.dims.point,
        }
        for layer in viewer.layers:
            layer.visible = unwrapped(layer) is view.layer
        if ghost is not None:
            # added in 2D, because napari cannot handle labels in 3D until the pointer has moved
            self._add_ghost(sample, *ghost)
        view.layer.opacity = 1.0
        # a selection would hide all other pores
        view.select(np.zeros_like(view.selected))
        viewer.dims.ndisplay = 3
        viewer.reset_view()
        camera.angles = ANGLES
        if not view.column and SIZE in view.tables.pores:
            view.colour_by(SIZE)
        viewer.dims.events.ndisplay.connect(self._turned_flat)
        viewer.layers.events.removed.connect(self._removed)
        self.shown.emit()

    def leave(self) -> None:
        """Restore the window."""
        view, self._view = self._view, None
        if view is None:
            return
        self._stop_film()
        self._worker.cancel()
        viewer, before = self._viewer, self._before
        if not before:
            self.changed.emit(False)
            return
        viewer.dims.events.ndisplay.disconnect(self._turned_flat)
        viewer.layers.events.removed.disconnect(self._removed)
        viewer.dims.ndisplay = 2
        ghost, self._ghost = self._ghost, None
        if ghost is not None and ghost in viewer.layers:
            viewer.layers.remove(ghost)
        for name, value in before["camera"].items():
            setattr(viewer.scene.camera, name, value)
        for layer, visible in before["visible"].items():
            layer.visible = visible
        # the 3D view has moved the sliders
        for axis, place in enumerate(before["point"][: viewer.dims.ndim]):
            viewer.dims.set_point(axis, place)
        view.layer.opacity = before["opacity"]
        if view.column == SIZE and before["column"] != SIZE:
            view.colour_by(before["column"])
        self._before = {}
        self.changed.emit(False)

    # ---- pictures

    def picture(self) -> QImage:
        """Return the canvas with a legend of the colours."""
        assert self._view is not None
        shown = np.ascontiguousarray(self._viewer.screenshot(canvas_only=True, flash=False))
        height, width = shown.shape[:2]
        image = QImage(shown.data, width, height, 4 * width, QImage.Format.Format_RGBA8888).copy()
        paint_legend(image, self._view)
        return image

    def save(self, path: Path) -> None:
        """Save a picture, or a film of one turn if the path ends in ``.gif``."""
        if path.suffix.lower() != ".gif":
            kinds = [bytes(kind.data()).decode() for kind in QImageWriter.supportedImageFormats()]
            path = with_ending(path, kinds, "png")
            save_with(path, partial(_write_picture, self.picture(), path.suffix.lstrip(".")))
        elif not self.is_filming:
            self._path, self._start = path, self._viewer.scene.camera.angles
            self._frames = []
            # one frame per turn of the event loop, so that the window stays responsive
            self._timer.start()

    def _take_frame(self) -> None:
        number = len(self._frames)
        first, second, third = self._start
        camera = self._viewer.scene.camera
        if number == FRAMES:
            camera.angles = self._start
            self._timer.stop()
            frames, self._frames = self._frames, []
            save_with(self._path, partial(_write_film, frames))
            self.filmed.emit(0)
            return
        camera.angles = (first, (second + 180 + 360 * number / FRAMES) % 360 - 180, third)
        frame = self.picture()
        if frame.width() > FILM_WIDTH:
            way = Qt.TransformationMode.SmoothTransformation
            frame = frame.scaledToWidth(FILM_WIDTH, way)
        self._frames.append(frame.convertToFormat(QImage.Format.Format_RGB888))
        self.filmed.emit(number + 1)

    def _stop_film(self) -> None:
        if self.is_filming:
            self._timer.stop()
            self._frames = []
            self.filmed.emit(0)
            show_info("The film was cancelled because the 3D view was closed.")

    # ---- the sample

    def _sample(self, view: PoreView) -> Any:
        """Return the image layer of the scan of the pores, or None if no image fits."""
        shape = view.layer.data.shape
        images = [
            layer
            for layer in self._viewer.layers
            if isinstance(layer, Image) and not layer.rgb and not layer.multiscale
            if layer.data.shape == shape and not is_preview(layer)
        ]
        made = lineage_of(view.layer)
        source, name = "" if made is None else made.layer, view.layer.name

        def fits(layer: Any) -> tuple[bool, int]:
            # without a record, prefer the image with the name at the start of that of the pores
            return identity(layer) == source, len(layer.name) * name.startswith(layer.name)

        return max(images, key=fits, default=None)

    def _add_ghost(self, sample: Any, values: Float32s, step: int) -> None:
        # offset to the centre of a block of voxels
        shift = (np.array(sample.data.shape) - step * (np.array(values.shape) - 1) - 1) / 2
        self._ghost = Image(
            values,
            scale=np.array(sample.scale) * step,
            translate=np.array(sample.translate) + np.array(sample.scale) * shift,
            units=sample.units,
            axis_labels=sample.axis_labels,
            name=f"{sample.name} (transparent)",
            rendering="iso",
            iso_threshold=0.5,
            contrast_limits=(0, 1),
            opacity=GHOST_OPACITY,
            blending="translucent_no_depth",
            metadata={METADATA_KEY: {"preview": "ghost"}},
        )
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(self._ghost)
        self._viewer.layers.selection = selected

    # ---- actions

    def _turned_flat(self, event: Any = None) -> None:
        if self._viewer.dims.ndisplay == 2:
            self.leave()

    def _removed(self, event: Any) -> None:
        if not self.is_ready:
            # another slot of this event has restored the window
            return
        self._before["visible"].pop(event.value, None)
        if self._view is not None and unwrapped(event.value) is self._view.layer:
            self.leave()


def paint_legend(image: QImage, view: PoreView) -> None:
    """Draw the legend of the colours into the lower left corner of a picture."""
    if not view.column:
        return
    painter = QPainter(image)
    kinds, line = view.categories(), painter.fontMetrics().height()
    height = line * (1 + max(len(kinds), 1)) + _BAR[1] + 4
    left, top = _MARGIN, image.height() - _MARGIN - height
    back = QColor("black")
    back.setAlphaF(0.55)
    painter.fillRect(left - 6, top - 4, _BAR[0] + 12, height + 8, back)
    painter.setPen(QColor("white"))

    def write(row: QRectF, text: str, at: Any = Qt.AlignmentFlag.AlignLeft) -> None:
        painter.drawText(row, int(at | Qt.AlignmentFlag.AlignVCenter), text)

    write(QRectF(left, top, _BAR[0], line), view.tables.titled(view.column))
    if kinds:
        for number, kind in enumerate(kinds):
            at = top + line * (number + 1)
            painter.fillRect(QRectF(left, at + 3, line - 6, line - 6), QColor(kind.colour[:7]))
            write(QRectF(left + line, at, _BAR[0] - line, line), kind.word)
    else:
        colours = AVAILABLE_COLORMAPS[view.colormap].map(np.linspace(0, 1, _BAR[0]))
        for x, colour in enumerate(colours):
            own = QColor.fromRgbF(*map(float, colour))
            painter.fillRect(QRectF(left + x, top + line + 2, 1, _BAR[1]), own)
        row = QRectF(left, top + line + 2 + _BAR[1], _BAR[0], line)
        low, high = (cell_text(limit) for limit in view.limits())
        write(row, low)
        write(row, high, Qt.AlignmentFlag.AlignRight)
    painter.end()


def _ghost_of(sample: Any, totals: dict[str, Any]) -> tuple[Float32s, int]:
    """Return a coarse map of the solid, and the step between its voxels."""
    from scipy.ndimage import uniform_filter

    data = sample.data
    step = max(1, -(-max(data.shape) // GHOST_SIDE))
    coarse = np.asarray(data[(slice(step // 2, None, step),) * data.ndim], np.float32)
    low, high = sample.contrast_limits
    limit = totals.get("threshold")
    is_solid = coarse > (limit if isinstance(limit, int | float) else (low + high) / 2)
    # smooth, because noise would make the surface rough
    smooth: Float32s = uniform_filter(is_solid.astype(np.float32), 3, mode="nearest")
    return smooth, step


def _write_picture(image: QImage, kind: str, path: Path) -> None:
    if not image.save(str(path), kind.upper()):
        raise OutputError(
            f"The picture cannot be written as {kind.upper()} to {path.parent}. Is the disk full? "
            "Save it in another folder."
        )


def _write_film(frames: list[QImage], path: Path) -> None:
    from PIL import Image as Picture

    arrays = [_pixels(frame) for frame in frames]
    # one palette for all frames, to avoid flicker
    all_colours = Picture.fromarray(np.vstack([array[::8, ::8] for array in arrays]))
    palette, none = all_colours.quantize(255), Picture.Dither.NONE
    few = [Picture.fromarray(array).quantize(palette=palette, dither=none) for array in arrays]
    few[0].save(
        path, "GIF", save_all=True, append_images=few[1:], duration=FRAME_TIME, loop=0,
    )  # fmt: skip


def _pixels(image: QImage) -> UInt8s:
    """Return the pixels of an RGB image, (y, x, 3)."""
    bits: Any = image.constBits()
    flat = bits.asarray(image.sizeInBytes()) if hasattr(bits, "asarray") else bits
    rows = np.array(flat, np.uint8).reshape(image.height(), image.bytesPerLine())
    return np.ascontiguousarray(rows[:, : 3 * image.width()].reshape(image.height(), -1, 3))
