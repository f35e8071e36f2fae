"""The widget that flattens the grey values of a scan, with a preview on the slice."""

from __future__ import annotations

import dataclasses
import html
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.layers import Layer
from qtpy.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from hushpore.io.flatten import Solid, flattened
from hushpore.io.loading import into_memory
from hushpore.viewer.forms.choices import LayerChoice
from hushpore.viewer.forms.layout import (
    RichLabel,
    ScrolledColumn,
    SharesSide,
    fill,
    plain_label,
    sign,
)
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
from hushpore.viewer.layers.crop_layers import can_crop
from hushpore.viewer.running.status import LoadingTask

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.problem import Problem

PURPOSE = (
    "Removes drift and cupping (beam hardening) of the grey value of the solid by a smooth field. "
    "Grains stay; the scan is unchanged."
)


class FlattenWidget(QWidget):
    """Flattens the chosen scan into a new layer."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        SharesSide(self, "Flatten")
        self._viewer = napari_viewer
        self._preview: Any = None  # the layer with the preview
        self._chosen: Any = None  # the layer that it is of
        self.layer = LayerChoice(napari_viewer, _can_flatten, lambda _: True)
        tip = "Whether the solid is brighter or darker than the pores."
        self._solid = QComboBox(toolTip=tip, accessibleName="Solid")
        self._solid.addItems(["bright", "dark"])
        tip = "Fit the field and show the slice without the drift; other slices follow the slider."
        self._show = QPushButton("&Preview", toolTip=tip, clicked=self.preview)
        tip = "Add the flattened scan as a new layer."
        self._run = QPushButton(
            "&Flatten", toolTip=tip, clicked=self.flatten,
            styleSheet="font-weight: bold; padding: 6px;",
        )  # fmt: skip
        self._result = RichLabel(self._viewer)
        form = QFormLayout()
        form.addRow("Solid", self._solid)
        fill(QVBoxLayout(self), ScrolledColumn(
            plain_label(PURPOSE), self.layer.native, form,
            fill(QHBoxLayout(), self._show, self._run), self._result,
        ))  # fmt: skip
        self.setMinimumWidth(300)
        self.layer.changed.connect(self._choose)
        self._choose()

    def preview(self) -> None:
        """Show the flattened scan lazily, as soon as the field is fitted in a thread."""
        self._start("Fitting the field of", in_memory=False)

    def flatten(self) -> None:
        """Add the flattened copy of the chosen layer, made in a thread."""
        self._start("Flattening", in_memory=True)

    def _start(self, verb: str, *, in_memory: bool) -> None:
        layer = self.layer.value
        if layer is None:
            return
        volume = volume_of(layer, tuple(self._viewer.dims.axis_labels[-layer.ndim :]))
        solid: Solid = "dark" if self._solid.currentText() == "dark" else "bright"
        work = partial(_flattened, volume, solid, in_memory=in_memory)
        self._say("")
        self._set_enabled(False)
        done = partial(self._done, layer, solid, is_preview=not in_memory)
        LoadingTask(f"{verb} {layer.name}", work, done, self._failed)

    def _done(self, layer: Any, solid: Solid, volume: Volume, *, is_preview: bool) -> None:
        self._set_enabled(True)
        self._remove_preview()
        finding = html.escape(volume.notes[-1])
        if not volume.notes[-1].startswith("Flattened"):
            self._result.say(finding)
            return
        made = _layer(layer, volume, solid, PREVIEW if is_preview else " flattened")
        layer.visible = is_preview
        self._viewer.add_layer(made)
        if is_preview:
            self._viewer.layers.selection.active = layer
            self._preview = made
        self._result.say(finding if is_preview else f"{finding} Added {html.escape(made.name)}.")

    def _failed(self, problem: Problem) -> None:
        self._set_enabled(True)
        self._say(problem.message)

    def _say(self, text: str) -> None:
        self._result.say(f"{sign(False)} {html.escape(text)}" if text else "")

    def _choose(self, *_: Any) -> None:
        if self._chosen is not self.layer.value:
            self._remove_preview()
        self._chosen = self.layer.value
        self._set_enabled(True)

    def _set_enabled(self, enabled: bool) -> None:
        for button in (self._show, self._run):
            button.setEnabled(enabled and self.layer.value is not None)

    def hideEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Remove the preview."""
        super().hideEvent(event)
        self._remove_preview()

    def _remove_preview(self) -> None:
        preview, self._preview = self._preview, None
        if preview is not None and preview in self._viewer.layers:
            self._viewer.layers.remove(preview)


def _can_flatten(layer: Any) -> bool:
    """Whether a layer is one greyscale image, and no preview."""
    is_preview = layer.name.endswith(PREVIEW)
    return can_crop(layer) and not is_preview and not volume_of(layer).leading_shape


def _flattened(volume: Volume, solid: Solid, *, in_memory: bool) -> Job:
    flat = flattened(volume, solid)
    if in_memory and flat.data is not volume.data:
        (flat,) = yield from into_memory([flat])
    return flat


def _layer(layer: Any, volume: Volume, solid: Solid, ending: str) -> Any:
    """Return the flattened copy of a layer, with how it is read from the file."""
    known = known_of(layer)
    source = dict(known.get(READ) or {})
    # a job's result is not in the file, and a second field would be fitted to the first result
    if source and (known.get("provenance") or source.get("flatten")):
        source = {}
    if source:
        source["flatten"] = solid
    else:
        volume = dataclasses.replace(volume, source="")
    name = f"{layer.name}{ending}"
    words = {"placement": placement_of(layer), "name": name, **appearance_of(layer)}
    data, keywords, kind = layer_data(volume, **words)
    shared = {key: known[key] for key in (VOXEL_SIZE, OF_FILE) if key in known}
    keywords["metadata"][METADATA_KEY] |= {READ: source, **shared}
    made = Layer.create(data, keywords, kind)
    set_lineage(made, Lineage(scan_of(layer), identity(layer), "flatten", name))
    return made
