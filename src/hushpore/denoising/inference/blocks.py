"""Prediction of one block of a volume, with the same tiles as for the whole volume.

Tiles have the same positions as in the prediction of the whole volume, so that the values are the
same: blocks can be predicted on any machine, and leave no seams.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from hushpore.denoising.images import Arrangement, Images
from hushpore.denoising.inference.volumes import CORES, Tile, cut_axis, pad, predict_tile, shift
from hushpore.denoising.model import fuse_batch_norm
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.device.memory import freed_memory_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.denoising.model import UNet
    from hushpore.denoising.trained_model import Model
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer

    #: Where a piece of an axis is read, kept and goes: see `cut_axis`.
    Piece: TypeAlias = tuple[slice, slice, slice]


@dataclass(frozen=True, eq=False)
class BlockPredictor:
    """Predicts any block of a volume with a trained network."""

    model: Model  # the trained model
    volume: Volume  # the noisy volume; of a lazy array only what a block needs is read
    backend: Backend  # where to compute
    timer: StageTimer  # counts the time of each stage
    # largest core of a tile, (images, y, x) or (images, z, y, x), which determines the memory;
    # other cores give other rounding errors
    core: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float32  # arithmetic of the network
    augment: bool = False  # average over 8 mirrored and turned copies
    pair: Volume | None = None  # a second scan of the same object, as the volume

    def predict(self, block: Sequence[int | slice]) -> tuple[Float32s, list[Array]]:
        """Return a block of the result, and the same block of each scan.

        `block`: index for each axis of the volume; along spatial axes it must start at the edge of
        a tile, a multiple of 512 (2D) or of 32, 128 and 128 (3D) with the default cores. Returns:
        float32, in the shape of the block, without axes that are indexed by a number; the noisy
        voxels of each scan, in the same shape.
        """
        dimensions = self.model.network.dimensions
        within = [each for each in block[-dimensions:] if isinstance(each, slice)]
        shape = tuple(each.stop - each.start for each in block if isinstance(each, slice))
        sizes = [each.stop - each.start for each in within]
        wanted = self._planes(block[: self.volume.ndim - dimensions])
        axes = self._pieces(within)
        region = [slice(pieces[0][0].start, pieces[-1][0].stop) for pieces in axes]
        arrangement = self.model.arrange(self.volume)
        images = self._images_for(arrangement, wanted)
        planes, part = arrangement.part(np.concatenate(images))
        source = self._source(region)
        with self.timer.stage("reading") as run:
            raw = [each.read(planes, region[0]) for each in source.scans]
            run.nbytes = sum(each.nbytes for each in raw)
        result = np.empty((len(wanted), *sizes), np.float32)
        network, first = fuse_batch_norm(self.model.network), 0
        for group in images:
            numbers = np.arange(first, first + len(group))
            first += len(group)
            with freed_memory_kept():
                predicted, values = self._predicted(
                    network, raw, source, planes, part, numbers, axes, region
                )
            for plane, value in zip(predicted, values, strict=True):
                if plane in wanted:
                    result[np.searchsorted(wanted, plane)] = value
        inside = tuple(
            slice(each.start - read.start, each.stop - read.start)
            for each, read in zip(within, region, strict=True)
        )
        own = np.searchsorted(planes, wanted)
        noisy = [each[own][(slice(None), *inside)].reshape(shape) for each in raw]
        return result.reshape(shape), noisy

    @property
    def _core(self) -> tuple[int, ...]:
        return self.core or CORES[self.model.network.dimensions]

    def _planes(self, leading: Sequence[int | slice]) -> Int64s:
        """Return the numbers of the planes in a block, in order."""
        shape = self.volume.shape[: len(leading)]
        numbers = np.arange(math.prod(shape)).reshape(shape)
        chosen: Int64s = np.atleast_1d(numbers[tuple(leading)]).ravel()
        return chosen

    def _images_for(self, arrangement: Arrangement, wanted: Int64s) -> list[Int64s]:
        """Return the images that predict some planes, in the groups that tiles process together.

        A group may include other planes, of the next time point for example, and an image of
        several channels predicts several planes. Only whole groups give bit-identical values.
        """
        together, count = self._core[0], len(arrangement.members)
        needed = np.flatnonzero(np.isin(arrangement.predicted, wanted).any(1))
        return [
            np.arange(number * together, min((number + 1) * together, count))
            for number in np.unique(needed // together)
        ]

    def _pieces(self, within: Sequence[slice]) -> list[list[Piece]]:
        """Return the pieces of each axis that start in the block, as from `cut_axis`."""
        architecture = self.model.network.architecture
        sizes = self.volume.shape[-len(within) :]
        axes = zip(
            sizes, self._core[1:], architecture.radii, architecture.multiples, within, strict=True
        )
        return [
            [piece for piece in cut_axis(*axis) if own.start <= piece[2].start < own.stop]
            for *axis, own in axes
        ]

    def _source(self, region: Sequence[slice]) -> PlaneReader:
        """Return a reader of the region with its whole first axis, from which rows are read."""
        dimensions = len(region)
        ends = [
            slice(each.start, min(each.stop, n))
            for each, n in zip(region, self.volume.shape[-dimensions:], strict=True)
        ]
        windows = [
            None if each is None else each.replace(_Window(each.data, tuple(ends[1:])))
            for each in (self.volume, self.pair)
        ]
        assert windows[0] is not None
        return PlaneReader(windows[0], dimensions, windows[1])

    def _predicted(
        self,
        network: UNet,
        raw: list[Array],
        source: PlaneReader,
        planes: Int64s,
        part: Arrangement,
        numbers: Int64s,
        axes: Sequence[Sequence[Piece]],
        region: Sequence[slice],
    ) -> tuple[Int64s, Float32s]:
        """Return the planes that some images predict, and their values within the block."""
        seen, own = part.part(numbers)
        channels = source.channels[planes[seen]]
        with self.timer.stage("upload") as run:
            given = [each[seen] for each in raw]
            run.nbytes = sum(each.nbytes for each in given)
            stored = [self.backend.put(each) for each in given]
            values = self.model.scale.normalise_scans(stored, channels)
            multiples = self.model.network.architecture.multiples
            images = Images.of(pad(values, multiples), own, len(given))
        starts = [pieces[0][2].start for pieces in axes]
        sizes = [pieces[-1][2].stop - pieces[0][2].start for pieces in axes]
        result = torch.empty((len(numbers), own.outputs, *sizes), device=self.backend.device)
        every = slice(0, len(numbers))
        for pieces in itertools.product(*axes):
            sources, kept, targets = zip(*pieces, strict=True)
            tile = Tile(
                (every, *map(shift, sources, (each.start for each in region))),
                (every, *kept),
                (every, *map(shift, targets, starts)),
            )
            with self.timer.stage("denoising") as run:
                run.voxels = len(numbers) * math.prod(t.stop - t.start for t in targets)
                place = (every, slice(None), *tile.target[1:])
                result[place] = predict_tile(network, images, tile, self.dtype, self.augment)
        with self.timer.stage("download", nbytes=4 * result.numel(), syncs=1):
            predicted = planes[part.predicted[numbers].ravel()]
            host = self.backend.get(result.flatten(0, 1))
            return predicted, self.model.scale.restore(host, source.channels[predicted])


class _Window:
    """An array whose last axes are cropped when it is read."""

    def __init__(self, data: Any, ends: tuple[slice, ...]) -> None:
        self._data, self._ends = data, ends
        kept = tuple(data.shape[: len(data.shape) - len(ends)])
        self.shape = (*kept, *(each.stop - each.start for each in ends))
        self.dtype = data.dtype

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        count = len(self.shape) - len(self._ends)
        keys = tuple(each for each in keys if each is not Ellipsis)
        return self._data[(*keys, *(slice(None),) * (count - len(keys)), *self._ends)]
