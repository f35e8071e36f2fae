"""Prediction of a whole volume with a trained network, in slabs if memory is short.

Prediction in tiles without seams.

Every tile is read with a margin as wide as the receptive field, and only its core is kept; at the
border of the image a tile ends with the image. So each output pixel is computed from the same input
as in one piece.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import Job, Note, Progress
from hushpore.denoising.images import Images
from hushpore.denoising.model import Architecture, fuse_batch_norm
from hushpore.denoising.plane_reader import is_in_a_row
from hushpore.denoising.settings import MULTIPLE
from hushpore.denoising.training.step import channels_last, mixed_precision
from hushpore.device.backend import Backend
from hushpore.device.memory import freed_memory_kept, is_out_of_memory
from hushpore.device.timing import StageTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hushpore.base.arrays import Array, Float32s, Int64s
    from hushpore.base.rescaled import Scaled
    from hushpore.denoising.images import Arrangement
    from hushpore.denoising.model import UNet
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.device.graphs import GraphReplays

#: Shares of the memory for images, and for the processing of a tile.
IMAGES_SHARE, TILE_SHARE = 5 / 9, 4 / 9

#: Maximum share of the free memory for everything, libraries included, unless the user set a limit.
FREE_SHARE = 0.9

#: Bytes per voxel of a plane in float32: normalised, padded, and as a result.
_WORKING = 12


@dataclass(frozen=True)
class Slab:
    """A part of the volume that is in memory at once."""

    images: slice  # range of images
    rows: slice  # range of rows along their first axis, with margins
    # sources are counted from the start of the slab, targets from the start of the volume
    tiles: tuple[Tile, ...]

    @property
    def kept(self) -> slice:
        """The rows that the slab predicts."""
        first = min(tile.target[1].start for tile in self.tiles)
        return slice(first, max(tile.target[1].stop for tile in self.tiles))


@dataclass
class VolumePredictor:
    """Predicts whole volumes with a trained network, by `predict`."""

    network: UNet  # in evaluation mode
    arrangement: Arrangement  # assignment of planes to images
    scale: Scale  # conversion between grey values and network values
    budget: float  # maximum bytes for images and tiles together; on a GPU for the images alone
    dtype: torch.dtype = torch.float32  # arithmetic of the network
    augment: bool = False  # whether to average over mirrored and rotated copies
    progress_start: float = 0.0  # completed share of the whole job at the start, for progress
    timer: StageTimer = field(default_factory=StageTimer)  # counts the time of each stage
    _replays: GraphReplays | None = field(default=None, init=False)
    _fused: UNet = field(init=False)

    def predict(
        self, source: PlaneReader, out: Any, backend: Backend, images: Images | None = None
    ) -> Job:
        """Predict every plane of a volume, in smaller tiles if memory runs out.

        `out`: in the shape of the volume; written slab by slab. `backend`: the device; the CPU is
        used if even the smallest tile does not fit into its memory. `images`: the whole volume, if
        it is on the device already, normalised.
        Returns: the device that was used in the end.
        Raises MemoryLimitError if the smallest tile does not fit on the CPU.
        """
        first = self._first_core(backend, source)
        yield from self._warn_of_memory(first, backend, source)
        core: tuple[int, ...] | None = first
        while core is not None:
            try:
                self._fused = fuse_batch_norm(self.network).to(backend.device)
                # graphs of larger tiles would need the memory that has just run out
                self._replays = backend.graph_replays("tiles")
                with freed_memory_kept():
                    yield from self._predict_slabs(source, out, backend, images, core)
                return backend
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            finally:
                self._replays = None
            core = halve_core(core, max(self.network.architecture.multiples))
            if core is not None:
                size = " x ".join(map(str, core[1:]))
                message = f"Out of memory: the network is applied to smaller tiles ({size} px)."
            elif backend.is_gpu:
                message = "The GPU ran out of memory: fell back to the CPU."
                backend, images = Backend(reason="the GPU ran out of memory"), None
                self.dtype = torch.float32
                core = self._first_core(backend, source)
                self.timer.run_on(backend.clock())
            else:
                break
            yield Note(message, warning=True)
        raise MemoryLimitError(
            f"{source.volume.name} ({source.volume.facts}) cannot be denoised: not even one tile "
            "fits into memory. Close other programs, or crop or bin the volume."
        )

    def _first_core(self, backend: Backend, source: PlaneReader) -> tuple[int, ...]:
        how = (self.network.architecture, self.dtype, source.size)
        if backend.is_cuda:
            return core_on_gpu(TILE_SHARE * backend.free_memory(), *how)
        return core_within(self._tile_memory(backend), *how)

    def _tile_memory(self, backend: Backend) -> float:
        # a GPU reports when its memory is short; without this limit, the system would kill the
        # process
        if backend.is_cuda:
            return math.inf
        return TILE_SHARE * min(self.budget, FREE_SHARE * backend.free_memory())

    def _warn_of_memory(
        self, core: tuple[int, ...], backend: Backend, source: PlaneReader
    ) -> Iterator[Note]:
        """Warn if even the smallest tile needs more memory than allowed."""
        least = tile_bytes(core, self.network.architecture, self.dtype, source.size)
        if least > self._tile_memory(backend):
            yield Note(
                f"Up to {(least + IMAGES_SHARE * self.budget) / 1e9:.2g} GB of memory will be used "
                f"instead of {self.budget / 1e9:.2g} GB: the tiles cannot be made smaller.",
                warning=True,
            )

    def _predict_slabs(
        self,
        source: PlaneReader,
        out: Any,
        backend: Backend,
        images: Images | None,
        core: tuple[int, ...],
    ) -> Job:
        shape = (len(self.arrangement.members), *source.size)
        if images is not None:
            tiles = tuple(plan_tiles(shape, core, self.network.architecture))
            slab = Slab(slice(0, shape[0]), slice(0, shape[1]), tiles)
            yield from self._predict_slab(slab, images, source, out, backend, 0, len(tiles))
            return
        slabs = self.plan(source, core)
        done, total = 0, sum(len(slab.tiles) for slab in slabs)
        for slab in slabs:
            planes = np.unique(self.arrangement.members[slab.images])
            with self.timer.stage("reading") as run:
                stored = [scan.stored(planes, slab.rows) for scan in source.scans]
                run.nbytes = sum(values.nbytes for values in stored)
            slab_images = self._normalised(slab, stored, planes, source, backend)
            yield from self._predict_slab(slab, slab_images, source, out, backend, done, total)
            done += len(slab.tiles)

    def plan(self, source: PlaneReader, core: tuple[int, ...]) -> list[Slab]:
        """Cut the volume into slabs that fit into the memory, with at least one tile in each."""
        architecture, arrangement = self.network.architecture, self.arrangement
        n_images, size = len(arrangement.members), source.size
        per_row = math.prod(size[1:]) * source.bytes_a_voxel(_WORKING) * arrangement.inputs
        # half of the memory: one slab is still there while the next is read
        fitting = int(IMAGES_SHARE * self.budget / 2 / per_row)
        if architecture.dimensions == 2:
            together = max(1, fitting // size[0])
            core = (min(core[0], together), *core[1:])
            tiles = plan_tiles((n_images, *size), core, architecture)
            chunks = max(1, together // core[0])
            return _grouped(tiles, 0, chunks)
        if fitting >= size[0] * n_images:
            tiles = plan_tiles((n_images, *size), core, architecture)
            return [Slab(slice(0, n_images), slice(0, size[0]), tuple(tiles))]
        multiple = architecture.multiples[0]
        margin = -(-architecture.radii[0] // multiple) * multiple
        rows = max((fitting - 2 * margin) // multiple, 1) * multiple
        core = (1, min(core[1], rows), *core[2:])
        tiles = plan_tiles((n_images, *size), core, architecture)
        return _grouped(tiles, 1, max(1, rows // core[1]))

    def _normalised(
        self,
        slab: Slab,
        stored: list[Array | Scaled],
        planes: Int64s,
        source: PlaneReader,
        backend: Backend,
    ) -> Images:
        numbers = np.arange(slab.images.start, slab.images.stop)
        arrangement = self.arrangement.part(numbers)[1]
        with self.timer.stage("upload", nbytes=sum(values.nbytes for values in stored)):
            shape = (len(planes), -1, *source.size[1:])
            on_device = [backend.put(values).reshape(shape) for values in stored]
            normalised = self.scale.normalise_scans(on_device, source.channels[planes])
            return Images.of(normalised, arrangement, len(stored))

    def _predict_slab(
        self,
        slab: Slab,
        images: Images,
        source: PlaneReader,
        out: Any,
        backend: Backend,
        done: int,
        total: int,
    ) -> Job:
        multiples = self.network.architecture.multiples
        padded = replace(images, planes=pad(images.planes, multiples))
        rows, n_images = slab.kept, slab.images.stop - slab.images.start
        shape = (n_images, images.outputs, rows.stop - rows.start, *source.size[1:])
        result = torch.empty(shape, device=backend.device)
        for number, tile in enumerate(slab.tiles, start=done):
            yield self._progress(number, total)
            with self.timer.stage("denoising") as run:
                which, first, *within = tile.target
                run.voxels = math.prod(part.stop - part.start for part in tile.target)
                place = (shift(which, slab.images.start), slice(None), shift(first, rows.start))
                result[(*place, *within)] = predict_tile(
                    self._compute, padded, tile, self.dtype, self.augment
                )
        with self.timer.stage("download", nbytes=4 * result.numel(), syncs=1):
            planes = self.arrangement.predicted[slab.images].ravel()
            restored = self.scale.restore_on_device(result.flatten(0, 1), source.channels[planes])
            write_planes(out, source, planes, rows, backend.get(restored))
        done += len(slab.tiles)
        yield self._progress(done, total)

    def _compute(self, batch: torch.Tensor) -> torch.Tensor:
        network: Callable[[torch.Tensor], torch.Tensor] = self._fused
        return network(batch) if self._replays is None else self._replays.call("", network, batch)

    def _progress(self, done: int, total: int) -> Progress:
        fraction = self.progress_start + (1 - self.progress_start) * done / total
        return Progress("denoising", done, total, "tiles", fraction)


def write_planes(
    out: Any, source: PlaneReader, planes: Int64s, rows: slice, values: Float32s
) -> None:
    """Write rows of some planes into an array in the shape of the volume."""
    if source.volume.ndim == len(source.size) + 1 and is_in_a_row(planes):
        out[int(planes[0]) : int(planes[-1]) + 1, rows] = values
        return
    for plane, value in zip(planes, values, strict=True):
        out[source.index(int(plane), rows)] = value


def _grouped(tiles: list[Tile], axis: int, chunks: int) -> list[Slab]:
    """Return slabs of `chunks` neighbouring pieces of an axis, for rows in one image each."""
    groups: dict[tuple[int, int], list[Tile]] = {}
    edges = sorted({tile.target[axis].start for tile in tiles})
    number = {start: position // chunks for position, start in enumerate(edges)}
    for tile in tiles:
        image = tile.target[0].start if axis == 1 else 0
        groups.setdefault((image, number[tile.target[axis].start]), []).append(tile)
    return [_slab_of(group) for _, group in sorted(groups.items())]


def _slab_of(tiles: list[Tile]) -> Slab:
    images, rows = (
        slice(
            min(tile.source[axis].start for tile in tiles),
            max(tile.source[axis].stop for tile in tiles),
        )
        for axis in (0, 1)
    )
    moved = tuple(
        Tile(
            (shift(t.source[0], images.start), shift(t.source[1], rows.start), *t.source[2:]),
            t.kept,
            t.target,
        )
        for t in tiles
    )
    return Slab(images, rows, moved)


#: Cores of tiles: (images, y, x) in 2D and (images, z, y, x) in 3D. A job can be cancelled only
#: between two tiles: more images at once would be a few percent faster on the CPU, but delay that.
CORES = {2: (2, 512, 512), 3: (1, 32, 128, 128)}

#: Cores on a GPU, which is faster: larger ones have fewer margins, and need fewer launches.
CORES_ON_GPU = {2: (8, 1024, 1024), 3: (1, 64, 256, 256)}

#: Maximum number of top-level feature maps in memory at once, with those of lower levels counted by
#: their share of the pixels; more with a skip connection.
_TOGETHER = {"r2r": 5.0, "n2n": 5.0, "n2v2": 3.25, "n2v": 6.25}

#: Memory of the C library and of convolutions, relative to the features, as measured on a CPU; and
#: bytes per pixel of each plane that is read or predicted.
_BESIDE, _PLANE = 1.6, 64

#: Minimum edge of a tile if memory is short: a smaller tile would be mostly margins.
_SHORTEST = 32

#: Axes along which a tile is mirrored for test-time augmentation.
_MIRRORS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))


@dataclass(frozen=True)
class Tile:
    """One piece of a prediction."""

    source: tuple[slice, ...]  # region that is read from the padded image, with its margin
    kept: tuple[slice, ...]  # the part of the tile's output that is kept
    target: tuple[slice, ...]  # place of that part in the result


def plan_tiles(
    shape: Sequence[int], core: Sequence[int], architecture: Architecture | None = None
) -> list[Tile]:
    """Cut images into tiles.

    `shape`: shape of the images, (n, y, x) or (n, z, y, x). `core`: largest core of a tile; along
    spatial axes a multiple of `architecture.multiples`. `architecture`: determines the margins.
    Returns: tiles whose targets cover `shape` exactly once.
    """
    network = architecture or Architecture(len(shape) - 1)
    radii, multiples = (0, *network.radii), (1, *network.multiples)
    axes = [cut_axis(*axis) for axis in zip(shape, core, radii, multiples, strict=True)]
    return [
        Tile(*(tuple(part) for part in zip(*pieces, strict=True)))
        for pieces in itertools.product(*axes)
    ]


def halve_core(core: tuple[int, ...], multiple: int = MULTIPLE) -> tuple[int, ...] | None:
    """Return a smaller core, with fewer images first, or None if it cannot be smaller.

    `multiple`: divisor of the new edges.
    """
    if core[0] > 1:
        return (core[0] // 2, *core[1:])
    largest = max(core)
    if largest < 2 * multiple:
        return None
    axis = core.index(largest)
    half = -(-largest // (2 * multiple)) * multiple
    return (*core[:axis], half, *core[axis + 1 :])


def tile_bytes(
    core: Sequence[int],
    architecture: Architecture,
    dtype: torch.dtype,
    size: Sequence[int] | None = None,
) -> float:
    """Return the maximum memory for a tile in a fused network, in bytes.

    `core`: as for `plan_tiles`. `dtype`: arithmetic of the network. `size`: of an image, beyond
    which there are no margins.
    """
    edges = [
        edge + 2 * math.ceil(radius / multiple) * multiple
        for edge, radius, multiple in zip(
            core[1:], architecture.radii, architecture.multiples, strict=True
        )
    ]
    if size is not None:
        multiple = max(architecture.multiples)
        edges = [min(edge, n + multiple) for edge, n in zip(edges, size, strict=True)]
    features = _TOGETHER[architecture.method] * architecture.features * dtype.itemsize
    features *= _BESIDE
    a_pixel = features + _PLANE * (architecture.inputs + architecture.outputs)
    return a_pixel * core[0] * math.prod(edges)


def core_within(
    memory: float, architecture: Architecture, dtype: torch.dtype, size: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the largest core of a tile that needs at most `memory` bytes.

    Other parameters as for `tile_bytes`. The smallest core may need more.
    """
    core = CORES[architecture.dimensions]
    while tile_bytes(core, architecture, dtype, size) > memory:
        smaller = halve_core(core, max(architecture.multiples))
        if smaller is None or min(smaller[1:]) < _SHORTEST:
            break
        core = smaller
    return core


def core_on_gpu(
    memory: float, architecture: Architecture, dtype: torch.dtype, size: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the core of a tile on a GPU, larger than on the CPU if `memory` allows it.

    The parameters are as for `core_within`. A GPU reports when its memory is short, so the core is
    never smaller than the default on the CPU.
    """
    core: tuple[int, ...] | None = CORES_ON_GPU[architecture.dimensions]
    usual = CORES[architecture.dimensions]
    while core is not None and math.prod(core) > math.prod(usual):
        if tile_bytes(core, architecture, dtype, size) <= memory:
            return core
        core = halve_core(core, max(architecture.multiples))
    return usual


def pad(planes: torch.Tensor, multiples: Sequence[int] | None = None) -> torch.Tensor:
    """Extend the far end of every spatial axis of planes (n, *size) to a multiple, by mirroring.

    `planes`: shape (n, y, x) or (n, z, y, x). `multiples`: one for each spatial axis; by default
    `MULTIPLE`.
    """
    for axis in range(1, planes.ndim):
        length = planes.shape[axis]
        missing = -length % (multiples[axis - 1] if multiples else MULTIPLE)
        if missing:
            # an axis of one voxel cannot be mirrored, and is repeated
            back = torch.arange(length - 2, length - 2 - missing, -1, device=planes.device)
            index = torch.arange(length, device=planes.device)
            planes = planes.index_select(axis, torch.cat([index, back.clamp_min(0)]))
    return planes


@torch.inference_mode()
def predict_tile(
    network: Callable[[torch.Tensor], torch.Tensor],
    padded: Images,
    tile: Tile,
    dtype: torch.dtype = torch.float32,
    augment: bool = False,
) -> torch.Tensor:
    """Return the network's output for the core of one tile, (images, outputs, *core).

    With two scans of the same object, this is the mean of both predictions.

    `network`: (batch, inputs, *size) to (batch, outputs, *size), in evaluation mode. `padded`: with
    planes as from `pad`. `tile`: one of `plan_tiles` for the images before padding. `dtype`:
    float32, or bfloat16 for mixed precision. `augment`: average over the 8 mirrored and rotated
    copies of the tile in y and x.
    """
    regions = [scan.region(tile.source) for scan in padded.each_scan()]
    shape = (len(regions[0]), padded.outputs, *regions[0].shape[2:])
    total = torch.zeros(shape, device=padded.device)
    turns = list(itertools.product(_MIRRORS, (False, True))) if augment else [((), False)]
    for region, (mirrored, exchanged) in itertools.product(regions, turns):
        turned = region.flip(mirrored)
        turned = turned.transpose(-1, -2) if exchanged else turned
        with mixed_precision(region.device.type, dtype):
            output = network(channels_last(turned)).float()
        output = output.transpose(-1, -2) if exchanged else output
        total += output.flip(mirrored)
    images, *within = tile.kept
    return (total / (len(regions) * len(turns)))[(images, slice(None), *within)]


def predict_images(
    network: Callable[[torch.Tensor], torch.Tensor],
    images: Images,
    core: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    architecture: Architecture | None = None,
) -> torch.Tensor:
    """Return the network's output for whole images, computed tile by tile.

    `network`, `dtype`: as for `predict_tile`. `core`, `architecture`: as for `plan_tiles`.
    Returns: float32, shape (n_images, outputs, *size).
    """
    architecture = architecture or Architecture(len(images.shape) - 1)
    padded = replace(images, planes=pad(images.planes, architecture.multiples))
    n, *size = images.shape
    result = torch.empty((n, images.outputs, *size), device=images.device)
    core = core or CORES[architecture.dimensions]
    for tile in plan_tiles(images.shape, core, architecture):
        number, *within = tile.target
        result[(number, slice(None), *within)] = predict_tile(network, padded, tile, dtype)
    return result


def cut_axis(
    length: int, edge: int, margin: int, multiple: int
) -> list[tuple[slice, slice, slice]]:
    """Cut one axis into pieces of at most `edge`, each as (source, kept, target).

    `length`: of the axis, before padding to a multiple. `edge`: a multiple of `multiple`, at which
    every source starts and ends. `margin`: width that is read around a piece, rounded up to a
    multiple.
    """
    padded = -(-length // multiple) * multiple
    margin = -(-margin // multiple) * multiple
    pieces = []
    for start in range(0, length, edge):
        stop = min(start + edge, length)
        first = max(start - margin, 0)
        last = min(-(-stop // multiple) * multiple + margin, padded)
        pieces.append((slice(first, last), slice(start - first, stop - first), slice(start, stop)))
    return pieces


def shift(part: slice, start: int) -> slice:
    """Return a range along an axis, counted from `start`."""
    return slice(part.start - start, part.stop - start)
