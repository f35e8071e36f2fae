"""The field of a setting that names another layer: a mask, labels, points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napari.layers import Image, Labels, Points

from hushpore.viewer.forms.fields import Field, combo_box

if TYPE_CHECKING:
    from qtpy.QtWidgets import QComboBox, QVBoxLayout

    from hushpore.base.settings import Option

KINDS = {"labels": Labels, "image": Image, "points": Points}

#: What the entry says that chooses no layer.
NOTHING = "none"


class LayerField(Field):
    """Lists the layers that suit, and follows layers that come, go and change their names.

    Parameters
    ----------
    opt : Option
        The setting.
    viewer : napari.components.ViewerModel
        Whose layers to list.
    """

    def __init__(self, opt: Option, viewer: Any) -> None:
        self._layers = viewer.layers
        self._kinds = tuple(KINDS[kind] for kind in opt.auxiliary)
        self._chosen: Any = None
        self._listed: list[Any] = []
        super().__init__(opt)
        for event in ("inserted", "removed", "reordered"):
            getattr(self._layers.events, event).connect(self._refresh)

    @property
    def layer(self) -> Any:
        """The layer chosen, or None."""
        return self._chosen

    def value(self) -> str:
        """Return the name of the layer chosen, or nothing."""
        return "" if self._chosen is None else str(self._chosen.name)

    def set(self, value: str) -> None:
        """Choose the layer of this name; none where there is none."""
        self._chosen = next((layer for layer in self._listed if layer.name == value), None)
        self._refresh()
        self.changed.emit()

    def _build(self, column: QVBoxLayout) -> None:
        self._box: QComboBox = combo_box(self.opt)
        self._box.activated.connect(self._choose)
        column.addWidget(self._box)
        self._refresh()

    def _choose(self, position: int) -> None:
        self._chosen = self._listed[position - 1] if position else None
        self.changed.emit()

    def _refresh(self, event: Any = None) -> None:
        for layer in self._listed:
            layer.events.name.disconnect(self._refresh)
        self._listed = [layer for layer in reversed(self._layers) if isinstance(layer, self._kinds)]
        for layer in self._listed:
            layer.events.name.connect(self._refresh)
        if self._chosen not in self._listed:
            gone, self._chosen = self._chosen is not None, None
            if gone:
                self.changed.emit()
        self._box.clear()
        self._box.addItems([NOTHING, *(layer.name for layer in self._listed)])
        if self._chosen is not None:
            self._box.setCurrentIndex(self._listed.index(self._chosen) + 1)
