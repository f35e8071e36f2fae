"""Prediction in tiles without seams.

Every tile is read with a margin as wide as the receptive field, and only its core is kept; at the
border of the image a tile ends with the image. So each output pixel is computed from the same input
as in one piece.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from hushpore.denoising.model import Architecture
from hushpore.denoising.settings import MULTIPLE
from hushpore.denoising.training.step import channels_last, mixed_precision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.denoising.images import Images

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
