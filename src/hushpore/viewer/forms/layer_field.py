"""Fields for settings that name a layer, or the trained model of a layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import napari
from napari.layers import Image, Labels, Layer, Points
from qtpy.QtWidgets import QFileDialog

from hushpore.device.scratch import folder_of
from hushpore.viewer.forms.fields import Field, keep_narrow
from hushpore.viewer.forms.native import NameBox, shown_by
from hushpore.viewer.layers.conversion import known_of

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from hushpore.base.settings import Option

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
