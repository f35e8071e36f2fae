"""Choosing layers: the input of a job with its facts, and settings that name a layer or model."""

from __future__ import annotations

import html
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import napari
from magicgui.widgets.bases import BaseValueWidget
from napari.layers import Image, Labels, Layer, Points
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.formatting import readable_count, readable_unit
from hushpore.base.volume import Volume, require_grey
from hushpore.device.scratch import folder_of
from hushpore.viewer.forms.docking import NameBox, shown_by
from hushpore.viewer.forms.fields import Field, keep_narrow
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import RichLabel, link, plain_label, unbroken
from hushpore.viewer.layers.conversion import is_length, known_of, volume_of
from hushpore.viewer.layers.start import start_links

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from hushpore.base.settings import Option


#: Text shown if there is no layer.
_BEGIN = "Drop a CT stack on the window, or open a sample: File > Open Sample > hushpore."

#: The same above links that do it.
_OR_START = "Drop a CT stack on the window, or start here:"

#: Link that opens the fields for the voxel size.
VOXEL_SIZE = "voxel size"

#: Link that unfolds and folds the notes on a file.
_NOTES = "notes"

#: Attributes of a layer that affect the combo box or the line of facts.
_SHOWN = ("name", "data", "scale", "units", "axis_labels", "translate")


class LayerChoice(BaseValueWidget):
    """A box with the valid input layers of a job, kept up to date with the viewer.

    Its value is the layer, or None if there is no valid one. ``changed`` is also emitted when the
    layer itself changes.

    It starts with the active layer and switches to each new layer that the job prefers (a file just
    opened, the result of the previous step) until the user chooses a layer.

    `accepts`: whether a layer can be chosen. `prefers`: whether a layer is chosen automatically.
    """

    def __init__(
        self, viewer: Any, accepts: Callable[[Any], bool], prefers: Callable[[Any], bool]
    ) -> None:
        self._all = viewer.layers
        self._accepts, self._prefers = accepts, prefers
        self._listed: list[Any] = []
        self._layer: Any = None
        self._chosen = False
        super().__init__(name="layer", annotation=Layer, **shown_by(NameBox))
        events = self._all.events
        events.inserted.connect(self._inserted)
        events.removed.connect(self._refresh)
        events.reordered.connect(self._refresh)
        for layer in self._all:
            self._watch(layer)
        self._refresh()

    def get_value(self) -> Any:
        """Return the chosen layer, or None if there is no valid one."""
        return self._layer

    def set_value(self, layer: Any) -> None:
        """Choose a layer, as the user does.

        Raises InputError if the layer is not a valid input.
        """
        if layer not in self._listed:
            names = ", ".join(repr(one.name) for one in self._listed) or "none"
            raise InputError(f"layer must be one of these layers: {names}; got {layer!r}.")
        self._chosen = True
        self._take(layer)

    def _post_init(self) -> None:
        box = self.native
        box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        keep_narrow(box, "Input layer")
        box.setMinimumContentsLength(12)
        box.activated.connect(self._choose)

    def _suits(self, layer: Any) -> bool:
        return not is_preview(layer) and self._accepts(layer)

    def _inserted(self, event: Any) -> None:
        self._watch(event.value)
        self._refresh()

    def _watch(self, layer: Any) -> None:
        for name in _SHOWN:
            getattr(layer.events, name).connect(self._altered)

    def _altered(self, event: Any) -> None:
        layer = event.source
        # a preview may have become a result
        if event.type == "name" or self._suits(layer) != (layer in self._listed):
            self._refresh()
        elif layer == self._layer or event.type == "units":
            # the unit of any layer may add or remove the scale bar
            self.changed.emit(self._layer)

    def _choose(self, position: int) -> None:
        self.set_value(self._listed[position])

    def _refresh(self, event: Any = None) -> None:
        before = self._listed
        # newest first, as in napari's own list
        self._listed = [layer for layer in reversed(self._all) if self._suits(layer)]
        self._take(self._best([layer for layer in self._listed if layer not in before]))

    def _best(self, new: list[Any]) -> Any:
        """Return the layer to select after the list has changed; `new`: layers added to it."""
        if self._layer in self._listed:
            better = [layer for layer in new if self._prefers(layer) and not self._chosen]
            return (better or [self._layer])[0]
        self._chosen = False
        preferred = [layer for layer in self._listed if self._prefers(layer)]
        active = self._all.selection.active
        return active if active in preferred else (preferred or self._listed or [None])[0]

    def _take(self, layer: Any) -> None:
        before, self._layer = self._layer, layer
        self.native.clear()
        self.native.addItems([each.name for each in self._listed] or ["no suitable layer"])
        self.native.setEnabled(bool(self._listed))
        self.native.setToolTip("No layer is suitable for this job.")
        if layer is not None:
            self.native.setCurrentIndex(self._listed.index(layer))
            self.native.setToolTip(f"Input layer: {layer.name}")
        if layer is None or layer != before:
            self.changed.emit(layer)


class LayerFacts(RichLabel):
    """A line about a layer: shape, voxel size, data type, size, and notes on its file.

    Its voxel size is a link, `VOXEL_SIZE`.

    `describe`: returns the line about a volume. `links`: link texts in the line, with their
    targets. `volume`: volume of the layer, or None if there is no valid layer.
    """

    #: Emitted when the line is out of date.
    outdated = Signal()

    def __init__(
        self,
        viewer: Any,
        describe: Callable[[Volume], str],
        links: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(viewer)
        self._describe, self._links = describe, links
        self._plain = self._notes_of = ""
        self.volume: Volume | None = None
        self.linkActivated.connect(self._unfold)

    def text(self) -> str:
        """Return the line as plain text."""
        return self._plain

    def show_layer(self, layer: Any) -> str:
        """Show a layer, and return the reason why it cannot be used; empty if it can."""
        self.volume = None
        suits = layer is not None
        if not suits:
            # explain why a colour image or labels cannot be used
            others = list(self._viewer.layers)
            coloured = [each for each in others if getattr(each, "rgb", False)]
            labels = [each for each in others if isinstance(each, Labels)]
            layer = next(iter(coloured + labels), None)
        text = reason = _BEGIN
        if layer is not None:
            try:
                volume = volume_of(layer, self.labels_of_axes(layer.ndim))
                if not suits:
                    require_grey(volume)
                facts = unbroken(self._describe(volume))
                text, reason = "\n".join([facts, *volume.notes]), ""
                if volume.unit != "pixel":
                    text += self._missing_scale_bar()
                self.volume = volume
            except HushporeError as error:
                text = reason = str(error)
        self._plain = text
        if text == _BEGIN:
            self.say(f"{_OR_START}<br>{start_links()}")
        else:
            self._show_plain()
        return reason

    def _show_plain(self) -> None:
        """Show the line; several notes are folded, so that the form has room."""
        facts, *notes = self._plain.split("\n")
        are_folded = len(notes) > 1 and self._plain != self._notes_of
        lines = [facts] if are_folded else [facts, *notes]
        text = self._with_link(html.escape("\n".join(lines), quote=False))
        if len(notes) > 1:
            words = readable_count(len(notes), "note") if are_folded else "Hide notes"
            text += f"<br>{link(_NOTES, words)}"
        self.say(text)

    def _unfold(self, target: str) -> None:
        if target == _NOTES:
            self._notes_of = "" if self._notes_of else self._plain
            self._show_plain()

    def _missing_scale_bar(self) -> str:
        """Return the reason why a layer with a unit has no scale bar; empty if it has one."""
        unknown = [one.name for one in self._viewer.layers if not is_length(one.units[-1])]
        if not unknown:
            return ""
        more = f" and of {readable_count(len(unknown) - 1, 'other layer')}" if unknown[1:] else ""
        return f"\nNo scale bar: the voxel size of {unknown[0]}{more} is unknown."

    def _with_link(self, text: str) -> str:
        if self.volume is not None:
            size = unbroken(self.volume.size_in_words)
            words = size if self.volume.unit != "pixel" else f"{size}:\u00a0set\u00a0it"
            text = text.replace(size, link(VOXEL_SIZE, words), 1)
        for words, target in self._links.items():
            text = text.replace(words, link(target, words), 1)
        return text.replace("\n", "<br>")

    def labels_of_axes(self, ndim: int) -> tuple[str, ...]:
        """Return the viewer's labels of the last `ndim` axes."""
        return tuple(self._viewer.dims.axis_labels[-ndim:])


def is_preview(layer: Any) -> bool:
    """Whether a layer is a preview."""
    return bool(known_of(layer).get("preview"))


#: Units offered, the most common first.
UNITS = ("um", "mm", "nm", "cm", "m")


class VoxelSizeField(QWidget):
    """Fields for the voxel size in y and x, and in z if it differs; hidden at first."""

    #: Emitted with the entered size, as an argument of `hushpore.runs.scan_recipe.with_voxel_size`.
    given = Signal(str)

    def __init__(self) -> None:
        super().__init__(visible=False)
        self._has_z = True
        self._title = QLabel("Voxel size")
        self._across = QLineEdit(
            placeholderText="15.4", accessibleName="Voxel size", returnPressed=self._give,
            toolTip="Voxel size within a slice (x and y).",
        )  # fmt: skip
        self._unit = QComboBox(accessibleName="Unit of the voxel size")
        self._unit.addItems([readable_unit(unit) for unit in UNITS])
        self._same = QCheckBox(
            "Isotropic", checked=True, toggled=self._show_z,
            toolTip="Use the same size along z.",
        )  # fmt: skip
        self._along_title = QLabel("Along z")
        self._along = QLineEdit(
            placeholderText="5", accessibleName="Voxel size in z", returnPressed=self._give,
            toolTip="Distance between slices.",
        )  # fmt: skip
        self._problem = plain_label()
        self._set = QPushButton(
            "Set", clicked=self._give,
            toolTip="Apply this voxel size to the scan and to all layers made from it.",
        )  # fmt: skip
        cancel = QPushButton("Cancel", clicked=self.hide, toolTip="Keep the current voxel size.")
        self._across.setMinimumWidth(60)
        first = fill(
            QHBoxLayout(), self._title, self._across, self._unit, self._same, wide=self._across
        )
        second = fill(QHBoxLayout(), self._along_title, self._along, None, self._set, cancel)
        fill(QVBoxLayout(self), first, second, self._problem, spacing=4, margin=0)

    def ask(self, volume: Volume) -> None:
        """Open the fields with the voxel size of a volume, or empty if it has no unit."""
        is_known = volume.unit in UNITS
        self._has_z = volume.n_spatial == 3
        across, along = volume.spacing[-1], volume.spacing[0]
        self._across.setText(f"{across:.10g}" if is_known else "")
        self._along.setText(f"{along:.10g}" if is_known else "")
        if is_known:
            self._unit.setCurrentIndex(UNITS.index(volume.unit))
        self._same.setChecked(across == along)
        self._same.setVisible(self._has_z)
        self._show_z()
        self._problem.hide()
        self.show()
        self._across.setFocus()
        self._across.selectAll()

    def refuse(self, error: InputError) -> None:
        """Show the reason why the input is invalid."""
        self._problem.setText(str(error))
        self._problem.show()

    def _show_z(self) -> None:
        asked = self._has_z and not self._same.isChecked()
        self._along_title.setVisible(asked)
        self._along.setVisible(asked)

    def _give(self) -> None:
        fields = [self._across, self._across]
        if self._has_z and not self._same.isChecked():
            fields.insert(0, self._along)
        elif self._has_z:
            fields.insert(0, self._across)
        # accept a decimal comma
        numbers = [field.text().strip().replace(",", ".") for field in fields]
        try:
            text = voxel_size_text(numbers, UNITS[self._unit.currentIndex()])
        except InputError as error:
            self.refuse(error)
            return
        self.given.emit(text)


def voxel_size_text(numbers: list[str], unit: str) -> str:
    """Return a voxel size as text for settings, from one number for each axis.

    Raises InputError if a number is not above 0.
    """
    for number in numbers:
        try:
            is_size = 0 < float(number) < float("inf")
        except ValueError:
            is_size = False
        if not is_size:
            raise InputError(
                f"The voxel size must be a number above 0; got {number!r}."
                if number
                else "Enter the voxel size, a number above 0."
            )
    return f"{numbers[0] if len(set(numbers)) == 1 else ','.join(numbers)}{unit}"


KINDS = {"labels": Labels, "image": Image, "points": Points, "scan": Image}

#: Entries that are not layers.
NOTHING, FILE = "none", "file …"


class LayerField(Field):
    """A box with the valid layers for a setting, kept up to date with the viewer.

    Its value is the name of the layer; it can also be set to the layer itself.

    `viewer`: by default the current viewer. ``**given``: as for `Field`.
    """

    lists_layers = True

    def __init__(self, option: Option, viewer: Any = None, **given: Any) -> None:
        viewer = napari.current_viewer() if viewer is None else viewer
        self._layers = [] if viewer is None else viewer.layers
        self._chosen: Any = None
        self._listed: list[Any] = []
        self._shown: list[str] = []
        super().__init__(option, **given, **shown_by(NameBox))
        for event in ("inserted", "removed", "reordered") if viewer is not None else ():
            getattr(viewer.layers.events, event).connect(self._refresh)

    @property
    def layer(self) -> Any:
        """The chosen layer, or None."""
        return self._chosen

    def get_value(self) -> str:
        """Return the name of the chosen layer, or an empty string."""
        return "" if self._chosen is None else str(self._chosen.name)

    def set_value(self, value: str | Layer) -> None:
        """Choose the layer of this name, or none if there is no such layer."""
        self._refresh()
        name = getattr(value, "name", value)
        self._chosen = next((layer for layer in self._listed if layer.name == name), None)
        self._refresh()
        self._emit_changed()

    def _post_init(self) -> None:
        keep_narrow(self.native, self.option.label)
        self.native.activated.connect(self._choose)

    def _choose(self, position: int) -> None:
        self._chosen = self._listed[position - 1] if position else None
        self._emit_changed()

    def _suits(self, layer: Any) -> bool:
        suits = isinstance(layer, tuple(KINDS[kind] for kind in self.option.auxiliary))
        return suits and not known_of(layer).get("preview")

    def _kept(self, new: list[Any]) -> Any:
        """Return the layer to choose after the list has changed; `new`: layers added to it."""
        return self._chosen if self._chosen in self._listed else None

    def _entries(self) -> list[str]:
        """Return the entries below 'none'."""
        return [layer.name for layer in self._listed]

    def _position(self) -> int:
        return 0 if self._chosen is None else 1 + self._listed.index(self._chosen)

    def _refresh(self, event: Any = None) -> None:
        before, chosen = self._listed, self._chosen
        self._listed = [layer for layer in reversed(self._layers) if self._suits(layer)]
        new = [layer for layer in self._listed if layer not in before]
        # connect only new layers, because napari takes 0.2 ms to check a callback
        for layer in new:
            layer.events.name.connect(self._refresh)
        for layer in before:
            if layer not in self._listed:
                layer.events.name.disconnect(self._refresh)
        self._chosen = self._kept(new)
        entries = [NOTHING, *self._entries()]
        if entries != self._shown:
            self._shown = entries
            self.native.clear()
            self.native.addItems(entries)
        self.native.setCurrentIndex(self._position())
        if self._chosen is not chosen:
            self._emit_changed()


class ModelField(LayerField):
    """A box with the trained models of denoised layers, and an entry to open a file.

    It follows the newest model until the user chooses one. Its value is the path of a file.
    """

    #: Files of models, written when a setting needs a path. A file is deleted with its model, so
    #: code that reads the file must keep a reference to the model.
    _written: ClassVar[MutableMapping[Any, Path]] = WeakKeyDictionary()

    def __init__(self, option: Option, viewer: Any = None, **given: Any) -> None:
        self._path = ""
        self._touched = False
        super().__init__(option, viewer, **given)

    @property
    def model(self) -> Any:
        """The model of the chosen layer, or None."""
        return None if self._chosen is None else known_of(self._chosen)["model"]

    def get_value(self) -> str:
        """Return the path of the model's file, or an empty string."""
        return self._path if self._chosen is None else str(self._file_of(self.model))

    def set_value(self, value: str) -> None:
        """Choose a file; empty for none."""
        self._chosen, self._path = None, self.option.check(str(value))
        self._refresh()
        self._emit_changed()

    @property
    def is_default(self) -> bool:
        """Whether no model is chosen."""
        return self._chosen is None and not self._path

    def _choose(self, position: int) -> None:
        self._touched = True
        if position <= len(self._listed):
            self._chosen = self._listed[position - 1] if position else None
            self._path = ""
        elif self.native.itemText(position) == FILE:
            path, _ = QFileDialog.getOpenFileName(
                self.native, "Trained model", "", "Models (*.safetensors)"
            )
            if path:
                self._chosen, self._path = None, path
        self._refresh()
        self._emit_changed()

    def _suits(self, layer: Any) -> bool:
        return known_of(layer).get("model") is not None

    def _kept(self, new: list[Any]) -> Any:
        return new[0] if new and not self._touched and not self._path else super()._kept(new)

    def _entries(self) -> list[str]:
        own = [Path(self._path).name] if self._path else []
        return [*(f"of {layer.name}" for layer in self._listed), *own, FILE]

    def _position(self) -> int:
        return 1 + len(self._listed) if self._path else super()._position()

    @classmethod
    def _file_of(cls, model: Any) -> Path:
        if model not in cls._written:
            cls._written[model] = model.save(folder_of(model) / "model.safetensors")
        return cls._written[model]
