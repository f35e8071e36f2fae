"""The widget that crops and bins a scan: a box dragged on the slice, and a slider for each axis."""

from __future__ import annotations

import html
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QFormLayout,
    QHBoxLayout,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)
from superqt import QLabeledRangeSlider

from hushpore.base.errors import HushporeError
from hushpore.base.formatting import readable_bytes
from hushpore.runs.sample_crop import Cylinder, find_cylinder, sample_box
from hushpore.viewer.forms.choices import LayerChoice
from hushpore.viewer.forms.layout import RichLabel, ScrolledColumn, fill, plain_label, sign
from hushpore.viewer.layers.conversion import placement_of, volume_of
from hushpore.viewer.layers.crop_layers import Part, add_copies, can_crop, crop_job, is_scan
from hushpore.viewer.layers.visibility import go_to_slice, slice_of
from hushpore.viewer.running.status import LoadingTask
from hushpore.viewer.running.worker import calling

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.problem import Problem

PURPOSE = (
    "Drag the box on the slice, or move the sliders. Only the box is read, and it keeps its place. "
    "Masks and points on the scan are cropped with it."
)

#: Name of the layer with the box.
BOX = "crop box"

#: Largest block length.
_MOST = 64


class CropWidget(QWidget):
    """Crops and bins the chosen scan into a new layer."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._box: Any = None  # the layer with the box; hidden with this widget
        self._is_drawing = self._is_done = False
        self._cylinder: Cylinder | None = None  # kept while the box is its box
        self.layer = LayerChoice(napari_viewer, can_crop, is_scan)
        self._build()
        self.layer.changed.connect(self._choose)
        napari_viewer.layers.events.removed.connect(self._forget_box)
        self._scan: Any = ()  # the layer and its shape
        self._choose()

    def _build(self) -> None:
        self._n_spatial, self._ends = 3, (0, 1)
        self._sliders: list[Any] = []
        for axis, name in enumerate("zyx"):
            slider = QLabeledRangeSlider(Qt.Orientation.Horizontal, accessibleName=f"{name} range")
            slider.setEdgeLabelMode(QLabeledRangeSlider.EdgeLabelMode.NoLabel)
            slider.setToolTip(f"First voxel and end of the box along {name}; the end is excluded.")
            slider.valueChanged.connect(partial(self._moved, axis))
            self._sliders.append(slider)
        tip = "Average blocks of this many voxels along each axis. 1: no binning."
        self._factor = QSpinBox(minimum=1, maximum=_MOST, toolTip=tip, accessibleName="Bin")
        self._factor.valueChanged.connect(self._show_size)
        tip = "Bin along y and x only."
        self._keep_slices = QCheckBox("Keep all slices", toolTip=tip)
        self._keep_slices.toggled.connect(self._show_size)
        tip = "Set the box around the sample, without the air and padding beyond it."
        self._sample = QPushButton("Crop to &sample", toolTip=tip, clicked=self.to_sample)
        tip = (
            "Keep the largest upright cylinder inside the sample. Voxels outside it get a fill "
            "value, which is neither pore nor solid. Moving the box keeps the whole box again."
        )
        self._round = QPushButton("Crop to c&ylinder", toolTip=tip, clicked=self.to_cylinder)
        tip = "Set the box to the whole scan."
        self._all = QPushButton("&Whole scan", toolTip=tip, clicked=self.whole)
        self._run = QPushButton(
            "&Crop", styleSheet="font-weight: bold; padding: 6px;", clicked=self.crop
        )
        self._size, self._result = plain_label(), RichLabel(self._viewer)
        self._form = QFormLayout()
        for name, slider in zip("zyx", self._sliders, strict=True):
            self._form.addRow(name, slider)
        self._form.addRow("Bin", self._factor)
        self._form.addRow("", self._keep_slices)
        buttons = fill(QHBoxLayout(), self._sample, self._round)
        fill(QVBoxLayout(self), ScrolledColumn(
            plain_label(PURPOSE), self.layer.native, self._form, buttons, self._all, self._size,
            self._run, self._result,
        ))  # fmt: skip

    # ---- what the box is

    @property
    def part(self) -> Part:
        """The box and the block length."""
        sliders = self._sliders[-self._n_spatial :]
        box = tuple((int(low), int(high)) for low, high in (slider.value() for slider in sliders))
        factor = self._factor.value()
        slider = [factor] * self._n_spatial
        if self._n_spatial == 3 and self._keep_slices.isChecked():
            slider[0] = 1
        part = Part(box, tuple(slider))
        if self._cylinder is not None and part.crop == self._cylinder.box:
            return replace(part, cylinder=self._cylinder)
        return part

    def set_box(self, box: str) -> None:
        """Set the box from a text, as `hushpore.io.parts.cropped` takes it."""
        for slider, ends in zip(self._sliders[-self._n_spatial :], box.split(","), strict=True):
            low, _, high = ends.partition(":")
            slider.setValue((int(low or 0), int(high or slider.maximum())))

    def crop(self) -> None:
        """Add the cropped and binned copy of the chosen layer, made in a thread."""
        layer = self.layer.value
        if layer is None:
            return
        try:
            job = partial(crop_job, self._viewer, layer, self.part)
            # layers are read here, values in the thread
            work = job()
        except HushporeError as error:
            self._say(str(error))
            return
        self._say("")
        self._run.setEnabled(False)
        LoadingTask(f"Cropping {layer.name}", lambda: work, self._done, self._failed)

    def to_sample(self) -> None:
        """Set the box to that around the sample, found in a thread."""
        self._find("Finding the sample", sample_box, self._found)

    def to_cylinder(self) -> None:
        """Set the box to that around the largest cylinder inside the sample, found in a thread."""
        self._find("Finding the cylinder", find_cylinder, self._found_cylinder)

    def whole(self) -> None:
        """Set the box to the whole scan."""
        self._cylinder = None
        self.set_box(",".join(":" for _ in range(self._n_spatial)))

    def _find(self, title: str, function: Any, done: Any) -> None:
        if self.layer.value is None:
            return
        self._set_finding(True)
        work = partial(calling, function, self._volume())
        LoadingTask(title, work, done, self._failed)

    def _set_finding(self, is_running: bool) -> None:
        for button in (self._sample, self._round):
            button.setEnabled(not is_running)

    # ---- events

    def _choose(self, *_: Any) -> None:
        layer = self.layer.value
        state = None if layer is None else (layer, self._volume().shape)
        if state == self._scan:
            return
        self._scan, self._cylinder = state, None
        self._hide_box()
        buttons = (self._sample, self._round, self._all)
        for widget in (*self._sliders, self._factor, *buttons):
            widget.setEnabled(layer is not None)
        if layer is None:
            self._show_size()
            return
        shape = self._volume().spatial_shape
        self._n_spatial = len(shape)
        self._form.setRowVisible(self._sliders[0], len(shape) == 3)
        self._keep_slices.setVisible(len(shape) == 3)
        self._factor.setMaximum(min(_MOST, *shape[-2:]))
        for slider, n in zip(self._sliders[-len(shape) :], shape, strict=True):
            slider.blockSignals(True)
            slider.setRange(0, n)
            slider.setValue((0, n))
            slider.blockSignals(False)
        self._ends = tuple(self._sliders[0].value())
        self._show_size()
        if self.isVisible() and not self._is_done:
            self._show_box()

    def _moved(self, axis: int, ends: tuple[int, int]) -> None:
        """Draw the box, and go to a slice at its end."""
        layer = self.layer.value
        if layer is None or self._is_drawing:
            return
        if axis == 0:
            at = slice_of(self._viewer, layer)
            low, high = (int(end) for end in ends)
            before, self._ends = self._ends, (low, high)
            if before != self._ends:
                at[-3] = low if low != before[0] else high - 1
                go_to_slice(self._viewer, layer, at)
        else:
            self._draw()
        self._show_size()

    def _dragged(self, _event: Any = None) -> None:
        if self._is_drawing or self._box is None or not len(self._box.data):
            return
        corners = np.asarray(self._box.data[0])[:, -2:]
        low, high = np.rint(corners.min(0) + 0.5), np.rint(corners.max(0) + 0.5)
        for slider, left, right in zip(self._sliders[1:], low, high, strict=True):
            start = int(np.clip(left, 0, slider.maximum() - 1))
            end = int(np.clip(right, start + 1, slider.maximum()))
            slider.blockSignals(True)
            slider.setValue((start, end))
            slider.blockSignals(False)
        self._draw()
        self._show_size()

    def _found_cylinder(self, cylinder: Cylinder) -> None:
        self._set_finding(False)
        self._say("")
        self._cylinder = cylinder
        self.set_box(cylinder.box)
        self._show_size()

    def _found(self, box: str) -> None:
        self._set_finding(False)
        self._cylinder = None
        before = self.part.box
        self.set_box(box)
        is_whole = box.count(":") == box.count(",") + 1 and self._is_whole
        if is_whole and before == self.part.box:
            self._say("No air or padding was found around the sample.")
        elif is_whole:
            self._say("No air or padding was found around the sample; the box is the whole scan.")
        else:
            self._say("")

    def _done(self, made: list[Any]) -> None:
        self._run.setEnabled(True)
        self._hide_box()
        # the box would hide the edges of the copy, until it is moved again
        self._is_done = True
        add_copies(self._viewer, made)
        self._is_done = False
        image = made[-1]
        others = f", with {', '.join(layer.name for layer in made[:-1])}" if made[1:] else ""
        self._result.say(html.escape(f"Added {image.name}{others}."))

    def _failed(self, problem: Problem) -> None:
        self._run.setEnabled(True)
        self._set_finding(False)
        self._say(problem.message)

    def _say(self, text: str) -> None:
        self._result.say(f"{sign(False)} {html.escape(text)}" if text else "")

    def showEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Show the box on the slice."""
        super().showEvent(event)
        self._show_box()

    def hideEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Hide the box."""
        super().hideEvent(event)
        self._hide_box()

    # ---- the box on the slice

    def _show_box(self) -> None:
        """Show the box on the chosen layer, ready to be dragged."""
        layer = self.layer.value
        if layer is None or (self._box is not None and self._box.visible):
            return
        place = placement_of(layer)
        if self._box is None:
            found = (each for each in self._viewer.layers if each.name == BOX)
            self._box = next(found, None) or self._viewer.add_shapes(
                [self._corners()], shape_type="rectangle", name=BOX, opacity=1, ndim=2,
                edge_color="yellow", face_color="transparent",
            )  # fmt: skip
            self._box.events.data.connect(self._dragged)
        for name in ("scale", "translate", "units", "axis_labels"):
            setattr(self._box, name, getattr(place, name)[-2:])
        self._box.visible = True
        self._viewer.layers.selection.active = self._box
        self._box.mode = "select"
        self._draw()

    def _hide_box(self) -> None:
        """Hide the box: without a graphics card VisPy crashes when shapes are removed."""
        if self._box is None or not self._box.visible:
            return
        self._box.mode = "pan_zoom"
        self._box.visible = False
        if self._viewer.layers.selection.active is self._box and self.layer.value is not None:
            self._viewer.layers.selection.active = self.layer.value

    def _forget_box(self, event: Any) -> None:
        if event.value is self._box:
            self._box = None

    def _draw(self) -> None:
        if self._box is None or not self._box.visible:
            self._show_box()
            return
        self._is_drawing = True
        try:
            self._box.data = [self._corners()]
            self._box.edge_width = self._edge
            self._box.selected_data = {0}
        finally:
            self._is_drawing = False

    def _corners(self) -> np.ndarray:
        (top, bottom), (left, right) = self.part.box[-2:]
        corners = [(top, left), (top, right), (bottom, right), (bottom, left)]
        # a voxel lies around its index
        return np.array(corners, float) - 0.5

    @property
    def _edge(self) -> float:
        return float(max(slider.maximum() for slider in self._sliders[-2:])) / 200

    # ---- appearance

    def _volume(self) -> Volume:
        layer = self.layer.value
        return volume_of(layer, tuple(self._viewer.dims.axis_labels[-layer.ndim :]))

    @property
    def _is_whole(self) -> bool:
        sliders = self._sliders[-self._n_spatial :]
        return all(tuple(slider.value()) == (0, slider.maximum()) for slider in sliders)

    def _show_size(self, *_: Any) -> None:
        """Show shape and size of the copy, and whether there is anything to do."""
        if self.layer.value is None:
            self._size.setText("Open a scan first.")
            self._run.setEnabled(False)
            return
        part, volume = self.part, self._volume()
        is_empty = min(part.shape) < 1
        nothing = self._is_whole and not part.bin and part.cylinder is None
        self._run.setEnabled(not is_empty and not nothing)
        tip = "Add the part as a new layer. The scan is unchanged."
        if is_empty:
            tip = "The box is smaller than one block. Enlarge it, or bin less."
        elif nothing:
            tip = "Move the box or set Bin first."
        self._run.setToolTip(tip)
        copy = volume.leading_shape + part.shape
        share = np.prod(copy) / np.prod(volume.shape)
        size = readable_bytes(round(volume.nbytes * share))
        shape = " x ".join(map(str, copy))
        kind = "voxels" if part.cylinder is None else "voxels, cylinder inside"
        self._size.setText(f"{shape} {kind} · {size} · --crop {part.recipe}" + (
            f" --bin {part.bin}" if part.bin else ""
        ))  # fmt: skip
