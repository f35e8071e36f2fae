"""What the panels of results have in common: they follow the pore layer that is selected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QWidget

from hushpore.viewer.layers.conversion import unwrapped
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.results.pore_view import PoreView

if TYPE_CHECKING:
    from collections.abc import Callable


class LayerTrackingWidget(QWidget):
    """Shows the pore layer that is selected; the last one while another layer is, until it goes."""

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self.view: PoreView | None = None
        self._events = [
            viewer.layers.selection.events.active,
            viewer.layers.events.removed,
            viewer.layers.events.inserted,
        ]
        for event in self._events:
            event.connect(self.follow)

    def show_view(self) -> None:
        """Show another result, or none."""
        raise NotImplementedError

    def slots(self) -> dict[str, Callable[..., None]]:
        """Return what is called at each signal of a view, by its name."""
        raise NotImplementedError

    def follow(self, event: Any = None) -> None:
        """Find the layer to show."""
        layers = self._viewer.layers
        layer = layers.selection.active
        if layer is None or tables_of(layer) is None:
            layer = None if self.view is None else self.view.layer
        if layer is None or not any(unwrapped(each) is unwrapped(layer) for each in layers):
            known = [each for each in layers if tables_of(each) is not None]
            layer = known[-1] if known else None
        if self.view is not None and unwrapped(layer) is self.view.layer:
            return
        self._let_go()
        if layer is not None:
            self.view = PoreView.of(self._viewer, layer)
            self.view.attach(self)
            for signal, slot in self.slots().items():
                getattr(self.view, signal).connect(slot)
        self.show_view()

    def _let_go(self) -> None:
        if self.view is not None:
            for signal, slot in self.slots().items():
                getattr(self.view, signal).disconnect(slot)
            self.view.detach(self)
            self.view = None

    def changeEvent(self, event: Any) -> None:  # noqa: N802
        """Give the layer its colours back when napari takes the widget out of its dock."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self._let_go()
            for each in self._events:
                each.disconnect(self.follow)
            self._events = []
