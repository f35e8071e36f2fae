"""Positions of pores relative to each other, to the faces of the volume and to its middle axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s, Int32s
    from hushpore.base.volume import Volume


def nearest_distances(points: Float64s, threads: int = 1) -> Float64s:
    """Return the distance from each point to its nearest neighbour.

    Parameters
    ----------
    points : numpy.ndarray
        (points, axes), float64.
    threads : int
        Threads that search.

    Returns
    -------
    numpy.ndarray
        (points,), float64, in the unit of `points`; NaN if there is one point only.

    Examples
    --------
    >>> nearest_distances(np.array([[0.0, 0.0], [0.0, 3.0], [0.0, 4.0]])).tolist()
    [3.0, 1.0, 1.0]
    """
    if len(points) < 2:
        return np.full(len(points), np.nan)
    from scipy.spatial import KDTree

    distance: Float64s
    # the nearest point to a point is the point itself
    distance = KDTree(points).query(points, 2, workers=threads)[0][:, 1]
    return distance


def face_distances(bounds: Int32s, volume: Volume) -> Float64s:
    """Return the distance from bounding boxes to the nearest face of a volume.

    Parameters
    ----------
    bounds : numpy.ndarray
        (boxes, 6), int32: first voxel and the one after the last, in z, y and x.
    volume : Volume
        2D or 3D, for its shape and spacing.

    Returns
    -------
    numpy.ndarray
        (boxes,), float64, in the unit of the volume; 0 for a box that reaches a face.
    """
    n_spatial = volume.n_spatial
    before = bounds[:, :3][:, -n_spatial:]
    after = np.array(volume.spatial_shape) - bounds[:, 3:][:, -n_spatial:]
    distance: Float64s
    distance = (np.minimum(before, after) * np.asarray(volume.spacing)).min(axis=1)
    return distance


def radial_positions(mean: Float64s, volume: Volume) -> Float64s:
    """Return the distance from the axis along z through the middle of the slices.

    Parameters
    ----------
    mean : numpy.ndarray
        (points, 3), float64: indices in z, y and x.
    volume : Volume
        2D or 3D, for its shape and spacing.

    Returns
    -------
    numpy.ndarray
        (points,), float64, in the unit of the volume.
    """
    middle = (np.array(volume.spatial_shape[-2:]) - 1) / 2
    distance: Float64s
    distance = np.linalg.norm((mean[:, 1:] - middle) * np.asarray(volume.spacing[-2:]), axis=1)
    return distance


def axial_positions(mean: Float64s, volume: Volume) -> Float64s:
    """Return positions along z as a share of the height: 0 first face, 1 last face.

    Parameters
    ----------
    mean : numpy.ndarray
        (points, 3), float64: indices in z, y and x.
    volume : Volume
        2D or 3D, for its shape; an image has one slice, and every position in it is 0.5.

    Returns
    -------
    numpy.ndarray
        (points,), float64.
    """
    depth = volume.spatial_shape[0] if volume.n_spatial == 3 else 1
    share: Float64s = (mean[:, 0] + 0.5) / depth
    return share


def zingg_classes(elongation_ratio: Float64s, flatness_ratio: Float64s) -> Float64s:
    """Return Zingg's shape classes.

    Parameters
    ----------
    elongation_ratio, flatness_ratio : numpy.ndarray
        (pores,), float64: b/a and c/b of the axis lengths a >= b >= c.

    Returns
    -------
    numpy.ndarray
        (pores,), float64: 1 disc, 2 equant, 3 blade, 4 rod; NaN where a ratio is.

    References
    ----------
    T. Zingg (1935), "Beitrag zur Schotteranalyse", Schweizerische Mineralogische und
    Petrographische Mitteilungen 15, 39-140. https://doi.org/10.3929/ethz-a-000103455

    Examples
    --------
    >>> zingg_classes(np.array([0.9, 0.9, 0.4, 0.4]), np.array([0.3, 0.9, 0.3, 0.9])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    is_long, is_flat = elongation_ratio < 2 / 3, flatness_ratio < 2 / 3
    classes = np.where(is_long, np.where(is_flat, 3.0, 4.0), np.where(is_flat, 1.0, 2.0))
    classes[np.isnan(elongation_ratio) | np.isnan(flatness_ratio)] = np.nan
    return classes
