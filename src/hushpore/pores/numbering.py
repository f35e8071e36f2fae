"""Numbering pores: which one each basin belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.graph import BasinGraph


@dataclass(frozen=True, eq=False)
class Numbering:
    """Which pore each basin belongs to."""

    # (basins + 1,), int32: label of each basin's pore; 0 for solid and for pores left out
    label_of: npt.NDArray[np.int32]
    # (pores,), int32: the basin with the highest peak of each pore, in the order of labels
    root: npt.NDArray[np.int32]


def number_pores(
    graph: BasinGraph,
    root_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None = None,
) -> Numbering:
    """Number the pores from 1, in the order in which their peaks lie in memory.

    `root_of`: (n + 1,), int32: the basin that stands for the pore of each basin. `minimum_voxels`:
    pores of fewer voxels get label 0. `left_out`: (n + 1,), bool: pores that hold one of these
    basins get label 0.
    """
    voxels = np.zeros(graph.count + 1, np.int64)
    np.add.at(voxels, root_of, graph.voxels)
    is_pore = (root_of == np.arange(graph.count + 1)) & (voxels >= minimum_voxels)
    is_pore[0] = False
    if left_out is not None:
        is_pore[root_of[left_out]] = False
    root = np.flatnonzero(is_pore).astype(np.int32)
    label = np.zeros(graph.count + 1, np.int32)
    label[root] = np.arange(1, root.size + 1)
    return Numbering(label[root_of], root)


def number_groups(
    graph: BasinGraph,
    group_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None = None,
) -> Numbering:
    """Number the pores from 1, in the order of the groups that their basins were given.

    `group_of`: (n + 1,), int32: the group of each basin, from 1; 0 for what belongs to none. The
    others as for `number_pores`.
    """
    voxels = np.bincount(group_of, graph.voxels)
    voxels[0] = -1
    if left_out is not None:
        voxels[group_of[left_out]] = -1
    kept = np.flatnonzero(voxels >= minimum_voxels)
    label = np.zeros(voxels.size, np.int32)
    label[kept] = np.arange(1, kept.size + 1)
    # of each group the highest peak, and of equal ones the first
    order = np.lexsort((-graph.peak_squared_distance, group_of))
    first = order[np.searchsorted(group_of[order], kept)]
    return Numbering(label[group_of], first.astype(np.int32))
