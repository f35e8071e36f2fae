"""From the sums over merged basins to the table of pores, in physical units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.graph import BasinGraph

#: Columns of the table of pores, in their order.
COLUMNS = (
    "label",
    "num_voxels",
    "volume",
    "equivalent_diameter",
    "inscribed_diameter",
    "centroid_z",
    "centroid_y",
    "centroid_x",
    "touches_border",
    "bbox_z_start",
    "bbox_z_stop",
    "bbox_y_start",
    "bbox_y_stop",
    "bbox_x_start",
    "bbox_x_stop",
)


@dataclass(frozen=True, eq=False)
class Numbering:
    """Which pore each basin belongs to.

    Attributes
    ----------
    label_of : numpy.ndarray
        (basins + 1,), int32: label of each basin's pore; 0 for solid and for pores left out.
    chief : numpy.ndarray
        (pores,), int32: the basin with the highest summit of each pore, in the order of labels.
    """

    label_of: npt.NDArray[np.int32]
    chief: npt.NDArray[np.int32]


def number_pores(
    graph: BasinGraph, chief_of: npt.NDArray[np.int32], minimum_voxels: int
) -> Numbering:
    """Number the pores from 1, in the order in which their summits lie in memory.

    Parameters
    ----------
    graph : BasinGraph
        The basins.
    chief_of : numpy.ndarray
        (n + 1,), int32: the basin that stands for the pore of each basin.
    minimum_voxels : int
        Pores of fewer voxels get label 0.
    """
    voxels = np.zeros(graph.count + 1, np.int64)
    np.add.at(voxels, chief_of, graph.sums[:, 0])
    is_pore = (chief_of == np.arange(graph.count + 1)) & (voxels >= minimum_voxels)
    is_pore[0] = False
    chief = np.flatnonzero(is_pore).astype(np.int32)
    label = np.zeros(graph.count + 1, np.int32)
    label[chief] = np.arange(1, chief.size + 1)
    return Numbering(label[chief_of], chief)


def measure_pores(graph: BasinGraph, numbering: Numbering, volume: Volume) -> pd.DataFrame:
    """Return the table of pores: one row a pore, in the order of labels.

    Parameters
    ----------
    graph : BasinGraph
        The measured basins.
    numbering : Numbering
        Which pore each belongs to.
    volume : Volume
        Gives spacing and origin.

    Returns
    -------
    pandas.DataFrame
        With `COLUMNS`. Lengths are in the unit of the volume, ``volume`` in its third power;
        in 2D ``volume`` is the area, in the unit's second power, and z is 0.

    Notes
    -----
    ``equivalent_diameter`` is that of the sphere (disc in 2D) of the same volume.
    ``inscribed_diameter`` is twice the largest distance in the pore from a voxel's centre to the
    nearest solid voxel's centre; infinite where there is no solid at all. ``bbox_*`` are voxel
    indices, from start up to and without stop; centroids are places, counted from the volume's
    origin. ``touches_border`` says whether the pore reaches a face of the volume.
    """
    sums, bounds = _sum_by_pore(graph, numbering)
    spacing = np.ones(3)
    spacing[-volume.n_spatial :] = volume.spacing
    origin = np.zeros(3)
    origin[-volume.n_spatial :] = volume.origin
    size = sums[:, 0] * volume.voxel_size
    centroid = origin + sums[:, 1:4] / sums[:, :1] * spacing
    length = np.array((1,) * (3 - volume.n_spatial) + volume.spatial_shape)
    at_face = (bounds[:, :3] == 0) | (bounds[:, 3:] == length)
    equivalent = np.cbrt(6 * size / np.pi) if volume.n_spatial == 3 else np.sqrt(4 * size / np.pi)
    radius = np.sqrt(graph.peak[numbering.chief].astype(np.float64)) * min(volume.spacing)
    columns = (
        np.arange(1, len(sums) + 1, dtype=np.int32),
        sums[:, 0],
        size,
        equivalent,
        2 * radius,
        *centroid.T,
        at_face[:, -volume.n_spatial :].any(axis=1),
        *bounds[:, [0, 3, 1, 4, 2, 5]].T,
    )
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def _sum_by_pore(
    graph: BasinGraph, numbering: Numbering
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Add up sums and bounds of the basins of each pore; row 0 is label 1."""
    count = numbering.chief.size
    label = numbering.label_of
    sums = np.zeros((count + 1, graph.sums.shape[1]), np.int64)
    np.add.at(sums, label, graph.sums)
    bounds = np.zeros((count + 1, 6), np.int32)
    bounds[:, :3] = np.iinfo(np.int32).max
    np.minimum.at(bounds[:, :3], label, graph.bounds[:, :3])
    np.maximum.at(bounds[:, 3:], label, graph.bounds[:, 3:])
    return sums[1:], bounds[1:]
