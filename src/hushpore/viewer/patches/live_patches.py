"""The patches of the batch that a running denoiser trains on, as boxes coloured by their loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Vectors
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox

from hushpore.base.events import Batch, mapped
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.patches.layers import boxes

if TYPE_CHECKING:
    from hushpore.base.events import Event, Job
    from hushpore.viewer.running.target import Target

#: Milliseconds between two looks at the running denoiser.
POLL_INTERVAL = 200


class LatestBatch:
    """Where a job's thread leaves its newest batch; older ones are dropped."""

    #: The batch, and the layer that the job works on.
    seen: ClassVar[tuple[Batch, Target] | None] = None

    @classmethod
    def watch(cls, job: Job, target: Target) -> Job:
        """Drive a job on, and keep its newest batch for whoever looks."""

        def kept(event: Event) -> Event:
            if isinstance(event, Batch):
                cls.seen = event, target
            return event

        try:
            return (yield from mapped(job, kept))
        finally:
            cls.seen = None


class LivePatches(QCheckBox):
    """While it is ticked, shows the patches of the newest batch, five times a second at most."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(
            "Live: what a running denoiser trains on", toggled=self._toggle,
            toolTip="Shows the patches of the current batch, coloured by their loss: yellow is "
            "hard.",
        )  # fmt: skip
        self._viewer = viewer
        self._layer: Any = None
        self._shown: tuple[Batch, Target] | None = None
        self._timer = QTimer(self, interval=POLL_INTERVAL, timeout=self.poll)

    def poll(self) -> None:
        """Show the newest batch, if it is another than before."""
        seen = LatestBatch.seen
        if seen is None:
            self.clear()
        elif seen is not self._shown:
            self._shown = seen
            self._show(*seen)

    def clear(self) -> None:
        """Take the boxes away."""
        self._shown = None
        if self._layer is not None and self._layer in self._viewer.layers:
            self._viewer.layers.remove(self._layer)
        self._layer = None

    def _toggle(self, is_on: bool) -> None:
        if is_on:
            self._timer.start()
            self.poll()
        else:
            self._timer.stop()
            self.clear()

    def _show(self, batch: Batch, target: Target) -> None:
        lines = boxes(batch.corners, batch.patch_shape)
        each = len(lines) // max(len(batch.losses), 1)
        # in logarithms, so that one very hard patch does not hide what the others are
        loss = np.log10(np.maximum(batch.losses, 1e-12)).repeat(each)
        features = {"log10 of loss": loss}
        if self._layer is None:
            self._layer = self._add(lines, features, batch, target)
        elif self._layer in self._viewer.layers:
            # a user who deletes the boxes does not want them
            self._layer.data = lines
            self._layer.features = features
            self._layer.edge_color = "log10 of loss"
            low, high = float(loss.min()), float(loss.max())
            self._layer.edge_contrast_limits = (low, high if high > low else low + 1)

    def _add(self, lines: Any, features: dict[str, Any], batch: Batch, target: Target) -> Any:
        layer = Vectors(
            lines,
            **target.placement.kwargs(),
            name=f"{target.volume.name} batch (live)",
            features=features,
            edge_color="log10 of loss",
            edge_colormap="plasma",
            edge_width=max(1.0, batch.patch_shape[-1] / 30),
            vector_style="line",
            metadata={METADATA_KEY: {"preview": "batch"}},
        )
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(layer)
        # what the user has at hand stays at hand
        self._viewer.layers.selection = selected
        return layer
