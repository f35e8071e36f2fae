"""Labels of another program in place of watershed basins."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import kernel
from hushpore.pores.slab_steps import UnstitchedBasins
from hushpore.pores.void.grey import GreyValues, RoundedGrey, Rounding
from hushpore.pores.void.threshold import Range, find_range
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.merging import Numbering

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Int32s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Stack
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work


class GivenLabels:
    """Labels that take the place of the basins of a watershed, one basin for each label.

    `stack`: (z, y, x), int32: labels 1 to n, 0 in the solid; basins afterwards. `count`: n. `scan`:
    of the same shape, for grey values. The basins are numbered by their peaks, as those of a
    watershed; `label_of` holds their labels. `rounding`: of the grey values; by default that of
    their range.
    """

    def __init__(
        self, stack: Stack, count: int, scan: Volume | None = None, rounding: Rounding | None = None
    ) -> None:
        self.stack, self.count, self.scan, self.rounding = stack, count, scan, rounding
        # (basins + 1,), int32: label of each basin
        self.label_of: Int32s = np.arange(count + 1, dtype=np.int32)
        # (pores,), int32: labels that became pores
        self.kept: Int32s = self.label_of[1:]

    def relabel_exits(self, slab: int, basins: Int32s, threads: KernelThreads) -> None:
        """Do nothing: labels do not have exits, unlike `Watershed`."""

    def grey(self, work: Work) -> Pass[RoundedGrey | None]:
        """Return the grey values of the scan rounded for exact sums; None if not known."""
        if self.scan is None:
            return None
        values, found = GreyValues(self.scan, work.slabs, timer=work.timer), []
        if self.rounding is not None:
            return RoundedGrey(values, self.rounding)
        for first, last in work.slabs:
            found.append(find_range(values.read(first, last), work.threads))
            yield last / work.slabs.depth
        ends = functools.reduce(Range.join, found)
        return None if ends.bad else RoundedGrey(values, Rounding.of(values.dtype, *ends[:2]))

    def find(self, work: Work, distance: Stack) -> Pass[UnstitchedBasins]:
        """Find the peak of each label and number the labels by their peaks.

        Voxels without distance, outside the sample, are cleared.
        """
        plane, depth = int(np.prod(work.shape[1:])), work.slabs.depth
        peak = np.full(self.count + 1, -1, np.int64)
        highest = np.zeros(self.count + 1, np.float32)
        for first, last in work.slabs:
            part = self.stack.read(first, last)
            heights = distance.read(first, last).reshape(-1)
            _find_peaks(part.reshape(-1), heights, first * plane, peak, highest)
            self.stack.write(first, part)
            yield 0.5 * last / depth
        kept = np.flatnonzero(peak >= 0)
        order = kept[np.argsort(peak[kept], kind="stable")]
        basin_of = np.zeros(self.count + 1, np.int32)
        basin_of[order] = np.arange(1, order.size + 1)
        self.label_of = np.concatenate([[0], order]).astype(np.int32)
        self.count = order.size
        for first, last in work.slabs:
            part = self.stack.read(first, last)
            self.stack.write(first, apply_labels(part, basin_of, work.threads))
            yield 0.5 + 0.5 * last / depth
        found: Any = self
        return UnstitchedBasins(self.stack, found, peak[order])

    def numbering(self, graph: BasinGraph, minimum_voxels: int, excluded: Mask | None) -> Numbering:
        """Number the pores from 1 in the order of the given labels.

        `minimum_voxels`, `excluded`: as for `hushpore.pores.watershed.merging.number_pores`.
        """
        counts = graph.voxels > 0
        if excluded is not None:
            counts &= ~excluded
        counts[0] = False
        keeps = counts & (graph.voxels >= minimum_voxels)
        small = graph.voxels[counts & ~keeps]
        basins = np.flatnonzero(keeps)
        root = basins[np.argsort(self.label_of[basins])].astype(np.int32)
        label = np.zeros(graph.count + 1, np.int32)
        label[root] = np.arange(1, root.size + 1)
        self.kept = self.label_of[root]
        return Numbering(label, root, small=(small.size, int(small.sum())))


@kernel
def _find_peaks(
    labels: Int32s, distance: Float32s, offset: int, peak: Int64s, highest: Float32s
) -> None:
    """Find the first voxel with the largest distance of each label, in place."""
    for i in range(labels.size):
        label = labels[i]
        if label > 0:
            if distance[i] > highest[label]:
                highest[label] = distance[i]
                peak[label] = offset + i
            elif distance[i] <= 0:
                labels[i] = 0
