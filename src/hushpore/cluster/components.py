"""Connected components of the void in each slab, joined across the faces between slabs.

The part of a component inside one slab is identified by the index of its first voxel in the slab,
which is the same on GPU and CPU.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.gpu.void import GpuParts
from hushpore.pores.void.components import OPEN, Runs, find_runs, pairs_across

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Int64s, Mask, UInt8s
    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.parallel import KernelThreads

_RUNS = ("row_start", "begin", "end", "part")


class SlabParts(NamedTuple):
    """The connected components of the void in a slab, by the indices of their first voxels."""

    faces: tuple[Runs, Runs]  # components in the first and in the last slice
    marked: Int64s  # marked components
    # components in the first or last slice, sorted: index, voxels, whether marked
    shared: Int64s
    voxels: Int64s
    is_marked: Mask
    totals: tuple[int, int, int]  # number of components, voxels of marked and of other ones


def first_voxels(runs: Runs) -> Int64s:
    """Return the flat index of the first voxel of each component in the slab."""
    first = np.empty(runs.count, np.int64)
    # assigned in reverse order, so that the first run of each component remains
    first[runs.part[::-1]] = np.arange(runs.part.size)[::-1]
    row = np.searchsorted(runs.row_start, first, side="right") - 1
    return row * runs.shape[2] + runs.begin[first]


def parts_of(runs: Runs, marked: Mask) -> SlabParts:
    """Return the components of the runs of a slab, with `marked` for each component."""
    first: Any = first_voxels(runs)
    voxels = np.bincount(runs.part, runs.end - runs.begin, runs.count).astype(np.int64)
    faces = [runs.face(last=last) for last in (False, True)]
    shared = np.unique(np.concatenate([face.part for face in faces]))
    named = [dataclasses.replace(face, part=first[face.part]) for face in faces]
    totals = runs.count, int(voxels[marked].sum()), int(voxels[~marked].sum())
    return SlabParts(
        (named[0], named[1]), first[marked], first[shared], voxels[shared], marked[shared], totals
    )


def parts_on_gpu(
    gpu: Gpu,
    parts: GpuParts,
    on_gpu: Any,
    phase: UInt8s,
    where: tuple[int, int],
    threads: KernelThreads,
) -> SlabParts:
    """Return the components of a slab that were found and marked on a GPU.

    `on_gpu`, `phase`: phase labels on the GPU (overwritten) and on the host. `where`: range of the
    slab's slices in these; the other slices contain no void.
    """
    plane = phase[0].size
    before = where[0] * plane
    voxels, in_slices = parts.measure(before, (where[1] - 1) * plane)
    first, totals = gpu.get_all([in_slices, parts.classify(on_gpu, OPEN, OPEN)])
    shared = np.unique(first[first >= 0]).astype(np.int64)
    faces, counts, is_marked = [], np.zeros(0, np.int32), np.zeros(0, np.uint8)
    for slice_, found in zip((where[0], where[1] - 1), first, strict=True):
        runs = find_runs(phase[slice_ : slice_ + 1], threads)
        row = np.repeat(np.arange(len(found)), np.diff(runs.row_start))
        part: Any = found[row, runs.begin].astype(np.int64) - before
        faces.append(dataclasses.replace(runs, part=part))
    if shared.size:
        at = gpu.put(shared)
        counts, is_marked = gpu.get_all([voxels[at], parts.is_marked[at]])
    marked = np.flatnonzero(gpu.get(parts.is_marked)) - before
    count, of_marked, of_others = (int(each) for each in totals)
    return SlabParts(
        (faces[0], faces[1]),
        marked,
        shared - before,
        counts.astype(np.int64),
        is_marked.astype(np.bool_),
        (count, of_marked, of_others),
    )


def store_parts(blocks: Blocks, slab: int, parts: SlabParts) -> Report:
    """Store the components that touch other slabs; returns those one by one, others as sums."""
    is_met = slab > 0, slab < len(blocks.plan.slabs) - 1
    found = [face for face, is_there in zip(parts.faces, is_met, strict=True) if is_there]
    met = np.unique(np.concatenate([np.zeros(0, np.int64), *(face.part for face in found)]))
    for name, face, is_there in zip(("first", "last"), parts.faces, is_met, strict=True):
        if is_there:
            arrays = {each: getattr(face, each) for each in _RUNS}
            blocks.save(f"face-{name}", slab, **arrays)
    blocks.save("parts", slab, shared=met, marked=parts.marked)
    own = np.searchsorted(parts.shared, met)
    voxels, is_marked = parts.voxels[own], parts.is_marked[own]
    count, of_marked, of_others = parts.totals
    return {
        "shared_voxels": voxels,
        "shared_marked": is_marked,
        "count": count - met.size,
        "marked_voxels": of_marked - int(voxels[is_marked].sum()),
        "other_voxels": of_others - int(voxels[~is_marked].sum()),
    }


def paint_parts(
    blocks: Blocks,
    slab: int,
    phase: UInt8s,
    shared_marked: Mask,
    phases: tuple[int, int],
    gpu: Gpu | None,
) -> None:
    """Write one phase into marked components and another into the rest, in place.

    `shared_marked`: which of the components shared with other slabs are marked.
    """
    shared, marked = blocks.load("parts", slab, "shared", "marked")
    is_marked = np.zeros(phase.size, np.uint8)
    is_marked[marked] = 1
    is_marked[shared] = shared_marked
    if gpu is None:
        runs = find_runs(phase, blocks.threads)
        of_parts = is_marked[first_voxels(runs)].view(np.bool_)
        runs.paint(phase, np.where(of_parts, *phases).astype(np.uint8), blocks.threads)
        return
    on_gpu = gpu.put(phase)
    parts = GpuParts(gpu, on_gpu)
    parts.is_marked = gpu.put(is_marked)
    parts.classify(on_gpu, *phases)
    gpu.get(on_gpu, phase)


def stitch_parts(blocks: Blocks, slab: int) -> Report:
    """Find the pairs of shared components that touch across the face after a slab."""
    height, width = blocks.plan.shape[1:]
    faces = []
    for name, number in (("last", slab), ("first", slab + 1)):
        row_start, begin, end, part = blocks.load(f"face-{name}", number, *_RUNS)
        shared = blocks.load("parts", number, "shared")
        place = np.searchsorted(shared, part).astype(np.int32)
        faces.append(Runs((1, height, width), row_start, begin, end, place, shared.size))
    return {"pairs": pairs_across(*faces)}


class Joined(NamedTuple):
    """The connected components of the void."""

    # per slab, whether each of its shared parts belongs to a marked component
    marked: list[Mask]
    voxels: tuple[int, int]  # voxels of marked and of unmarked components
    components: int  # number of components


def join_shared(reports: Sequence[Report], pairs: Sequence[Report]) -> Joined:
    """Join the shared parts of all slabs by the pairs that touch across each face."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    before = np.cumsum([0, *(each["shared_voxels"].size for each in reports)])
    size = int(before[-1])
    ends = [np.zeros((0, 2), np.int64)]
    ends += [each["pairs"] + before[slab : slab + 2] for slab, each in enumerate(pairs)]
    first, second = np.concatenate(ends).T
    count, component = 0, np.zeros(0, np.int32)
    if size:
        touching = coo_array((np.ones(first.size, np.bool_), (first, second)), (size, size))
        count, component = connected_components(touching, directed=False)
    marked = np.zeros(count, np.bool_)
    marked[component[np.concatenate([each["shared_marked"] for each in reports])]] = True
    own = marked[component]
    voxels = np.concatenate([each["shared_voxels"] for each in reports])
    alone = [sum(int(each[name]) for each in reports) for name in ("marked_voxels", "other_voxels")]
    return Joined(
        np.split(own, before[1:-1]),
        (alone[0] + int(voxels[own].sum()), alone[1] + int(voxels[~own].sum())),
        count + sum(int(each["count"]) for each in reports),
    )
