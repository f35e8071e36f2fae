"""Percolation: fraction of the void that connects opposite faces of the volume.

It follows from the contacts and bounds in the graph of basins, so that it costs no further pass.
Connectivity is that of pores: over the 26 neighbours of a voxel, or over its 6 faces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.void.components import join_pairs

if TYPE_CHECKING:
    from hushpore.base.arrays import Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.watershed.graph import BasinGraph


def percolation_totals(
    graph: BasinGraph, sample: Int64s, volume: Volume
) -> dict[str, float | None]:
    """Return the percolating fraction of the void along each axis.

    `graph`: basins of the segmented void. `sample`: sample voxels of each slice (in 2D: row).
    `volume`: 2D or 3D, for its shape.
    Returns: by the names of `hushpore.pores.tables.totals.TOTALS`; None without void, and if air
    lies between a face of the volume and the sample.
    """
    n_spatial = volume.n_spatial
    part, count = join_pairs(graph.count + 1, *graph.ends_of_ways)
    voxels = np.zeros(count, np.int64)
    np.add.at(voxels, part, graph.voxels)
    void = int(voxels.sum())
    is_whole = int(sample.sum()) == np.prod(volume.shape)
    found: dict[str, float | None] = {}
    for axis, name in enumerate("zyx"[-n_spatial:]):
        in_bounds = axis + 3 - n_spatial
        reaches = np.zeros((2, count), np.bool_)
        reaches[0, part[1:][graph.bounds[1:, in_bounds] == 0]] = True
        reaches[1, part[1:][graph.bounds[1:, in_bounds + 3] == volume.shape[axis]]] = True
        # a core in air reaches the first and last slice, but not the sides
        is_at_face = is_whole or (axis == 0 and bool(sample[0] and sample[-1]))
        through = int(voxels[reaches.all(axis=0)].sum())
        found[f"percolating_fraction_{name}"] = through / void if void and is_at_face else None
    return found
