"""What the chosen layer is, in words, or why there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QLabel

from hushpore.base.errors import HushporeError
from hushpore.viewer.layers.conversion import volume_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.volume import Volume

#: Spaces at which a line of facts should not end: before units, signs and the dots between facts.
_UNBROKEN = re.compile(r" (?=(?:[kMGT]?B|mm|µm|nm|HU|a\.u\.|[·✓⚠])(?:\s|$))")

#: What is said where there is no layer.
_BEGIN = "Drop a CT stack on the window to begin, or try one: File > Open Sample > hushpore."


class LayerFacts(QLabel):
    """A line about a layer: shape, voxel size, type, size, and what was odd about its file.

    `describe`: returns the line about a volume.
    `volume`: of the layer that is shown; None where there is none that can be worked on.
    """

    #: More is known about the layer than the line says.
    outdated = Signal()

    def __init__(self, viewer: Any, describe: Callable[[Volume], str]) -> None:
        super().__init__()
        self._viewer, self._describe = viewer, describe
        self.volume: Volume | None = None
        self.setWordWrap(True)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)

    def show_layer(self, layer: Any) -> str:
        """Say what a layer is, and return why it cannot be worked on: empty where it can."""
        self.volume = None
        if layer is None:
            # what is wrong with a colour image is said where it would be read
            coloured = (each for each in self._viewer.layers if getattr(each, "rgb", False))
            layer = next(coloured, None)
        text = reason = _BEGIN
        if layer is not None:
            try:
                volume = volume_of(layer, self.labels_of_axes(layer.ndim))
                facts = _UNBROKEN.sub("\u00a0", self._describe(volume))
                text, reason = "\n".join([facts, *volume.notes]), ""
                self.volume = volume
            except HushporeError as error:
                text = reason = str(error)
        self.setText(text)
        return reason

    def labels_of_axes(self, ndim: int) -> tuple[str, ...]:
        """Return the names that the viewer gives to the last axes."""
        return tuple(self._viewer.dims.axis_labels[-ndim:])
