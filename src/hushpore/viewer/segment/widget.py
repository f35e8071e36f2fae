"""The widget that segments pores."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from napari.layers import Image, Labels

from hushpore.base.errors import InputError
from hushpore.viewer.forms.rich_label import link
from hushpore.viewer.job_widget import PROVENANCE, JobWidget, LayerData
from hushpore.viewer.layers.result_folder import layer_of_result
from hushpore.viewer.results.panel import RESULTS
from hushpore.viewer.results.pore_layer import pore_layer
from hushpore.viewer.running.cluster_task import new_name
from hushpore.viewer.running.task import Outcome
from hushpore.viewer.segment.merge_height import MergeHeight
from hushpore.viewer.segment.threshold_panel import ThresholdPanel
from hushpore.viewer.segment.warm_up import Preparing

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.running.target import Target


#: What the images of a series differ in, by the letter of the axis.
_SERIES = {"t": "time points", "c": "channels"}


class PoresWidget(JobWidget):
    """Segments the pores of an image; the result is a labels layer with a table."""

    job = "pores"
    purpose = "Finds the pores, parts them where they are narrow, and measures each."
    next_step = (RESULTS, "See them in tables")
    knows_clusters = True

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self.greys = ThresholdPanel(napari_viewer, self.layers, self.form)
        self.merging = MergeHeight(napari_viewer)
        self.merging.merged.connect(self._show_merged)
        self.merging.settled.connect(self._take_over)
        self._preparing = Preparing()
        column = self._scroll.column
        column.insertWidget(column.indexOf(self.form), self.greys)
        self.greys.place_after(self.layers)
        column.insertWidget(column.indexOf(self._result) + 1, self.merging)
        column.insertWidget(column.indexOf(self._result), self._preparing)

    def run(self) -> None:
        """Start, and take the void of the preview away: the pores come in its place."""
        super().run()
        # while a job runs old objects are not searched for garbage, and a layer goes faster
        self.greys.show_void(False)

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Any greyscale image; labels are taken as the void."""
        return isinstance(layer, Labels) or (isinstance(layer, Image) and not layer.rgb)

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Images: labels are mostly a result already."""
        return isinstance(layer, Image) and cls.accepts(layer)

    @classmethod
    def prepare(cls, target: Target) -> Volume:
        """Take labels as the void itself."""
        if target.kind == "labels":
            return target.volume.replace(np.asarray(target.volume.data) != 0)
        return target.volume

    @classmethod
    def result_layers(cls, result: Pores, target: Target) -> list[LayerData]:
        """Return the labels, which carry the tables."""
        return [pore_layer(result, f"{target.volume.name} pores", target.placement)]

    @classmethod
    def on_cluster(
        cls,
        client: Any,
        volume: Volume,
        settings: Settings,
        device: str,
        folder: Path,
        target: Target,
    ) -> Job:
        """Segment block by block; labels and tables lie on disk."""
        from hushpore.cluster.segmenting import segment_pores

        path = new_name(folder, f"{volume.name}_pores")
        found = cast("PoreSettings", settings)
        written = yield from segment_pores(volume, path, found, where=client)
        made: Any = [layer_of_result(written.folder, f"{volume.name} pores", target.placement)]
        summary = f"{written.summary}. Written: {written.folder}"
        return Outcome(summary, made, written.provenance["timings"])

    def facts(self, volume: Volume) -> str:
        """Say how labels are understood, and that of a series one image is to be chosen."""
        if volume.leading_shape:
            series = " and ".join(_SERIES[axis] for axis in volume.axes[: -volume.n_spatial])
            raise InputError(
                f"{volume.facts} · Pores are segmented in one image at a time, but {volume.name} "
                f"has {series}. Right-click the layer, choose 'Split Stack', and take one of them."
            )
        if isinstance(self.layers.layer, Labels):
            return f"{volume.facts} · every label is taken as pore space"
        return super().facts(volume)

    def _show_result(self, text: str) -> None:
        super()._show_result(text)
        if not self.merging.isHidden():
            self._scroll.bring_into_view(self.merging)

    def _show_merged(self, result: Pores) -> None:
        self._show_result(f"{html.escape(result.summary)} · {link('record', PROVENANCE)}")

    def _take_over(self, result: Pores) -> None:
        """Let the next run part pores as those on the screen are."""
        for name in ("markers", "merging", "h"):
            self.form.fields[name].set(result.provenance["settings"][name])
