"""The void over the slice on the screen, as a job of these settings would find it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Labels
from napari.utils.colormaps import CyclicLabelColormap

from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.running.preloading import load_torch_libraries
from hushpore.viewer.running.slice_preview import SlicePreview
from hushpore.viewer.segment.grey_histogram import VOID_COLOUR, WEAK_COLOUR

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.running.target import Target


#: How much of the slice is seen through the void.
OPACITY = 0.6


class VoidPreview(SlicePreview):
    """A labels layer one slice thick that follows the slice on the screen, while it is wanted."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "void")

    def show(self, target: Target, settings: PoreSettings, greys: GreySurvey) -> None:
        """Show the void of a volume, from now on, in the slice on the screen."""
        from hushpore.pores.preview import SliceVoid

        if not self.is_of(target):
            self.hide()
            self._void = SliceVoid(target.volume)
        self._follow(target, partial(_find, self._void, target, settings, greys))

    def _make_layer(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        # not a direct one, for which napari compiles code for 1.5 s in every session
        colours = CyclicLabelColormap(colors=["transparent", VOID_COLOUR, WEAK_COLOUR])
        return Labels(
            image.copy(),
            **target.placement.at((*index, 0, 0)).kwargs(),
            name=f"{target.volume.name} void (preview)",
            metadata={METADATA_KEY: {"preview": "void", "index": index}},
            colormap=colours,
            opacity=OPACITY,
        )


def _find(
    void: SliceVoid,
    target: Target,
    settings: PoreSettings,
    greys: GreySurvey,
    index: tuple[int, ...],
) -> Job:
    yield from prepare_kernels(settings)
    phase = void.phase(index, settings, greys)
    # of no threshold it is said elsewhere
    return np.zeros(target.volume.shape[-2:], np.uint8) if phase is None else phase


def prepare_kernels(settings: PoreSettings | None = None) -> Job:
    """Compile or load the kernels that settings need, by default those of a form just opened."""
    from hushpore.pores.settings import PoreSettings

    # others do so now, and kernels need libraries of Numba
    load_torch_libraries()
    from hushpore.pores.job import prepare, warm_up_kind

    yield from prepare(warm_up_kind(settings or PoreSettings()))
