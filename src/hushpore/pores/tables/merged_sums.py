"""Sums over the basins of each pore and the edges of each throat, from which they are measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.geometry.sums import SUMS, add_rows, counting, index_of, surface_area
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.void.threshold import AS_IS, Rounding
from hushpore.pores.watershed.graph import number_keys, widest_ways

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Float64s, Int32s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.watershed.merging import Numbering

#: Area, in squared edges of a voxel of this volume, by which the Crofton estimate of a digital ball
#: is too small, whatever its size (measured on balls of 2 to 20 voxels, docs/shape.md).
SURFACE_MISSING = 0.7 * math.pi


@dataclass(frozen=True, eq=False)
class PoreSums:
    """Sums from which pores are measured, one row each; axes are z, y, x, also in 2D."""

    labels: Int32s  # (pores,), int32: ascending
    sums: Int64s  # (pores, sums), int64: in the order of `SUMS`; coordinates in voxels
    # (pores, 6), int32: first voxel and the one after the last, in z, y and x
    bounds: Int32s
    crossings: Int64s  # (pores, 13), int64: as `BasinGraph.crossings`, for pores
    # (pores,), float32: largest squared distance to the solid, in voxels of the smallest spacing
    peak_squared_distance: Float32s
    closed_voxels: Int64s  # (pores,), int64: voxels of closed void
    coordination_number: Int64s  # (pores,), int64: number of other pores that each touches
    # (pores,), float64: from the centre of mass to that of the nearest other pore
    nearest_distance: Float64s
    volume: Volume  # the input, for its spacing and origin
    rounding: Rounding = AS_IS  # of grey values
    minimum_shape_voxels: int = 1  # pores of fewer voxels have no axes (NaN)

    @classmethod
    def of(
        cls,
        graph: BasinGraph,
        numbering: Numbering,
        volume: Volume,
        coordination_number: Int64s,
        minimum_shape_voxels: int = 1,
    ) -> PoreSums:
        """Add up the basins of each pore."""
        count = numbering.root.size
        label = numbering.label_of.astype(np.int64)
        sums = np.zeros((count + 1, graph.sums.shape[1]), np.int64)
        add_rows(graph.sums, label, sums)
        bounds = np.zeros((count + 1, 6), np.int32)
        bounds[:, :3] = np.iinfo(np.int32).max
        for k in range(3):
            np.minimum.at(bounds[:, k], label, graph.bounds[:, k])
            np.maximum.at(bounds[:, 3 + k], label, graph.bounds[:, 3 + k])
        crossings = np.zeros((count + 1, graph.crossings.shape[1]), np.int64)
        # contacts between basins of the same pore are not surface
        a = label[graph.a]
        add_rows(graph.contacts, np.where(a == label[graph.b], a, 0), crossings)
        np.negative(crossings, out=crossings)
        add_rows(graph.crossings, label, crossings)
        closed_voxels = np.zeros(count + 1, np.int64)
        np.add.at(closed_voxels, label, graph.closed_voxels)
        voxels, *places = (sums[1:, index_of(name)] for name in ("voxels", "z", "y", "x"))
        centres = np.stack(places, axis=-1)[:, -volume.n_spatial :] / voxels[:, None]
        nearest = _nearest_distances(centres * np.asarray(volume.spacing))
        return cls(
            numbering.names[1:],
            sums[1:],
            bounds[1:],
            crossings[1:],
            graph.peak_squared_distance[numbering.root],
            closed_voxels[1:],
            coordination_number,
            nearest,
            volume,
            graph.rounding,
            minimum_shape_voxels,
        )

    def sum(self, name: str) -> Array:
        """Return a sum over the voxels of each pore (pores,); coordinates are in voxels."""
        column, (offset, step) = index_of(name), self.rounding
        z, y, x, power = SUMS[column].powers
        if not power:
            return self.sums[:, column]
        # the powers of offset + step * whole number, by the binomial theorem
        column_of = {each.powers: k for k, each in enumerate(SUMS)}
        lowest = 0 if offset else power
        found: Any = 0.0
        for k in range(lowest, power + 1):
            factor = math.comb(power, k) * offset ** (power - k) * step**k
            found = found + factor * self.sums[:, column_of[z, y, x, k]]
        return np.asarray(found)

    def sums_of(self, *names: str) -> Array:
        """Return several sums (pores, names)."""
        return np.stack([self.sum(name) for name in names], axis=-1)

    @cached_property
    def size(self) -> Float64s:
        """Volume, in 2D area (pores,)."""
        size: Float64s = self.sum("voxels").astype(np.float64)
        return size * self.volume.voxel_size

    @cached_property
    def ball_diameter(self) -> Float64s:
        """Diameter of the ball (in 2D: disc) of the same volume (pores,)."""
        if self.volume.n_spatial == 3:
            return np.cbrt(6 * self.size / np.pi)
        return np.sqrt(4 * self.size / np.pi)

    @cached_property
    def surface(self) -> Float64s:
        """Surface area, in 2D perimeter (pores,); see `hushpore.pores.geometry.sums`."""
        return surface_area(2 * self.crossings, self.volume.spacing)

    @cached_property
    def sphericity(self) -> Float64s:
        """Surface area, in 2D perimeter, of the ball of the same volume over that of the pore.

        The area is without the bias of the estimate for small pores. Shape (pores,).
        """
        if self.volume.n_spatial == 2:
            return np.pi * self.ball_diameter / self.surface
        missing = SURFACE_MISSING * float(self.volume.voxel_size ** (2 / 3))
        return np.pi * self.ball_diameter**2 / (self.surface + missing)

    @cached_property
    def inscribed_diameter(self) -> Float64s:
        """Diameter of the largest inscribed ball (pores,); at most that of a whole pore."""
        diameter = inscribed_diameter(self.peak_squared_distance, self.volume)
        is_cut = reach_a_face(self.bounds, self.volume) | (self.coordination_number > 0)
        return np.where(is_cut, diameter, np.minimum(diameter, self.ball_diameter))

    @cached_property
    def mean(self) -> Float64s:
        """Centre of mass in voxels (pores, 3)."""
        mean: Float64s = self.sums_of("z", "y", "x") / self.sums_of("voxels")
        return mean

    @cached_property
    def centroid(self) -> Float64s:
        """Centre of mass in the unit of the volume, relative to its origin (pores, 3)."""
        spacing, origin = _frame(self.volume)
        return origin + self.mean * spacing

    @property
    def axial_position(self) -> Float64s:
        """Position along z as a fraction of the height (pores,); 0.5 in an image."""
        depth = self.volume.spatial_shape[0] if self.volume.n_spatial == 3 else 1
        share: Float64s = (self.mean[:, 0] + 0.5) / depth
        return share

    @property
    def radial_position(self) -> Float64s:
        """Distance from the axis along z through the middle of the slices (pores,)."""
        middle = (np.array(self.volume.spatial_shape[-2:]) - 1) / 2
        away = (self.mean[:, 1:] - middle) * np.asarray(self.volume.spacing[-2:])
        distance: Float64s = np.linalg.norm(away, axis=1)
        return distance

    @property
    def face_distance(self) -> Float64s:
        """Distance from the bounding box to the nearest face of the volume (pores,)."""
        n_spatial = self.volume.n_spatial
        before = self.bounds[:, :3][:, -n_spatial:]
        after = np.array(self.volume.spatial_shape) - self.bounds[:, 3:][:, -n_spatial:]
        away = np.minimum(before, after) * np.asarray(self.volume.spacing)
        distance: Float64s = away.min(axis=1)
        return distance

    @cached_property
    def grey(self) -> tuple[Float64s, Float64s]:
        """Mean and standard deviation of the grey values (pores,); NaN where they are not known."""
        columns = [index_of(name) for name in ("voxels", "grey", "grey_squared")]
        count, total, squared = self.sums[:, columns].T
        mean = np.where(squared < 0, np.nan, total / count)
        deviation = np.sqrt(np.maximum(squared / count - mean**2, 0))
        offset, step = self.rounding
        return offset + step * mean, step * deviation

    @cached_property
    def lengths(self) -> Float64s:
        """Axis lengths of the ellipsoid with the same second moments, longest first (pores, 3)."""
        n_spatial = self.volume.n_spatial
        # an ellipsoid of semi-axis a has the second moment a**2 / 5 along it, an ellipse a**2 / 4
        lengths: Float64s
        lengths = 2 * np.sqrt((n_spatial + 2) * self._principal_moments[0][:, ::-1])
        return lengths[:, [0, 1, 1]] if n_spatial == 2 else lengths

    @property
    def zingg_class(self) -> Float64s:
        """Zingg's shape class (pores,): 1 disc, 2 equant, 3 blade, 4 rod; NaN without a shape.

        T. Zingg (1935), "Beitrag zur Schotteranalyse", Schweizerische Mineralogische und
        Petrographische Mitteilungen 15, 39-140. https://doi.org/10.3929/ethz-a-000103455
        """
        ratios = self.lengths[:, 1:] / self.lengths[:, :2]
        is_long, is_flat = (ratios < 2 / 3).T
        classes = np.where(is_long, np.where(is_flat, 3.0, 4.0), np.where(is_flat, 1.0, 2.0))
        classes[np.isnan(ratios).any(axis=1)] = np.nan
        return classes

    @cached_property
    def axis(self) -> Float64s:
        """Unit vector along the major axis (pores, 3)."""
        axis = np.zeros((len(self.sums), 3))
        axis[:, -self.volume.n_spatial :] = self._principal_moments[1][:, :, -1]
        # the sign that makes the last nonzero component positive
        last = 2 - np.argmax(np.abs(axis[:, ::-1]) > 1e-9, axis=1)
        axis[axis[np.arange(len(axis)), last] < 0] *= -1
        return axis

    @cached_property
    def _principal_moments(self) -> tuple[Float64s, Float64s]:
        """Second moments along the principal axes, ascending, and the axes in columns."""
        has_shape = self.sum("voxels") >= self.minimum_shape_voxels
        spacing, centre = _frame(self.volume)[0], self.mean[has_shape]
        count = self.sum("voxels")[has_shape, None, None].astype(np.float64)
        products = self.sums_of("zz", "zy", "zx", "zy", "yy", "yx", "zx", "yx", "xx")[has_shape]
        moments = products.reshape(-1, 3, 3) / count - centre[:, :, None] * centre[:, None, :]
        # the second moment of a voxel itself
        moments += np.eye(3) / 12
        moments *= spacing[:, None] * spacing
        n_spatial = self.volume.n_spatial
        values = np.full((has_shape.size, n_spatial), np.nan)
        vectors = np.full((has_shape.size, n_spatial, n_spatial), np.nan)
        own = moments[:, -n_spatial:, -n_spatial:]
        values[has_shape], vectors[has_shape] = np.linalg.eigh(own)
        return values, vectors


@dataclass(frozen=True, eq=False)
class ThroatSums:
    """Sums from which throats are measured, sorted by labels."""

    pore_1: Int32s  # (throats,), int32: labels of the two pores, the lower one first
    pore_2: Int32s
    # (throats, 13), int32, of 2**31 voxels or more int64: pairs of neighbouring voxels across, by
    # direction; the first three are shared faces
    contacts: npt.NDArray[np.integer[Any]]
    # (throats,), float32: squared distance to the solid at the narrowest point of the widest path,
    # in voxels of the smallest spacing
    saddle: Float32s
    saddle_at: Int64s  # (throats, 3), int64: index (z, y, x) of that point
    volume: Volume  # the input, for its spacing and origin

    @classmethod
    def of(cls, graph: BasinGraph, numbering: Numbering, volume: Volume) -> ThroatSums:
        """Add up the edges between each pair of pores."""
        a, b = numbering.label_of[graph.a], numbering.label_of[graph.b]
        low, high = np.minimum(a, b), np.maximum(a, b)
        between = np.flatnonzero((low != high) & (low > 0))
        keys = (low[between].astype(np.int64) << 32) | high[between]
        # in noise, there are as many edges as the memory plan allows for
        del a, b, low, high
        pair, throat = number_keys(keys)
        # edges within a pore go into an extra last row, which is dropped
        to = np.full(graph.a.size, pair.size)
        to[between] = throat
        del keys, between, throat
        shape = (1,) * (3 - volume.n_spatial) + volume.spatial_shape
        # each direction has at most as many pairs as voxels
        counts = counting(math.prod(shape))
        contacts = np.zeros((pair.size + 1, graph.contacts.shape[1]), counts)
        add_rows(graph.contacts, to, contacts)
        # the widest edge; of equal ones the first in memory
        saddle, place = np.full(pair.size + 1, -1, np.float32), np.zeros(pair.size + 1, np.int64)
        widest_ways(graph.saddle, graph.saddle_at, to, saddle, place)
        # contacts without a passage count, but a throat needs at least one passage
        found: tuple[Any, ...] = (pair, contacts[:-1], saddle[:-1], place[:-1])
        leads = found[2] >= 0
        if not leads.all():
            found = tuple(each[leads] for each in found)
        pair, contacts, saddle, place = found
        return cls(
            numbering.names[pair >> 32],
            numbering.names[pair & 0xFFFFFFFF],
            contacts,
            saddle,
            np.stack(np.unravel_index(place, shape), axis=-1),
            volume,
        )

    @cached_property
    def position(self) -> Float64s:
        """Position of the narrowest point of the widest path (throats, 3)."""
        spacing, origin = _frame(self.volume)
        return origin + self.saddle_at * spacing


def _frame(volume: Volume) -> tuple[Float64s, Float64s]:
    """Return spacing and origin (z, y, x), also in 2D."""
    spacing, origin = np.ones(3), np.zeros(3)
    spacing[-volume.n_spatial :] = volume.spacing
    origin[-volume.n_spatial :] = volume.origin
    return spacing, origin


def reach_a_face(bounds: Int32s, volume: Volume) -> Mask:
    """Return which boxes, (n, 6) as `BasinGraph.bounds`, touch a face of the volume (n,)."""
    length = np.array((1,) * (3 - volume.n_spatial) + volume.spatial_shape)
    at_face = (bounds[:, :3] == 0) | (bounds[:, 3:] == length)
    found: Mask = at_face[:, -volume.n_spatial :].any(axis=1)
    return found


def inscribed_diameter(squared_distance: Float32s, volume: Volume) -> Float64s:
    """Return diameters in the unit of the volume, from squared distances in smallest voxels."""
    return 2 * np.sqrt(squared_distance.astype(np.float64)) * min(volume.spacing)


def _nearest_distances(points: Float64s) -> Float64s:
    """Return the distance from each point (points, axes) to the nearest other one; NaN if alone."""
    if len(points) < 2:
        return np.full(len(points), np.nan)
    from scipy.spatial import KDTree

    with KernelThreads() as threads:
        # the nearest point to a point is the point itself
        distance: Float64s = KDTree(points).query(points, 2, workers=threads.count)[0][:, 1]
    return distance
