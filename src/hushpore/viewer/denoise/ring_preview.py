"""The slice on the screen without its rings, as a denoising would take them out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari.layers import Image

from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.running.slice_preview import SlicePreview

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.viewer.running.target import Target


class RingPreview(SlicePreview):
    """An image layer one slice thick that follows the slice on the screen, while it is wanted."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "slice without rings")

    def show(self, target: Target) -> None:
        """Show slices of a volume without rings, from now on."""
        if self.is_of(target):
            return
        self.hide()
        self._follow(target, partial(_find, target, []))

    def _make_layer(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        return Image(
            image.copy(),
            **target.placement.at((*index, 0, 0)).kwargs(),
            **target.appearance,
            name=f"{target.volume.name} without rings (preview)",
            metadata={METADATA_KEY: {"preview": "rings", "index": index}},
        )


def _find(target: Target, known: list[Any], index: tuple[int, ...]) -> Job:
    """Find the rings of a slice; `known`: keeps what is known of the volume, by the first call."""
    from hushpore.base.events import Progress
    from hushpore.n2v2.rings import SliceRings

    yield Progress("ring correction", 0, 0, "", 0.0)
    if not known:
        known.append(SliceRings(target.volume))
    return known[0].corrected(index)
