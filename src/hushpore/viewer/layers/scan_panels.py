"""The widgets that make a new scan out of others: aligned with another one, or flattened."""

from __future__ import annotations

import dataclasses
import html
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.layers import Layer
from qtpy.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from hushpore.io.align import aligned
from hushpore.io.flatten import Solid, flattened
from hushpore.io.loading import into_memory
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
from hushpore.viewer.layers.crop_layers import can_crop, is_scan
from hushpore.viewer.running.status import LoadingTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.problem import Problem


class _ScanPanel(QWidget):
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

    def _start(self, title: str, work: Callable[[], Job], done: Callable[[Volume], None]) -> None:
        self._say("")
        for button in self._buttons:
            button.setEnabled(False)
        LoadingTask(title, work, done, self._failed)

    def _failed(self, problem: Problem) -> None:
        self._choose()
        self._say(problem.message)

    def _say(self, text: str) -> None:
        self._result.say(f"{sign(False)} {html.escape(text)}" if text else "")

    def _choose(self, *_: Any) -> None:
        """Enable the buttons if what is chosen can be processed."""
        raise NotImplementedError


class AlignWidget(_ScanPanel):
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


class FlattenWidget(_ScanPanel):
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
        for button in self._buttons:
            button.setEnabled(self._chosen is not None)

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
