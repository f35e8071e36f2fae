"""The widgets that make a new scan out of others: cropped, aligned with another, or flattened."""

from __future__ import annotations

import dataclasses
import html
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Layer
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
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
from hushpore.io.align import aligned
from hushpore.io.flatten import Solid, flattened
from hushpore.io.loading import into_memory
from hushpore.runs.sample_crop import Cylinder, find_cylinder, sample_box
from hushpore.viewer.forms.choices import LayerChoice
from hushpore.viewer.forms.layout import RichLabel, ScrolledColumn, fill, plain_label, sign
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    OF_FILE,
    PREVIEW,
    READ,
    VOXEL_SIZE,
    Lineage,
    appearance_of,
    identity,
    known_of,
    layer_data,
    placement_of,
    scan_of,
    set_lineage,
    volume_of,
)
from hushpore.viewer.layers.crop_layers import Part, add_copies, can_crop, crop_job, is_scan
from hushpore.viewer.layers.visibility import go_to_slice, slice_of
from hushpore.viewer.running.status import LoadingTask
from hushpore.viewer.running.worker import calling

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.problem import Problem


class ScanPanel(QWidget):
    """Form fields, buttons and a line below that says what came of the last run."""

    #: Name, what it is for, and tooltip of its main button, which is named as the widget.
    NAME = PURPOSE = TIP = ""

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self._run = QPushButton(
            f"&{self.NAME}", toolTip=self.TIP, clicked=self.start,
            styleSheet="font-weight: bold; padding: 6px;",
        )  # fmt: skip
        self._buttons = [self._run]
        self._result = RichLabel(viewer)

    def _arrange(self, *parts: Any) -> None:
        buttons = fill(QHBoxLayout(), *self._buttons)
        column = ScrolledColumn(plain_label(self.PURPOSE), *parts, buttons, self._result)
        fill(QVBoxLayout(self), column)

    def start(self) -> None:
        """Add the new scan, made in a thread."""
        raise NotImplementedError

    def _volume_of(self, layer: Any) -> Volume:
        return volume_of(layer, tuple(self._viewer.dims.axis_labels[-layer.ndim :]))

    def _start(self, title: str, work: Callable[[], Job], done: Callable[[Any], None]) -> None:
        self._say("")
        self._enable(False)

        def finished(made: Any) -> None:
            self._enable(True)
            done(made)

        LoadingTask(title, work, finished, self._failed)

    def _enable(self, are_enabled: bool) -> None:
        for button in self._buttons:
            button.setEnabled(are_enabled)

    def _failed(self, problem: Problem) -> None:
        self._enable(True)
        self._choose()
        self._say(problem.message)

    def _say(self, text: str) -> None:
        self._result.say(f"{sign(False)} {html.escape(text)}" if text else "")

    def _choose(self, *_: Any) -> None:
        """Enable the buttons if what is chosen can be processed."""
        raise NotImplementedError


class AlignWidget(ScanPanel):
    """Aligns the moving scan with the fixed scan, as a new layer."""

    NAME = "Align"
    PURPOSE = (
        "Shifts and rotates a scan onto the grid of another scan of the same sample, for repeat "
        "scans and scans before and after a treatment. Both scans are unchanged."
    )
    TIP = "Find the motion, and add the moved scan as a new layer."

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        tips = {
            "Moving scan": "Scan to shift and rotate, by up to about 10 degrees.",
            "Fixed scan": "Scan whose grid the result has.",
        }
        form, choices = QFormLayout(), []
        for name, tip in tips.items():
            choice = LayerChoice(napari_viewer, _can_align, lambda _: False)
            choice.native.setAccessibleName(name)
            choice.native.setToolTip(tip)
            form.addRow(name, choice.native)
            choices.append(choice)
        self.moving, self.fixed = choices
        self._arrange(form)
        others = [layer for layer in napari_viewer.layers if _can_align(layer) and is_scan(layer)]
        if len(others) > 1:
            # two scans of which the newer one was probably taken later
            self.fixed.value, self.moving.value = others[0], others[-1]
        for choice in choices:
            choice.changed.connect(self._choose)
        self._choose()

    def start(self) -> None:
        """Add the aligned copy of the moving scan, made in a thread."""
        moving, fixed = self.moving.value, self.fixed.value
        work = partial(_aligned, self._volume_of(moving), self._volume_of(fixed))
        self._start(f"Aligning {moving.name}", work, partial(self._done, moving, fixed))

    def _done(self, moving: Any, fixed: Any, volume: Volume) -> None:
        self._choose()
        known = known_of(fixed)
        shared = {VOXEL_SIZE: known[VOXEL_SIZE]} if VOXEL_SIZE in known else {}
        # no file holds these values
        volume = dataclasses.replace(volume, source="")
        made = _new_layer(moving, volume, fixed, "align", f"{moving.name} aligned", shared)
        moving.visible = False
        self._viewer.add_layer(made)
        finding, name = html.escape(volume.notes[-1]), html.escape(made.name)
        self._result.say(f"{finding} Added {name}; compare it with {html.escape(fixed.name)}.")

    def _choose(self, *_: Any) -> None:
        moving, fixed = self.moving.value, self.fixed.value
        are_two = moving is not None and fixed is not None and moving is not fixed
        self._run.setEnabled(are_two)
        self._result.say("" if are_two else "Open two scans of one sample, and choose both.")


class FlattenWidget(ScanPanel):
    """Flattens the chosen scan into a new layer, with a preview on the slice."""

    NAME = "Flatten"
    PURPOSE = (
        "Removes drift and cupping (beam hardening) of the grey value of the solid by a smooth "
        "field. Grains stay; the scan is unchanged."
    )
    TIP = "Add the flattened scan as a new layer."

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self._preview: Any = None  # the layer with the preview
        self._chosen: Any = None  # the layer that it is of
        self.layer = LayerChoice(napari_viewer, _can_flatten, is_scan)
        tip = "Whether the solid is brighter or darker than the pores."
        self._solid = QComboBox(toolTip=tip, accessibleName="Solid")
        self._solid.addItems(["bright", "dark"])
        tip = "Fit the field and show the slice without the drift; other slices follow the slider."
        self._show = QPushButton("&Preview", toolTip=tip, clicked=self.preview)
        self._buttons.insert(0, self._show)
        form = QFormLayout()
        form.addRow("Solid", self._solid)
        self._arrange(self.layer.native, form)
        self.layer.changed.connect(self._choose)
        self._choose()

    def preview(self) -> None:
        """Show the flattened scan lazily, as soon as the field is fitted in a thread."""
        self._flatten("Fitting the field of", in_memory=False)

    def start(self) -> None:
        """Add the flattened copy of the chosen layer, made in a thread."""
        self._flatten("Flattening", in_memory=True)

    def _flatten(self, verb: str, *, in_memory: bool) -> None:
        layer = self.layer.value
        if layer is None:
            return
        solid: Solid = "dark" if self._solid.currentText() == "dark" else "bright"
        work = partial(_flattened, self._volume_of(layer), solid, in_memory=in_memory)
        done = partial(self._done, layer, solid, is_preview=not in_memory)
        self._start(f"{verb} {layer.name}", work, done)

    def _done(self, layer: Any, solid: Solid, volume: Volume, *, is_preview: bool) -> None:
        self._choose()
        self._remove_preview()
        finding = html.escape(volume.notes[-1])
        if not volume.notes[-1].startswith("Flattened"):
            self._result.say(finding)
            return
        known = known_of(layer)
        source = dict(known.get(READ) or {})
        # a job's result is not in the file, and a second field would be fitted to the first result
        if source and (known.get("provenance") or source.get("flatten")):
            source = {}
        if source:
            source["flatten"] = solid
        else:
            volume = dataclasses.replace(volume, source="")
        shared = {key: known[key] for key in (VOXEL_SIZE, OF_FILE) if key in known}
        name = f"{layer.name}{PREVIEW if is_preview else ' flattened'}"
        made = _new_layer(layer, volume, layer, "flatten", name, {READ: source, **shared})
        layer.visible = is_preview
        self._viewer.add_layer(made)
        if is_preview:
            self._viewer.layers.selection.active = layer
            self._preview = made
        self._result.say(finding if is_preview else f"{finding} Added {html.escape(made.name)}.")

    def _choose(self, *_: Any) -> None:
        if self._chosen is not self.layer.value:
            self._remove_preview()
        self._chosen = self.layer.value
        self._enable(self._chosen is not None)

    def hideEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Remove the preview."""
        super().hideEvent(event)
        self._remove_preview()

    def _remove_preview(self) -> None:
        preview, self._preview = self._preview, None
        if preview is not None and preview in self._viewer.layers:
            self._viewer.layers.remove(preview)


def _can_align(layer: Any) -> bool:
    """Whether a layer is one greyscale image in 3D."""
    return can_crop(layer) and volume_of(layer).axes == "zyx"


def _can_flatten(layer: Any) -> bool:
    """Whether a layer is one greyscale image, and no preview."""
    is_preview = layer.name.endswith(PREVIEW)
    return can_crop(layer) and not is_preview and not volume_of(layer).leading_shape


def _aligned(moving: Volume, fixed: Volume) -> Job:
    volume, _ = aligned(moving, fixed)
    (volume,) = yield from into_memory([volume])
    return volume


def _flattened(volume: Volume, solid: Solid, *, in_memory: bool) -> Job:
    flat = flattened(volume, solid)
    if in_memory and flat.data is not volume.data:
        (flat,) = yield from into_memory([flat])
    return flat


def _new_layer(
    layer: Any, volume: Volume, placed: Any, step: str, name: str, shared: dict[str, Any]
) -> Any:
    """Return a volume made of a layer as a new layer that lies where another one does.

    `placed`: the other layer. `step`: what was done. `shared`: further metadata.
    """
    words = {"placement": placement_of(placed), "name": name, **appearance_of(layer)}
    data, keywords, kind = layer_data(volume, **words)
    keywords["metadata"][METADATA_KEY] |= shared
    made = Layer.create(data, keywords, kind)
    set_lineage(made, Lineage(scan_of(layer), identity(layer), step, name))
    return made


_PURPOSE = (
    "Drag the box on the slice, or move the sliders. Only the box is read, and it keeps its place. "
    "Masks and points on the scan are cropped with it."
)

#: Name of the layer with the box.
BOX = "crop box"

#: Largest block length.
_MOST = 64


class CropWidget(ScanPanel):
    """Crops and bins the chosen scan into a new layer."""

    NAME, PURPOSE, TIP = "Crop", _PURPOSE, "Add the part as a new layer. The scan is unchanged."

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
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
        self._size = plain_label()
        self._form = QFormLayout()
        for name, slider in zip("zyx", self._sliders, strict=True):
            self._form.addRow(name, slider)
        self._form.addRow("Bin", self._factor)
        self._form.addRow("", self._keep_slices)
        found = fill(QHBoxLayout(), self._sample, self._round)
        self._arrange(self.layer.native, self._form, found, self._all, self._size)
        self._buttons += [self._sample, self._round]

    # ---- what the box is

    @property
    def part(self) -> Part:
        """The box and the block length."""
        sliders = self._sliders[-self._n_spatial :]
        box = tuple((int(low), int(high)) for low, high in (slider.value() for slider in sliders))
        factor = self._factor.value()
        blocks = [factor] * self._n_spatial
        if self._n_spatial == 3 and self._keep_slices.isChecked():
            blocks[0] = 1
        part = Part(box, tuple(blocks))
        if self._cylinder is not None and part.crop == self._cylinder.box:
            return replace(part, cylinder=self._cylinder)
        return part

    def set_box(self, box: str) -> None:
        """Set the box from a text, as `hushpore.io.parts.cropped` takes it."""
        for slider, ends in zip(self._sliders[-self._n_spatial :], box.split(","), strict=True):
            low, _, high = ends.partition(":")
            slider.setValue((int(low or 0), int(high or slider.maximum())))

    def start(self) -> None:
        """Add the cropped and binned copy of the chosen layer, made in a thread."""
        layer = self.layer.value
        if layer is None:
            return
        try:
            # layers are read here, values in the thread
            work = crop_job(self._viewer, layer, self.part)
        except HushporeError as error:
            self._say(str(error))
            return
        self._start(f"Cropping {layer.name}", lambda: work, self._done)

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
        if self.layer.value is not None:
            self._start(title, partial(calling, function, self._volume_of(self.layer.value)), done)

    # ---- events

    def _choose(self, *_: Any) -> None:
        layer = self.layer.value
        state = None if layer is None else (layer, self._volume_of(layer).shape)
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
        shape = self._volume_of(layer).spatial_shape
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

    def _failed(self, problem: Problem) -> None:
        super()._failed(problem)
        self._show_size()

    def _found_cylinder(self, cylinder: Cylinder) -> None:
        self._cylinder = cylinder
        self.set_box(cylinder.box)
        self._show_size()

    def _found(self, box: str) -> None:
        self._cylinder = None
        before = self.part.box
        self.set_box(box)
        is_whole = box.count(":") == box.count(",") + 1 and self._is_whole
        if is_whole and before == self.part.box:
            self._say("No air or padding was found around the sample.")
        elif is_whole:
            self._say("No air or padding was found around the sample; the box is the whole scan.")
        self._show_size()

    def _done(self, made: list[Any]) -> None:
        self._show_size()
        self._hide_box()
        # the box would hide the edges of the copy, until it is moved again
        self._is_done = True
        add_copies(self._viewer, made)
        self._is_done = False
        image = made[-1]
        others = f", with {', '.join(layer.name for layer in made[:-1])}" if made[1:] else ""
        self._result.say(html.escape(f"Added {image.name}{others}."))

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
            self._box.edge_width = max(slider.maximum() for slider in self._sliders[-2:]) / 200
            self._box.selected_data = {0}
        finally:
            self._is_drawing = False

    def _corners(self) -> np.ndarray:
        (top, bottom), (left, right) = self.part.box[-2:]
        corners = [(top, left), (top, right), (bottom, right), (bottom, left)]
        # a voxel lies around its index
        return np.array(corners, float) - 0.5

    # ---- appearance

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
        part, volume = self.part, self._volume_of(self.layer.value)
        is_empty = min(part.shape) < 1
        nothing = self._is_whole and not part.bin and part.cylinder is None
        self._run.setEnabled(not is_empty and not nothing)
        tip = self.TIP
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
