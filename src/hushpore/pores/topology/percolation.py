"""What of the void is connected from one face of the volume to the one across.

It is read from the graph of basins, which knows which of them touch and how far they reach, so that
it costs nothing and is the same wherever that was made. Connected is what is connected within a
pore and between pores: over the 26 neighbours of a voxel, or over its 6 faces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.void.components import join_pairs

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.watershed.graph import BasinGraph


def percolation_totals(
    graph: BasinGraph, sample: npt.NDArray[np.int64], volume: Volume
) -> dict[str, float | None]:
    """Return which share of the void is connected from face to face, along each axis.

    `graph`: of all the void that is asked for. `sample`: voxels of each slice (row, in 2D) that are
    of the sample. `volume`: 2D or 3D, for its shape.
    Returns: by the names of `hushpore.pores.tables.totals.TOTALS`; None where there is no void, and
    where air lies between a face of the volume and the sample.
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
        # of a core in air the sample reaches its ends and not its sides
        is_at_face = is_whole or (axis == 0 and bool(sample[0] and sample[-1]))
        through = int(voxels[reaches.all(axis=0)].sum())
        found[f"percolating_fraction_{name}"] = through / void if void and is_at_face else None
    return found
