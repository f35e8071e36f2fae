"""The widget that inspects training patches: positions, masked pixels, loss."""

from __future__ import annotations

import dataclasses
import html
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Image, Labels, Vectors
from napari.utils.colormaps import AVAILABLE_COLORMAPS
from napari.utils.notifications import show_warning
from qtpy.QtCore import QRectF, Qt, Signal
from qtpy.QtGui import QColor, QPainter
from qtpy.QtWidgets import QAbstractItemView, QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from hushpore.base.formatting import readable_number
from hushpore.patches.result import GAP
from hushpore.viewer.docks import open_page
from hushpore.viewer.forms.fields import ModelField
from hushpore.viewer.forms.layout import Plot, RichLabel, fill, link
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    LayerData,
    is_result,
    point_at,
    units_in_world,
    voxel_at,
)
from hushpore.viewer.patches.layers import (
    BOXES,
    COLOURS,
    SHEET,
    TILES,
    LivePatches,
    first_feature,
    patch_layers,
)
from hushpore.viewer.results.pore_view import ends_as_click
from hushpore.viewer.results.table import TableView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from napari.layers import Layer

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s, Mask
    from hushpore.base.settings import Settings
    from hushpore.patches.result import Patches, Sheet
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker


_BINS = 60
_MARGIN = 6.0

#: Minimum length of a drag in pixels; a shorter one is a click, which clears the range.
_DRAG = 3.0


class PatchHistogram(Plot):
    """A histogram of a feature of patches; dragging over it selects a range.

    `range`: the selected range, or None.
    """

    #: Emitted while a range is dragged: (low, high), or None if cleared.
    chosen = Signal(object)

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, 90)
        self._counts = np.zeros(_BINS)
        self._limits = (0.0, 1.0)
        self.range: tuple[float, float] | None = None
        self._start: float | None = None
        self.setToolTip(
            "Drag to select patches by this feature; click to select all. Keyboard: left and right "
            "move the upper end of the range, with Shift the lower end; Escape selects all."
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Histogram")

    def show_values(self, name: str, values: Array) -> None:
        """Show other values, and clear the range."""
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        self._limits = (float(low), float(high) if high > low else float(low) + 1.0)
        self._counts = np.histogram(finite, _BINS, self._limits)[0]
        self.range = None
        ends = " to ".join(readable_number(end, 4) for end in (low, high))
        self.setAccessibleName(f"Histogram of {name}, {ends}")
        self.update()

    def choose(self, low: float, high: float) -> None:
        """Select a range of the feature, the same as dragging."""
        self.range = (min(low, high), max(low, high))
        self.update()
        self.chosen.emit(self.range)

    def clear(self) -> None:
        """Clear the range, so that all patches are selected."""
        self.range = None
        self.update()
        self.chosen.emit(None)

    def mousePressEvent(self, event: Any) -> None:  # noqa: N802
        """Start to select a range at the pointer."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._start = event.position().x()

    def mouseMoveEvent(self, event: Any) -> None:  # noqa: N802
        """Extend the selected range to the pointer."""
        if self._start is not None and abs(event.position().x() - self._start) > _DRAG:
            self.choose(self._value_at(self._start), self._value_at(event.position().x()))

    def mouseReleaseEvent(self, event: Any) -> None:  # noqa: N802
        """Finish selecting the range; a click clears it."""
        if self._start is not None and abs(event.position().x() - self._start) <= _DRAG:
            self.clear()
        self._start = None

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Move an end of the range by one bar, or select all."""
        way = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(event.key())
        if event.key() == Qt.Key.Key_Escape and self.range is not None:
            self.clear()
        elif way is not None:
            first, last = self._limits
            low, high = self.range or self._limits
            by = way * (last - first) / _BINS
            if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                low = min(max(low + by, first), high)
            else:
                high = max(min(high + by, last), low)
            self.choose(low, high)
        else:
            super().keyPressEvent(event)

    def _paint(self, painter: QPainter, text: QColor) -> None:
        """Draw the bars, pale outside the range, and the limits."""
        pale = QColor(text)
        pale.setAlphaF(0.35)
        line = painter.fontMetrics().height()
        area = QRectF(self.rect()).adjusted(_MARGIN, _MARGIN, -_MARGIN, -_MARGIN - line)
        width, most = area.width() / _BINS, max(1.0, float(np.sqrt(self._counts.max())))
        edges = np.linspace(*self._limits, _BINS + 1)
        colours = AVAILABLE_COLORMAPS[COLOURS].map(np.linspace(0, 1, _BINS))
        low, high = self.range or self._limits
        for number, count in enumerate(self._counts):
            # square roots, so that single patches are visible beside hundreds
            height = area.height() * float(np.sqrt(count)) / most
            within = edges[number + 1] >= low and edges[number] <= high
            left = area.left() + number * width
            bar = QRectF(left, area.bottom() - height, max(width - 1, 1), height)
            # in the colours of the boxes, so that the histogram is their colour bar
            colour = QColor.fromRgbF(*map(float, colours[number]))
            painter.fillRect(bar, colour if within else pale)
        painter.setPen(text)
        below = QRectF(area.left(), area.bottom(), area.width(), line + 2)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, readable_number(low, 4))
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, readable_number(high, 4))

    def _value_at(self, x: float) -> float:
        share = (x - _MARGIN) / max(float(self.width()) - 2 * _MARGIN, 1.0)
        low, high = self._limits
        return low + (high - low) * min(max(share, 0.0), 1.0)


#: Colour of the marked box: white, which the colour map does not contain.
_MARK = (1.0, 1.0, 1.0, 1.0)

#: Opacity of boxes that are not selected.
_PALE = 0.15


class PatchesPanel(QWidget):
    """Shows the patches of the newest boxes in the viewer, and links their views.

    `boxes`: the layer of the boxes, or None.
    """

    #: Requests training on the selected patches (True), or without them (False).
    train_requested = Signal(bool)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self.boxes: Any = None
        self._chosen: Mask = np.zeros(0, np.bool_)
        self._marked: int | None = None
        self._user_feature = ""  # feature chosen by the user
        self._colours: Float32s = np.zeros((0, 4), np.float32)
        self.feature = QComboBox(
            accessibleName="Colour boxes by", currentTextChanged=self._show_feature,
            toolTip="Colour the boxes by a column of the table, from blue (low) to yellow (high).",
        )  # fmt: skip
        self.feature.textActivated.connect(self._take_feature)
        self.histogram = PatchHistogram(viewer)
        self.histogram.chosen.connect(self._choose_range)
        self.message = RichLabel(viewer)
        self.message.linkActivated.connect(self._follow)
        self.table = TableView("Table of patches", ())
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setMinimumHeight(160)
        self.table.chosen.connect(self._choose_row)
        line = fill(QHBoxLayout(), QLabel("Colour by"), self.feature, wide=self.feature)
        fill(QVBoxLayout(self), line, self.histogram, self.message, self.table)
        self.hide()
        viewer.layers.events.inserted.connect(self._follow_layers)
        viewer.layers.events.removed.connect(self._follow_layers)
        viewer.mouse_drag_callbacks.append(self._pressed)
        self._follow_layers()

    def forget(self) -> None:
        """Disconnect from the viewer."""
        if self._pressed in self._viewer.mouse_drag_callbacks:
            self._viewer.mouse_drag_callbacks.remove(self._pressed)
        for event in ("inserted", "removed"):
            getattr(self._viewer.layers.events, event).disconnect(self._follow_layers)

    @property
    def result(self) -> Patches | None:
        """The shown patches."""
        return None if self.boxes is None else self.boxes.metadata[METADATA_KEY]["patches"]

    def chosen(self) -> Int64s:
        """Return the patches in the range of the histogram; all if there is no range."""
        return np.flatnonzero(self._chosen)

    def mark(self, patch: int, row: str = "") -> None:
        """Mark a patch in all views."""
        assert self.result is not None
        self._marked = patch
        self._paint_boxes()
        layer = self._sheet_layer()
        if layer is not None and layer.metadata[METADATA_KEY]["sheet"].box_of(patch) is None:
            self._fill_sheet()
        else:
            self._paint_sheet()
        self.table.select(np.arange(len(self.result.corners)) == patch)
        self._say(row)

    def go_to(self, patch: int) -> None:
        """Move the viewer to the slice of a patch, and to the patch if it is out of view."""
        assert self.result is not None
        world = point_at(self._viewer, self.boxes, self.result.centres[patch])
        dims, camera = self._viewer.dims, self._viewer.scene.camera
        first = dims.ndim - len(world)
        for axis, place in enumerate(world):
            if first + axis not in dims.displayed:
                dims.set_point(first + axis, float(place))
        place = np.array([world[axis - first] for axis in dims.displayed])
        seen = np.array(self._viewer.canvas.size) / camera.zoom / 2
        away = np.abs(place - camera.center[-len(place) :])[-2:]
        if (away > seen).any():
            camera.center = tuple(float(coordinate) for coordinate in place)

    def bring_sheet_into_view(self) -> None:
        """Zoom out to volume and contact sheet, if the sheet is out of view."""
        layer, camera = self._sheet_layer(), self._viewer.scene.camera
        if layer is None or not layer.visible or self._viewer.dims.ndisplay != 2:
            return
        half = np.array(self._viewer.canvas.size) / camera.zoom / 2
        corners = layer.extent.world[:, -2:] * units_in_world(self._viewer, layer.units)[-2:]
        if (np.abs(corners - camera.center[-2:]) > half).any():
            self._viewer.reset_view()

    # ---- following the viewer

    def _follow_layers(self, event: Any = None) -> None:
        layers = [layer for layer in self._viewer.layers if _shows(layer, BOXES)]
        boxes = layers[-1] if layers else None
        if boxes is self.boxes:
            if event is not None and event.type == "inserted" and _shows(event.value, SHEET):
                self._fill_sheet()
            return
        self.boxes, self._marked = boxes, None
        self.setVisible(boxes is not None)
        if self.result is None:
            return
        self._chosen = np.ones(len(self.result.corners), np.bool_)
        before, names = self._user_feature, list(self.result.features)
        with signals_blocked(self.feature):
            self.feature.clear()
            self.feature.addItems(names)
            self.feature.setCurrentText(before if before in names else first_feature(self.result))
        self.table.show_table(self.result.table())
        self._show_feature()

    def _sheet_layer(self) -> Any:
        """Return the contact sheet that belongs to the boxes, or None."""
        if self.boxes is None:
            return None
        made = self.boxes.metadata[METADATA_KEY]["provenance"]
        for layer in reversed(self._viewer.layers):
            if _shows(layer, SHEET) and layer.metadata[METADATA_KEY]["provenance"] is made:
                return layer
        return None

    def _pressed(self, viewer: Any, event: Any) -> Iterator[None]:
        """Handle a click (not a drag) on the canvas."""
        layer = viewer.layers.selection.active
        drawing = str(getattr(layer, "mode", "pan_zoom")) not in ("pan_zoom", "transform")
        if self.boxes is None or event.button != 1 or drawing:
            return
        if (yield from ends_as_click(event)):
            self.click(np.array(event.position, float))

    def click(self, world: Float64s) -> None:
        """Mark the patch at a click in world coordinates; go to the patch of a clicked tile."""
        if self.result is None:
            return
        layer = self._sheet_layer()
        if layer is not None and layer.visible:
            sheet = layer.metadata[METADATA_KEY]["sheet"]
            y, x = voxel_at(self._viewer, layer, world)[-2:]
            tile = sheet.at(y, x - sheet.caption_width)
            if tile is not None:
                self.mark(*tile)
                self.go_to(tile[0])
                return
        if self.boxes.visible and self._viewer.dims.ndisplay == 2:
            point = voxel_at(self._viewer, self.boxes, world)
            # the nearest slice is on the screen
            point[:-2] = np.round(point[:-2])
            under = self.result.at(point)
            under = under[self._chosen[under]]
            if len(under):
                # a second click marks the next of overlapping boxes
                again = np.flatnonzero(under == self._marked)
                self.mark(int(under[(again[0] + 1) % len(under)] if len(again) else under[0]))

    # ---- the selection in all views

    def _take_feature(self, name: str) -> None:
        self._user_feature = name

    def _show_feature(self, name: str = "") -> None:
        """Colour the boxes by a feature, and sort the sheet by it."""
        if self.result is None:
            return
        feature = self.feature.currentText()
        values = self.result.features[feature]
        self.histogram.show_values(feature, values)
        low, high = float(values.min()), float(values.max())
        scaled = ((values - low) / (high - low or 1.0)).astype(np.float32)
        self._colours = np.asarray(self.boxes.edge_colormap.map(scaled), np.float32)
        self._choose_range(None)

    def _choose_range(self, limits: tuple[float, float] | None) -> None:
        if self.result is None:
            return
        values = self.result.features[self.feature.currentText()]
        self._marked = None
        self._chosen[:] = True
        if limits is not None:
            self._chosen = (values >= limits[0]) & (values <= limits[1])
        self._paint_boxes()
        self._fill_sheet()
        self._say()

    def _paint_boxes(self) -> None:
        """Colour all boxes at once: pale if not selected, white if marked."""
        n_edges = len(self.boxes.data) // max(len(self._colours), 1)
        colours = self._colours.copy()
        colours[~self._chosen, 3] = _PALE
        if self._marked is not None:
            colours[self._marked] = _MARK
        self.boxes.edge_color = colours.repeat(n_edges, axis=0)

    def _fill_sheet(self) -> None:
        """Show the selected patches on the sheet, highest first, and the marked one."""
        layer = self._sheet_layer()
        if layer is None or self.result is None:
            return
        ranked = self.result.ranked(self.feature.currentText(), len(self._chosen))
        tiles = ranked[self._chosen[ranked]][:TILES]
        if self._marked is not None and self._marked not in tiles:
            tiles = np.concatenate([[self._marked], tiles[: TILES - 1]])
        metadata = layer.metadata[METADATA_KEY]
        # the tiles are mostly unchanged after a run
        if not np.array_equal(tiles, metadata["sheet"].patches):
            high = layer.scale[0] * layer.data.shape[0]
            metadata["sheet"] = sheet = self.result.sheet(tiles)
            layer.scale = (high / sheet.image.shape[0],) * 2
        self._paint_sheet()

    def _paint_sheet(self) -> None:
        """Draw a frame around the tiles of the marked patch."""
        layer = self._sheet_layer()
        if layer is None:
            return
        sheet: Sheet = layer.metadata[METADATA_KEY]["sheet"]
        box = None if self._marked is None else sheet.box_of(self._marked)
        image, before = sheet.captioned, sheet.caption_width
        if box is not None:
            top, left, last_y, last_x = box
            shown = image[:, before:]
            shown[max(top - GAP, 0) : last_y + GAP + 1, max(left - GAP, 0) : last_x + GAP + 1] = (
                layer.contrast_limits[1]
            )
            tiles = slice(top, last_y + 1), slice(left, last_x + 1)
            shown[tiles] = sheet.image[tiles]
        if not np.array_equal(image, layer.data):
            layer.data = image

    def _say(self, row: str = "") -> None:
        assert self.result is not None
        count, every = int(self._chosen.sum()), len(self._chosen)
        text = (
            "Drag over the histogram to select patches: to train on them only, or to exclude them."
            if count == every
            else f"{count:,} of {every:,} patches selected: {link('train', 'train only on these')} "
            f"or {link('leave', 'exclude these')}."
        )
        if self._marked is not None:
            places = zip(self.result.volume.axes, self.result.corners[self._marked], strict=True)
            where = ", ".join(f"{axis} {at}" for axis, at in places)
            numbers = ", ".join(
                f"{name} {readable_number(float(values[self._marked]))}"
                for name, values in self.result.features.items()
                if name != "order"
            )
            marked = f"Patch {self._marked} ({where}): {numbers}"
            text = f"{html.escape(f'{marked}, {row}' if row else marked)}<br>{text}"
        layer = self._sheet_layer()
        if layer is not None:
            rows = ", ".join(layer.metadata[METADATA_KEY]["sheet"].rows)
            text += f"<br>Contact sheet, rows from the top: {html.escape(rows)}."
        self.message.say(text)

    def _choose_row(self, rows: Mask) -> None:
        for patch in np.flatnonzero(rows).tolist():
            self.mark(patch)
            self.go_to(patch)

    def _follow(self, target: str) -> None:
        self.train_requested.emit(target == "train")


def _shows(layer: Any, what: str) -> bool:
    metadata = layer.metadata.get(METADATA_KEY)
    kind = Vectors if what == BOXES else Image
    return isinstance(layer, kind) and isinstance(metadata, dict) and metadata.get("shows") == what


#: Maximum number of voxels of a mask of excluded regions.
_MOST_VOXELS = 1 << 30


class PatchesWidget(JobWidget):
    """Samples patches and shows them: boxes, masked pixels, contact sheet, table."""

    job = "patches"
    fields: ClassVar = {"model": ModelField}
    room_for_result: ClassVar = (0.52, 57)

    def __init__(self, napari_viewer: Any) -> None:
        # kept during a run, because the file of a model is deleted with the model
        self._model_in_use: Any = None
        super().__init__(napari_viewer)
        self.panel = PatchesPanel(napari_viewer)
        self.panel.train_requested.connect(self._open_denoiser)
        column = self._lower.column
        self.live = LivePatches(napari_viewer)
        column.insertWidget(column.indexOf(self.timing), self.panel)
        column.insertWidget(column.indexOf(self.panel), self.live)
        self.form.changed.connect(self._follow_model)
        self.form.changed.connect(self._follow_weights)
        self.native.destroyed.connect(self.panel.forget)

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Images to train a denoiser on, not its results or contact sheets."""
        return super().prefers(layer) and not is_result(layer, "denoise")

    @classmethod
    def result_layers(cls, result: Patches, target: Target) -> list[LayerData]:
        """Return boxes, masked pixels, groups and the contact sheet."""
        return patch_layers(result, target)

    def settings(self) -> Settings:
        """Return the settings for a run; weights of a labels layer are labels."""
        settings = super().settings()
        if self._weights_hold_labels:
            return dataclasses.replace(settings, weights_are_labels=True)  # type: ignore[call-arg]
        return settings

    def run(self) -> JobWorker:
        """Start the job, and keep the model, because its layer may be removed meanwhile."""
        model = self.form.model.model
        worker = super().run()
        if self._model_in_use is None:
            self._model_in_use = model
        return worker

    def _finish(self) -> None:
        super()._finish()
        self._model_in_use = None

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        super()._show_outcome(outcome, made)
        self.panel.bring_sheet_into_view()

    @property
    def _weights_hold_labels(self) -> bool:
        return isinstance(self.form.weights.layer, Labels)

    def _follow_weights(self) -> None:
        """Disable 'Weights are labels' if the layer decides it."""
        self.form.know(weights_hold_labels=self._weights_hold_labels)

    def _follow_model(self) -> None:
        model = self.form.model.model
        if model is not None and self.form.dimensions.value != model.network.dimensions:
            self.form.dimensions.value = model.network.dimensions

    def _open_denoiser(self, only_these: bool) -> None:
        """Open Denoise with points to train at, or with a mask of regions to exclude."""
        result, boxes = self.panel.result, self.panel.boxes
        if result is None:
            return
        if only_these:
            layer = self._training_points(result, boxes)
        elif np.prod(result.volume.shape) <= _MOST_VOXELS:
            layer = self._excluded_mask(result, boxes)
        else:
            show_warning(
                "The volume is too large for a mask of excluded regions. Train on selected patches "
                "instead."
            )
            return
        self._viewer.layers.selection.active = boxes
        if hasattr(self._viewer, "window"):
            widget = open_page(self._viewer, "Denoise")
            name = "train_at" if only_these else "leave_out"
            widget[name].value = layer
            widget.form.more.set_open(True)

    def _training_points(self, result: Patches, boxes: Any) -> Any:
        return self._viewer.add_points(
            result.centres[self.panel.chosen()],
            name=f"{result.volume.name} training points",
            size=result.patch_shape[-1] / 8,
            symbol="cross",
            face_color="yellow",
            **_place_of(boxes),
        )

    def _excluded_mask(self, result: Patches, boxes: Any) -> Any:
        mask = np.zeros(result.volume.spatial_shape, np.uint8)
        n_spatial = result.volume.n_spatial
        size = (1,) * (n_spatial - len(result.patch_shape)) + result.patch_shape
        for corner in result.corners[self.panel.chosen()][:, -n_spatial:]:
            mask[tuple(slice(c, c + edge) for c, edge in zip(corner, size, strict=True))] = 1
        placement = {name: value[-n_spatial:] for name, value in _place_of(boxes).items()}
        name = f"{result.volume.name} excluded from training"
        return self._viewer.add_labels(mask, name=name, opacity=0.4, **placement)


def _place_of(layer: Any) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("scale", "translate", "units", "axis_labels")}
