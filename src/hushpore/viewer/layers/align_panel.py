"""The widget that aligns one scan with another scan of the same sample."""

from __future__ import annotations

import dataclasses
import html
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.layers import Layer
from qtpy.QtWidgets import QFormLayout, QPushButton, QVBoxLayout, QWidget

from hushpore.io.align import aligned
from hushpore.io.loading import into_memory
from hushpore.viewer.forms.choices import LayerChoice
from hushpore.viewer.forms.layout import (
    RichLabel,
    ScrolledColumn,
    SharesSide,
    fill,
    plain_label,
    sign,
)
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    VOXEL_SIZE,
    Lineage,
    appearance_of,
    identity,
    known_of,
    layer_data,
    placement_of,
    scan_of,
    set_lineage,
    volume_of,
)
from hushpore.viewer.layers.crop_layers import can_crop
from hushpore.viewer.running.status import LoadingTask

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.problem import Problem

PURPOSE = (
    "Shifts and rotates a scan onto the grid of another scan of the same sample, for repeat scans "
    "and scans before and after a treatment. Both scans are unchanged."
)


class AlignWidget(QWidget):
    """Aligns the moving scan with the fixed scan, as a new layer."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        SharesSide(self, "Align")
        self._viewer = napari_viewer
        self.moving = _choice(
            napari_viewer, "Moving scan", "Scan to shift and rotate, by up to about 10 degrees."
        )
        self.fixed = _choice(napari_viewer, "Fixed scan", "Scan whose grid the result has.")
        tip = "Find the motion, and add the moved scan as a new layer."
        self._run = QPushButton(
            "&Align", toolTip=tip, clicked=self.align, styleSheet="font-weight: bold; padding: 6px;"
        )
        self._result = RichLabel(self._viewer)
        form = QFormLayout()
        form.addRow("Moving scan", self.moving.native)
        form.addRow("Fixed scan", self.fixed.native)
        column = ScrolledColumn(plain_label(PURPOSE), form, self._run, self._result)
        fill(QVBoxLayout(self), column)
        self.setMinimumWidth(300)
        others = [layer for layer in napari_viewer.layers if _can_align(layer)]
        if len(others) > 1:
            # two scans of which the newer one was probably taken later
            self.fixed.value, self.moving.value = others[0], others[-1]
        for choice in (self.moving, self.fixed):
            choice.changed.connect(self._choose)
        self._choose()

    def align(self) -> None:
        """Add the aligned copy of the moving scan, made in a thread."""
        moving, fixed = self.moving.value, self.fixed.value
        labels = self._viewer.dims.axis_labels
        volumes = [volume_of(each, tuple(labels[-each.ndim :])) for each in (moving, fixed)]
        self._result.say("")
        self._run.setEnabled(False)
        done = partial(self._done, moving, fixed)
        LoadingTask(f"Aligning {moving.name}", partial(_aligned, *volumes), done, self._failed)

    def _done(self, moving: Any, fixed: Any, volume: Volume) -> None:
        self._choose()
        made = _layer(moving, fixed, volume)
        moving.visible = False
        self._viewer.add_layer(made)
        finding, name = html.escape(volume.notes[-1]), html.escape(made.name)
        self._result.say(f"{finding} Added {name}; compare it with {html.escape(fixed.name)}.")

    def _failed(self, problem: Problem) -> None:
        self._choose()
        self._result.say(f"{sign(False)} {html.escape(problem.message)}")

    def _choose(self, *_: Any) -> None:
        moving, fixed = self.moving.value, self.fixed.value
        are_two = moving is not None and fixed is not None and moving is not fixed
        self._run.setEnabled(are_two)
        self._result.say("" if are_two else "Open two scans of one sample, and choose both.")


def _choice(viewer: Any, name: str, tip: str) -> LayerChoice:
    choice = LayerChoice(viewer, _can_align, lambda _: False)
    choice.native.setAccessibleName(name)
    choice.native.setToolTip(tip)
    return choice


def _can_align(layer: Any) -> bool:
    """Whether a layer is one greyscale image in 3D."""
    return can_crop(layer) and volume_of(layer).axes == "zyx"


def _aligned(moving: Volume, fixed: Volume) -> Job:
    volume, _ = aligned(moving, fixed)
    (volume,) = yield from into_memory([volume])
    return volume


def _layer(moving: Any, fixed: Any, volume: Volume) -> Any:
    """Return the aligned scan as a layer that lies where the fixed one does."""
    # no file holds these values
    volume = dataclasses.replace(volume, source="")
    name = f"{moving.name} aligned"
    words = {"placement": placement_of(fixed), "name": name, **appearance_of(moving)}
    data, keywords, kind = layer_data(volume, **words)
    known = known_of(fixed)
    if VOXEL_SIZE in known:
        keywords["metadata"][METADATA_KEY][VOXEL_SIZE] = known[VOXEL_SIZE]
    made = Layer.create(data, keywords, kind)
    set_lineage(made, Lineage(scan_of(moving), identity(moving), "align", name))
    return made
