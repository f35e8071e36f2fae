"""The field of a setting that names another layer: a mask, labels, points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import napari
from napari.layers import Image, Labels, Layer, Points
from qtpy.QtWidgets import QComboBox

from hushpore.viewer.forms.fields import Field, keep_narrow
from hushpore.viewer.forms.native import shown_by

if TYPE_CHECKING:
    from hushpore.base.settings import Option

KINDS = {"labels": Labels, "image": Image, "points": Points}

#: What the entry says that chooses no layer.
NOTHING = "none"


class LayerField(Field):
    """Lists the layers that suit, and follows layers that come, go and change their names.

    Its value is the name of the layer, as settings have it; it takes the layer itself, too.

    `viewer`: whose layers to list; the current viewer where it is not given. ``**given``: as for
    `Field`.
    """

    lists_layers = True

    def __init__(self, option: Option, viewer: Any = None, **given: Any) -> None:
        viewer = napari.current_viewer() if viewer is None else viewer
        self._layers = [] if viewer is None else viewer.layers
        self._kinds = tuple(KINDS[kind] for kind in option.auxiliary)
        self._chosen: Any = None
        self._listed: list[Any] = []
        super().__init__(option, **given, **shown_by(QComboBox))
        for event in ("inserted", "removed", "reordered") if viewer is not None else ():
            getattr(viewer.layers.events, event).connect(self._refresh)

    @property
    def layer(self) -> Any:
        """The layer chosen, or None."""
        return self._chosen

    def get_value(self) -> str:
        """Return the name of the layer chosen, or nothing."""
        return "" if self._chosen is None else str(self._chosen.name)

    def set_value(self, value: str | Layer) -> None:
        """Choose the layer of this name; none where there is none."""
        name = getattr(value, "name", value)
        self._chosen = next((layer for layer in self._listed if layer.name == name), None)
        self._refresh()
        self._tell()

    def _post_init(self) -> None:
        keep_narrow(self.native, self.option.label)
        self.native.activated.connect(self._choose)
        self._refresh()

    def _choose(self, position: int) -> None:
        self._chosen = self._listed[position - 1] if position else None
        self._tell()

    def _refresh(self, event: Any = None) -> None:
        for layer in self._listed:
            layer.events.name.disconnect(self._refresh)
        self._listed = [layer for layer in reversed(self._layers) if isinstance(layer, self._kinds)]
        for layer in self._listed:
            layer.events.name.connect(self._refresh)
        if self._chosen not in self._listed:
            gone, self._chosen = self._chosen is not None, None
            if gone:
                self._tell()
        self.native.clear()
        self.native.addItems([NOTHING, *(layer.name for layer in self._listed)])
        if self._chosen is not None:
            self.native.setCurrentIndex(self._listed.index(self._chosen) + 1)
