"""From the sums over merged basins to the tables of pores and throats, in physical units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.surface import area_per_crossing

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.pores.graph import BasinGraph

#: Columns of the table of pores, in their order.
COLUMNS = (
    "label",
    "num_voxels",
    "volume",
    "equivalent_diameter",
    "inscribed_diameter",
    "surface_area",
    "sphericity",
    "length_major",
    "length_medium",
    "length_minor",
    "elongation",
    "flatness",
    "axis_z",
    "axis_y",
    "axis_x",
    "centroid_z",
    "centroid_y",
    "centroid_x",
    "num_throats",
    "is_open",
    "touches_border",
    "bbox_z_start",
    "bbox_z_stop",
    "bbox_y_start",
    "bbox_y_stop",
    "bbox_x_start",
    "bbox_x_stop",
)

#: Columns of the table of throats, in their order.
THROAT_COLUMNS = (
    "pore_1",
    "pore_2",
    "num_faces",
    "area",
    "inscribed_diameter",
    "position_z",
    "position_y",
    "position_x",
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
    graph: BasinGraph,
    chief_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None = None,
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
    left_out : numpy.ndarray, optional
        (n + 1,), bool: pores that hold one of these basins get label 0.
    """
    voxels = np.zeros(graph.count + 1, np.int64)
    np.add.at(voxels, chief_of, graph.sums[:, 0])
    is_pore = (chief_of == np.arange(graph.count + 1)) & (voxels >= minimum_voxels)
    is_pore[0] = False
    if left_out is not None:
        is_pore[chief_of[left_out]] = False
    chief = np.flatnonzero(is_pore).astype(np.int32)
    label = np.zeros(graph.count + 1, np.int32)
    label[chief] = np.arange(1, chief.size + 1)
    return Numbering(label[chief_of], chief)


def number_groups(
    graph: BasinGraph,
    group_of: npt.NDArray[np.int32],
    minimum_voxels: int,
    left_out: npt.NDArray[np.bool_] | None = None,
) -> Numbering:
    """Number the pores from 1, in the order of the groups that their basins were given.

    Parameters
    ----------
    graph : BasinGraph
        The basins.
    group_of : numpy.ndarray
        (n + 1,), int32: the group of each basin, from 1; 0 for what belongs to none.
    minimum_voxels : int
        Pores of fewer voxels get label 0.
    left_out : numpy.ndarray, optional
        (n + 1,), bool: pores that hold one of these basins get label 0.
    """
    voxels = np.bincount(group_of, graph.sums[:, 0])
    voxels[0] = -1
    if left_out is not None:
        voxels[group_of[left_out]] = -1
    kept = np.flatnonzero(voxels >= minimum_voxels)
    label = np.zeros(voxels.size, np.int32)
    label[kept] = np.arange(1, kept.size + 1)
    # of each group the highest summit, and of equal ones the first
    order = np.lexsort((-graph.peak, group_of))
    first = order[np.searchsorted(group_of[order], kept)]
    return Numbering(label[group_of], first.astype(np.int32))


def reach_a_face(bounds: npt.NDArray[np.int32], volume: Volume) -> npt.NDArray[np.bool_]:
    """Return which boxes, (n, 6) as `BasinGraph.bounds`, reach a face of a volume (n,)."""
    length = np.array((1,) * (3 - volume.n_spatial) + volume.spatial_shape)
    at_face = (bounds[:, :3] == 0) | (bounds[:, 3:] == length)
    found: npt.NDArray[np.bool_] = at_face[:, -volume.n_spatial :].any(axis=1)
    return found


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
        With `COLUMNS`. Lengths are in the unit of the volume, areas and volumes in its powers. In
        2D ``volume`` is the area, ``surface_area`` the perimeter, and z is 0.

    Notes
    -----
    ``equivalent_diameter`` is that of the ball (disc in 2D) of the same volume.
    ``inscribed_diameter`` is twice the largest distance in the pore from a voxel's centre to the
    nearest solid voxel's centre; infinite where there is no solid at all. ``surface_area`` is that
    of the whole pore, throats and cuts by the volume's faces included (`hushpore.pores.surface`);
    ``sphericity`` the surface of the ball of the same volume as a share of it (in 2D, of the
    perimeter), at most 1. ``length_*`` are the axes of the ellipsoid (ellipse) of the same second
    moments, ``elongation`` is 1 - medium/major and ``flatness`` 1 - minor/medium (in 2D 0), and
    ``axis_*`` is the unit vector along the major axis. ``is_open``: its void is connected to a face
    of the volume or to the air outside the sample; ``touches_border``: it reaches a face itself.
    Centroids are places, counted from the volume's origin; ``bbox_*`` voxel indices, from start up
    to and without stop.
    """
    import pandas as pd

    return pd.DataFrame(pore_columns(graph, numbering, volume))


def pore_columns(
    graph: BasinGraph, numbering: Numbering, volume: Volume
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the table of pores; see `measure_pores`."""
    sums, bounds, ends = _sum_by_pore(graph, numbering)
    spacing, origin = _frame(volume)
    size = sums[:, 0].astype(np.float64) * volume.voxel_size
    centroid = origin + sums[:, 1:4] / sums[:, :1] * spacing
    surface = ends @ area_per_crossing(volume.spacing) * 2
    lengths, axis = _principal_axes(sums, spacing, volume.n_spatial)
    radius = np.sqrt(graph.peak[numbering.chief].astype(np.float64)) * min(volume.spacing)
    columns = (
        np.arange(1, len(sums) + 1, dtype=np.int32),
        sums[:, 0],
        size,
        _diameter(size, volume.n_spatial),
        2 * radius,
        surface,
        np.minimum(1.0, _ball_surface(size, volume.n_spatial) / surface),
        *lengths,
        1 - lengths[1] / lengths[0],
        1 - lengths[2] / lengths[1],
        *axis,
        *centroid.T,
        _count_throats(graph, numbering),
        _any_by_pore(graph.is_open, numbering),
        reach_a_face(bounds, volume),
        *bounds[:, [0, 3, 1, 4, 2, 5]].T,
    )
    return dict(zip(COLUMNS, columns, strict=True))


def measure_throats(graph: BasinGraph, numbering: Numbering, volume: Volume) -> pd.DataFrame:
    """Return the table of throats: one row for each two pores that touch, sorted by their labels.

    Parameters
    ----------
    graph, numbering, volume
        As for `measure_pores`.

    Returns
    -------
    pandas.DataFrame
        With `THROAT_COLUMNS`; ``pore_1`` is the lower label.

    Notes
    -----
    Pores touch where voxels of theirs are 26-neighbours; ``num_faces`` counts voxel faces only, and
    may be 0. ``area`` is the Crofton estimate (in 2D a length). ``inscribed_diameter`` is twice the
    distance to the solid at the widest way through, and ``position_*`` the place of that voxel.
    """
    import pandas as pd

    return pd.DataFrame(throat_columns(graph, numbering, volume))


def throat_columns(
    graph: BasinGraph, numbering: Numbering, volume: Volume
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the table of throats; see `measure_throats`."""
    first, second, order, start = _throats(graph, numbering)
    contacts = graph.contacts[order].astype(np.int64)
    if start.size:
        contacts = np.add.reduceat(contacts, start, axis=0)
    widest = order[start]
    spacing, origin = _frame(volume)
    shape = (1,) * (3 - volume.n_spatial) + volume.spatial_shape
    place = np.stack(np.unravel_index(graph.saddle_at[widest], shape), axis=-1)
    columns = (
        first,
        second,
        contacts[:, :3].sum(axis=1),
        contacts @ area_per_crossing(volume.spacing),
        2 * np.sqrt(graph.saddle[widest].astype(np.float64)) * min(volume.spacing),
        *(origin + place * spacing).T,
    )
    return dict(zip(THROAT_COLUMNS, columns, strict=True))


def void_surface(graph: BasinGraph, volume: Volume) -> float:
    """Return the surface between void and solid inside the volume (in 2D its length)."""
    crossings = graph.ends.sum(axis=0) - graph.contacts.sum(axis=0, dtype=np.int64)
    return surface_of(crossings, graph.cuts, volume)


def surface_of(
    crossings: npt.NDArray[np.int64], cuts: npt.NDArray[np.int64], volume: Volume
) -> float:
    """Return the surface of a void that is left as often in each direction, but for its cuts."""
    return float((2 * crossings - cuts) @ area_per_crossing(volume.spacing))


def _frame(volume: Volume) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Spacing and origin in z, y, x, also of an image."""
    spacing, origin = np.ones(3), np.zeros(3)
    spacing[-volume.n_spatial :] = volume.spacing
    origin[-volume.n_spatial :] = volume.origin
    return spacing, origin


def _diameter(size: npt.NDArray[np.float64], n_spatial: int) -> npt.NDArray[np.float64]:
    return np.cbrt(6 * size / np.pi) if n_spatial == 3 else np.sqrt(4 * size / np.pi)


def _ball_surface(size: npt.NDArray[np.float64], n_spatial: int) -> npt.NDArray[np.float64]:
    diameter = _diameter(size, n_spatial)
    return np.pi * diameter**2 if n_spatial == 3 else np.pi * diameter


def _principal_axes(
    sums: npt.NDArray[np.int64], spacing: npt.NDArray[np.float64], n_spatial: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return lengths (3, pores), longest first, and the unit vector of the longest (3, pores)."""
    count = sums[:, 0, None, None].astype(np.float64)
    mean = sums[:, 1:4] / sums[:, :1]
    products = sums[:, [4, 7, 8, 7, 5, 9, 8, 9, 6]].reshape(-1, 3, 3)
    moments = products / count - mean[:, :, None] * mean[:, None, :]
    # a voxel is not a point: it has a second moment of its own
    moments += np.eye(3) / 12
    moments *= spacing[:, None] * spacing
    values, vectors = np.linalg.eigh(moments[:, -n_spatial:, -n_spatial:])
    # an ellipsoid of semi-axis a has the second moment a**2 / 5 along it, an ellipse a**2 / 4
    lengths = 2 * np.sqrt((n_spatial + 2) * values[:, ::-1])
    axis = np.zeros((len(sums), 3))
    axis[:, -n_spatial:] = vectors[:, :, -1]
    # of the two senses the one whose last component that is not 0 is above it
    last = 2 - np.argmax(np.abs(axis[:, ::-1]) > 1e-9, axis=1)
    axis[axis[np.arange(len(axis)), last] < 0] *= -1
    if n_spatial == 2:
        lengths = lengths[:, [0, 1, 1]]
    return lengths.T, axis.T


def _sum_by_pore(
    graph: BasinGraph, numbering: Numbering
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Add up sums, bounds and ends of the basins of each pore; row 0 is label 1."""
    count = numbering.chief.size
    label = numbering.label_of
    sums = np.zeros((count + 1, graph.sums.shape[1]), np.int64)
    np.add.at(sums, label, graph.sums)
    bounds = np.zeros((count + 1, 6), np.int32)
    bounds[:, :3] = np.iinfo(np.int32).max
    np.minimum.at(bounds[:, :3], label, graph.bounds[:, :3])
    np.maximum.at(bounds[:, 3:], label, graph.bounds[:, 3:])
    ends = np.zeros((count + 1, graph.ends.shape[1]), np.int64)
    np.add.at(ends, label, graph.ends)
    # where basins of one pore touch, its surface is not
    inner = label[graph.a] == label[graph.b]
    np.subtract.at(ends, label[graph.a[inner]], graph.contacts[inner])
    return sums[1:], bounds[1:], ends[1:]


def _throats(
    graph: BasinGraph, numbering: Numbering
) -> tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
]:
    """Group the edges between different pores.

    Returns both labels of each throat; the edges, throat after throat, the widest of each first;
    and where each throat starts among them.
    """
    order = graph.by_saddle
    pair = _pairs(graph, numbering)[order]
    between = np.flatnonzero(pair)
    pair = pair[between]
    in_turn = np.argsort(pair, kind="stable")
    pair = pair[in_turn]
    start = np.flatnonzero(np.diff(pair, prepend=-1))
    first, second = (pair[start] >> 32).astype(np.int32), pair[start].astype(np.int32)
    return first, second, order[between[in_turn]], start


def _pairs(graph: BasinGraph, numbering: Numbering) -> npt.NDArray[np.int64]:
    """Return for each edge the pores that it is between, ``low << 32 | high``, 0 for none."""
    a, b = numbering.label_of[graph.a], numbering.label_of[graph.b]
    low, high = np.minimum(a, b), np.maximum(a, b)
    is_between = (low != high) & (low > 0) & (graph.saddle >= 0)
    return np.where(is_between, (low.astype(np.int64) << 32) | high, 0)


def _count_throats(graph: BasinGraph, numbering: Numbering) -> npt.NDArray[np.int64]:
    pair = np.sort(_pairs(graph, numbering))
    pair = pair[np.diff(pair, prepend=0) > 0]
    ends = np.concatenate([pair >> 32, pair & 0xFFFFFFFF])
    return np.bincount(ends, minlength=numbering.chief.size + 1)[1:]


def _any_by_pore(flags: npt.NDArray[np.bool_], numbering: Numbering) -> npt.NDArray[np.bool_]:
    found = np.zeros(numbering.chief.size + 1, np.bool_)
    found[numbering.label_of[flags]] = True
    return found[1:]
