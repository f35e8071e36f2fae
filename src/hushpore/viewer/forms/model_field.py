"""The field of a setting that names a trained model: that of a denoised layer, or a file."""

from __future__ import annotations

import atexit
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import napari
from qtpy.QtWidgets import QComboBox, QFileDialog

from hushpore.device.scratch import new_folder
from hushpore.viewer.forms.fields import Field, keep_narrow
from hushpore.viewer.forms.native import shown_by
from hushpore.viewer.layers.conversion import KEY

if TYPE_CHECKING:
    from hushpore.base.settings import Option

#: The entries that are no layer.
NOTHING, FILE = "none", "file …"


class ModelField(Field):
    """Lists the denoised layers, whose models they carry, and offers to open a file.

    It begins with the model of a layer that is new, until the user chooses one.

    `option`: the setting; its value is the path of a file. `viewer`: whose layers to list; the
    current viewer where it is not given. ``**given``: as for `Field`.
    """

    lists_layers = True

    #: Files of models of layers, written when they are needed: settings are plain JSON values.
    _written: ClassVar[dict[int, tuple[Any, Path]]] = {}
    _folder: ClassVar[Path | None] = None

    def __init__(self, option: Option, viewer: Any = None, **given: Any) -> None:
        viewer = napari.current_viewer() if viewer is None else viewer
        self._layers = [] if viewer is None else viewer.layers
        self._listed: list[Any] = []
        self._layer: Any = None
        self._path = ""
        self._touched = False
        super().__init__(option, **given, **shown_by(QComboBox))
        for event in ("inserted", "removed", "reordered") if viewer is not None else ():
            getattr(viewer.layers.events, event).connect(self._refresh)
        self._refresh()

    @property
    def model(self) -> Any:
        """The model of the layer chosen, or None."""
        return None if self._layer is None else self._layer.metadata[KEY]["model"]

    def get_value(self) -> str:
        """Return the path of the model's file, or nothing."""
        return self._path if self._layer is None else str(self._file_of(self._layer))

    def set_value(self, value: str) -> None:
        """Choose a file, or nothing."""
        self._layer, self._path = None, self.option.check(str(value))
        self._refresh()

    @property
    def is_default(self) -> bool:
        """Whether nothing is chosen."""
        return self._layer is None and not self._path

    def _post_init(self) -> None:
        keep_narrow(self.native, self.option.label)
        self.native.activated.connect(self._choose)

    def _choose(self, position: int) -> None:
        self._touched = True
        if position <= len(self._listed):
            self._layer = self._listed[position - 1] if position else None
            self._path = ""
        elif self.native.itemText(position) == FILE:
            path, _ = QFileDialog.getOpenFileName(
                self.native, "Trained model", "", "Models (*.safetensors)"
            )
            if path:
                self._layer, self._path = None, path
        self._refresh()

    def _refresh(self, event: Any = None) -> None:
        before = self._listed
        self._listed = [layer for layer in reversed(self._layers) if has_model(layer)]
        new = [layer for layer in self._listed if layer not in before]
        if new and not self._touched and not self._path:
            self._layer = new[0]
        if self._layer not in self._listed:
            self._layer = None
        names = [f"of {layer.name}" for layer in self._listed]
        own = [Path(self._path).name] if self._path else []
        self.native.clear()
        self.native.addItems([NOTHING, *names, *own, FILE])
        if self._layer is not None:
            self.native.setCurrentIndex(1 + self._listed.index(self._layer))
        elif self._path:
            self.native.setCurrentIndex(1 + len(names))
        self._tell()

    @classmethod
    def _file_of(cls, layer: Any) -> Path:
        model = layer.metadata[KEY]["model"]
        # the model is kept too, so that no other takes its number in memory
        if id(model) not in cls._written:
            if cls._folder is None:
                cls._folder = new_folder()
                # it goes with the program
                atexit.register(shutil.rmtree, cls._folder, ignore_errors=True)
            path = cls._folder / f"model-{len(cls._written)}.safetensors"
            cls._written[id(model)] = model, model.save(path)
        return cls._written[id(model)][1]


def has_model(layer: Any) -> bool:
    """Whether a layer carries the model that made it."""
    known = layer.metadata.get(KEY)
    return isinstance(known, dict) and known.get("model") is not None
