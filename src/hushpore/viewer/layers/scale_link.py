"""Layers made from a scan follow a change of its scale made outside hushpore.

For example by `layer.scale = ...` or napari-metadata, which change the scan alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from qtpy.QtCore import QTimer

from hushpore.viewer.layers.conversion import known_of, unwrapped, volume_of
from hushpore.viewer.layers.lineage import layer_with

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s
    from hushpore.viewer.running.task import Target


def link_scales(viewer: Any, made: list[Any], target: Target) -> None:
    """Let the layers made from a target follow the scales of its layer and of its scan.

    A scale that was changed while the job ran is followed at once.
    """
    n_spatial = len(target.volume.spacing)
    for name in dict.fromkeys((target.layer, target.scan)):
        source = layer_with(viewer, name)
        if source is None:
            continue
        scale = np.array(source.scale[-n_spatial:])
        if name == target.layer:
            now = volume_of(source, target.volume.axes)
            scale *= np.array(target.volume.spacing) / now.spacing
        for layer in made:
            if layer.ndim >= n_spatial and known_of(layer).get("sheet") is None:
                _link(source, layer, np.array(layer.scale[-n_spatial:]) / scale)


def _link(source: Any, layer: Any, ratio: Float64s) -> None:
    """Keep the scale of a layer at a ratio to that of its source, per axis."""
    # weak: the scan must not keep a removed result in memory
    follow = partial(_follow, ref(unwrapped(source)), ref(unwrapped(layer)), ratio)

    def schedule(event: Any = None) -> None:
        # scale and unit, or the scales of several layers, may change one after the other
        QTimer.singleShot(0, follow)

    for event in (source.events.scale, source.events.units):
        event.connect(schedule)
    schedule()


def _follow(source: ref[Any], layer: ref[Any], ratio: Float64s) -> None:
    scan, made = source(), layer()
    if scan is None or made is None:
        return
    scale, units = ratio * scan.scale[-len(ratio) :], tuple(scan.units[-len(ratio) :])
    is_equal = np.allclose(made.scale[-len(ratio) :], scale, rtol=1e-9, atol=0)
    if is_equal and tuple(made.units[-len(ratio) :]) == units:
        return
    # imported late, because a window without results does not need the tables of pores
    from hushpore.viewer.layers.voxel_size import rescale_layer

    rescale_layer(made, scale, units, np.array(scan.translate[-len(ratio) :]))
