"""A coarse map of the sample, for depths below its surface and for profiles by depth and radius.

Points on a regular grid tell where sample and pores are: on every voxel of small volumes, of large
ones on every n-th along each axis. Shares of points are unbiased estimates of shares of volume, and
depths are right within a step of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import KernelThreads
from hushpore.pores.void.components import AIR, SOLID
from hushpore.pores.watershed.distance import squared_distance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.arrays import Array, Float64s, Mask, UInt8s
    from hushpore.base.volume import Volume

#: Most points along an axis.
_POINTS = 128

#: Bins of a profile.
BINS = 20


def grid_of(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the voxels of the points of a volume, as a slice along each axis."""
    steps = [max(1, -(-length // _POINTS)) for length in shape]
    return tuple(slice(step // 2, None, step) for step in steps)


def _spacing(grid: Sequence[slice], volume: Volume) -> Float64s:
    spacing: Float64s
    spacing = np.asarray(volume.spacing) * [each.step for each in grid]
    return spacing


@dataclass(frozen=True, eq=False)
class SampleMap:
    """Points of a volume: which are of the sample, and which are pore.

    Attributes
    ----------
    sample, pore : numpy.ndarray
        (z, y, x), bool.
    spacing : numpy.ndarray
        (3,), float64: distance of points along each axis.
    in_air : bool
        Whether the surface of the sample is where it meets air in the volume; else the faces of the
        volume are its surface.
    """

    sample: Mask
    pore: Mask
    spacing: Float64s
    in_air: bool

    @classmethod
    def of(
        cls,
        void: Array,
        volume: Volume,
        *,
        in_air: bool,
        threshold: float | None = None,
        bright: bool = False,
        mask: Array | None = None,
    ) -> SampleMap:
        """Return the map of a 3D volume.

        Parameters
        ----------
        void : numpy.ndarray
            (z, y, x), not 0 in void of the sample.
        volume : Volume
            What was segmented; its values are read if there is air around the sample.
        in_air : bool
            Whether air around the sample was excluded.
        threshold : float, optional
            Grey value between pore and solid; None: 0, of booleans.
        bright : bool
            Whether pores are brighter than it.
        mask : numpy.ndarray, optional
            (z, y, x), above 0 in the sample, if it was given.

        Returns
        -------
        SampleMap
            Of every n-th voxel.
        """
        grid = grid_of(void.shape)
        pore = np.asarray(void[grid]) != 0
        sample = np.ones(pore.shape, np.bool_)
        if mask is not None:
            sample = np.asarray(mask[grid]) > 0
        elif in_air:
            data: Any = volume.data
            for place, z in enumerate(range(*grid[0].indices(void.shape[0]))):
                values = np.asarray(data[z])[grid[1:]]
                is_void = (values > (threshold or 0.0)) == bright
                # void that belongs to no pore is air
                sample[place] = pore[place] | ~is_void
        return cls(sample, pore, _spacing(grid, volume), in_air)

    @classmethod
    def of_phases(
        cls, phases: UInt8s, volume: Volume, *, in_air: bool, mask: Array | None = None
    ) -> SampleMap:
        """Return the map of a 3D volume from the phases at its points.

        Parameters
        ----------
        phases : numpy.ndarray
            (z, y, x), uint8, as `hushpore.pores.void.components` numbers them, at the voxels of
            `grid_of`.
        volume : Volume
            What was segmented, for its shape and spacing.
        in_air : bool
            Whether air around the sample was excluded.
        mask : numpy.ndarray, optional
            (z, y, x), above 0 in the sample, if it was given.

        Returns
        -------
        SampleMap
            As `of` returns it.
        """
        grid = grid_of(volume.shape)
        pore = (phases != SOLID) & (phases < AIR)
        sample = phases < AIR if in_air else np.ones(pore.shape, np.bool_)
        if mask is not None:
            sample = np.asarray(mask[grid]) > 0
        return cls(sample, pore, _spacing(grid, volume), in_air)

    @cached_property
    def depth(self) -> Float64s:
        """(z, y, x): distance of each point of the sample from its surface; 0 outside."""
        if not self.in_air:
            sides = [
                np.minimum(np.arange(length), np.arange(length)[::-1]) + 0.5
                for length in self.sample.shape
            ]
            distance: Float64s = np.minimum.reduce(
                np.meshgrid(*(side * step for side, step in zip(sides, self.spacing, strict=True)),
                            indexing="ij")
            )  # fmt: skip
            return distance
        if self.sample.all():
            return np.full(self.sample.shape, np.inf)
        # to the boundary, which is half a step before the first point outside
        smallest = float(self.spacing.min())
        with KernelThreads() as threads:
            how = tuple(map(float, self.spacing)), (False,) * 3, threads
            found = np.sqrt(squared_distance(np.ascontiguousarray(self.sample), *how)) * smallest
        return np.where(self.sample, np.maximum(found - self.spacing.min() / 2, 0.0), 0.0)

    @cached_property
    def radius(self) -> Float64s:
        """(y, x): distance of each column of points from the axis of the sample along z."""
        columns = self.sample.sum(axis=0)
        y, x = np.indices(columns.shape)
        middle = [(each * columns).sum() / max(columns.sum(), 1) for each in (y, x)]
        distance: Float64s
        distance = np.hypot((y - middle[0]) * self.spacing[1], (x - middle[1]) * self.spacing[2])
        return distance

    def depth_at(self, indices: Float64s, spacing: Float64s) -> Any:
        """Return the depth at places.

        Parameters
        ----------
        indices : numpy.ndarray
            (places, 3), float64: in voxels of the volume.
        spacing : numpy.ndarray
            (3,), float64: of these.

        Returns
        -------
        numpy.ndarray
            (places,), float64: depth of the nearest point.
        """
        nearest = (indices + 0.5) * spacing / self.spacing
        at = np.clip(nearest.astype(np.int64), 0, np.array(self.sample.shape) - 1)
        return self.depth[tuple(at.T)]

    def profiles(self) -> dict[str, Mapping[str, Any]]:
        """Return the profiles by depth and by radius, as the columns of tables by their names.

        Returns
        -------
        dict of str to mapping
            ``profile_depth`` and ``profile_radius``, with ``depth_from``, ``depth_to`` (likewise
            ``radius``), ``sample_share`` (of the sample in this bin) and ``porosity`` (NaN where
            there is no sample).
        """
        radius = np.broadcast_to(self.radius, self.sample.shape)
        return {
            f"profile_{name}": self._profile(name, values)
            for name, values in (("depth", self.depth), ("radius", radius))
        }

    def _profile(self, name: str, values: Float64s) -> dict[str, Any]:
        own, pore = values[self.sample], self.pore[self.sample]
        highest = float(own.max(initial=0.0))
        # a range in place of edges spares a sort of all points
        ends = 0.0, highest if np.isfinite(highest) and highest else 1.0
        count, edges = np.histogram(own, BINS, ends)
        of_pore = np.histogram(own[pore], BINS, ends)[0]
        porosity = np.full(BINS, np.nan)
        np.divide(of_pore, count, out=porosity, where=count > 0)
        return {
            f"{name}_from": edges[:-1],
            f"{name}_to": edges[1:],
            "sample_share": count / max(own.size, 1),
            "porosity": porosity,
        }
