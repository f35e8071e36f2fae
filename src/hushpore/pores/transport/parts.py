"""Connected parts of a phase within small blocks: what spans a volume, and the coarse grid.

A phase is cut into blocks, and what is connected within a block is a part. The graph of these parts
shows which components reach from face to face, and each part is one unknown of the coarse grid
of a solver (unsmoothed aggregation). Many parts are in turn joined to parts of larger blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from scipy import sparse

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Int64s, Mask, UInt8s
    from hushpore.pores.parallel import KernelThreads

#: Edge of a block in voxels. With 8 the parts of a block that reach its surface, at most 148, are
#: numbered in a byte; with 16, conjugate gradients take 2.5 times as many iterations.
EDGE = 8

#: Most parts whose equations are solved by elimination, whose memory grows with their square.
_DIRECT = 10_000

#: On more: residual that conjugate gradients reach, most steps, and damping of Jacobi's iteration.
_TOLERANCE, _STEPS, _DAMPING = 0.1, 50, 0.6

#: Values that are summed at once.
_CHUNK = 2**15


class Parts(NamedTuple):
    """The connected parts of a phase within blocks, and which of them are used.

    `local`: (z, y, x), uint8: number of a voxel's part in its block, from 1; 0 outside the phase,
    and in parts that do not reach the surface of their block. `first`: (blocks along z, y, x),
    int32: number of parts in earlier blocks. `number`: (parts,), int32: number of each part among
    those used, from 0; -1 for others. `used`: number of parts used.
    """

    local: UInt8s
    first: Int32s
    number: Int32s
    used: int

    @property
    def block(self) -> Int64s:
        """(used, 3): block of each part used, along z, y, x."""
        counts = np.diff(self.first.reshape(-1), append=self.number.size)
        block = np.repeat(np.arange(counts.size), counts)[self.number >= 0]
        return np.stack(np.unravel_index(block, self.first.shape), axis=1)

    def at(self, where: tuple[slice, ...]) -> Int32s:
        """Return the number of the part of each voxel in an array of voxels; -1 outside."""
        local = self.local[where]
        found = np.full(local.shape, np.int32(-1))
        inside = np.nonzero(local)
        places = zip(where, inside, strict=True)
        block = tuple(((own.start or 0) + at) // EDGE for own, at in places)
        found[inside] = self.number[self.first[block] + local[inside] - 1]
        return found

    def in_slice(self, z: int) -> Int32s:
        """Return the number of the part of each voxel in a slice, (y, x); -1 outside."""
        found: Int32s = self.at((slice(z, z + 1), slice(None), slice(None)))[0]
        return found

    def matrix(self, phase: UInt8s, weights: Float64s, periodic: bool) -> sparse.csr_array:
        """Return the Galerkin matrix of conduction between parts, without fixed concentrations.

        `phase`: (z, y, x), uint8: phase of each voxel. `weights`: (3, phases, phases): conductance
        between neighbours of two phases along each axis. `periodic`: whether opposite faces along y
        and x are connected.
        """
        from scipy import sparse

        graph, all_of = sparse.csr_array((self.used, self.used)), (slice(None),) * 3
        for axis, of_axis in enumerate(weights):
            for low, high in _pairs_of_planes(self.local.shape[axis], periodic and axis > 0):
                a, b = ((*all_of[:axis], each, *all_of[axis + 1 :]) for each in (low, high))
                own, other = self.at(a), self.at(b)
                both = (own >= 0) & (other >= 0)
                links = of_axis[phase[a][both], phase[b][both]], (own[both], other[both])
                # one by one, because each pair of parts has many links
                graph = graph + sparse.coo_array(links, graph.shape).tocsr()
        graph = graph + graph.T
        diagonal = sparse.dia_array((graph.sum(axis=1)[None], [0]), graph.shape)
        return (diagonal - graph).tocsr()


class Coarse:
    """The inverse of a matrix of conduction between parts; of many parts about.

    `matrix`: symmetric and positive definite. `block`: (parts, 3): block of each part.
    """

    def __init__(self, matrix: sparse.csr_array, block: Int64s) -> None:
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components
        from scipy.sparse.linalg import splu

        self.size = matrix.shape[0]
        self._coarser: Coarse | None = None
        if self.size <= _DIRECT:
            order = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
            self._eliminate = splu(matrix.tocsc(), **order, options={"SymmetricMode": True}).solve
            return
        links, larger = matrix.tocoo(), block // 2
        is_within = (larger[links.row] == larger[links.col]).all(axis=1)
        graph = links.data * is_within, (links.row, links.col)
        graph = sparse.coo_array(graph, links.shape).tocsr()
        graph.eliminate_zeros()
        count, self._within = connected_components(graph, directed=False)
        ones = np.ones(self.size), (self._within, np.arange(self.size))
        gather = sparse.coo_array(ones, (count, self.size)).tocsr()
        blocks = np.empty((count, 3), block.dtype)
        blocks[self._within] = larger
        self._matrix, self._damped = matrix, _DAMPING / matrix.diagonal()
        # a potential falls over twice the distance
        self._coarser = Coarse(gather @ matrix @ gather.T / 2, blocks)

    def solve(self, sources: Float64s) -> Float64s:
        """Return the potential of each part for sources in each, (parts,)."""
        if self._coarser is None:
            return self._cycle(sources)
        # not SciPy's, whose sums wait for the threads of BLAS
        left, found, way, slope = sources.copy(), np.zeros_like(sources), 0 * sources, 1.0
        enough = _TOLERANCE**2 * (sources * sources).sum()
        for _ in range(_STEPS):
            if (left * left).sum() <= enough:
                break
            guess = self._cycle(left)
            before, slope = slope, float((left * guess).sum())
            way = guess + slope / before * way
            ahead = self._matrix @ way
            step = slope / float((way * ahead).sum())
            found += step * way
            left -= step * ahead
        return found

    def _cycle(self, sources: Float64s) -> Float64s:
        """Return the potential of each part, about: by one correction by larger parts."""
        if self._coarser is None:
            found: Float64s = self._eliminate(sources)
            return found
        potential: Float64s = self._damped * sources
        potential += self._damped * (sources - self._matrix @ potential)
        left = np.bincount(self._within, sources - self._matrix @ potential).astype(np.float64)
        potential += self._coarser._cycle(left)[self._within]
        for _ in range(2):
            potential += self._damped * (sources - self._matrix @ potential)
        return potential


def _pairs_of_planes(size: int, periodic: bool) -> list[tuple[slice, slice]]:
    """Return the planes on both sides of the faces between blocks along an axis."""
    pairs = [(slice(at - 1, at), slice(at, at + 1)) for at in range(EDGE, size, EDGE)]
    if periodic and size > 1:
        pairs.append((slice(size - 1, size), slice(0, 1)))
    return pairs


def spanning_parts(inside: Mask, threads: KernelThreads, *, periodic: bool = False) -> Parts | None:
    """Find the parts of a phase that connect its first slice with its last; None without any.

    `inside`: (z, y, x), bool, C order: the phase. `periodic`: whether opposite faces along y and x
    are connected.
    """
    from scipy.sparse.csgraph import connected_components

    shape = tuple(-(-size // EDGE) for size in inside.shape)
    local = np.zeros(inside.shape, np.uint8)
    counts = np.zeros(shape, np.int32)
    threads.over(shape[0], _find_parts, inside, local, counts)
    total = int(counts.sum())
    first = np.cumsum(counts, dtype=np.int32).reshape(shape) - counts
    parts = Parts(local, first, np.arange(total, dtype=np.int32), total)
    graph = parts.matrix(inside.view(np.uint8), np.ones((3, 2, 2)), periodic)
    component = connected_components(graph, directed=False)[1] if total else np.zeros(0, np.int32)
    ends = [parts.in_slice(z) for z in (0, len(inside) - 1)]
    low, high = (component[end[end >= 0]] for end in ends)
    is_used = np.isin(component, np.intersect1d(low, high))
    if not is_used.any():
        return None
    number = np.where(is_used, np.cumsum(is_used) - 1, -1).astype(np.int32)
    return parts._replace(number=number, used=int(is_used.sum()))


@kernel
def _find_parts(inside: Mask, local: UInt8s, counts: Int32s, first: int, last: int) -> None:
    """Number the parts of each block in a range of layers of blocks, from 1.

    Parts that do not reach the surface of their block are isolated and get 0.
    """
    _, rows, columns = counts.shape
    stack = np.empty((EDGE**3, 3), np.int32)
    near = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])
    low, high = np.empty(3, np.int64), np.empty(3, np.int64)
    for block in range(first * rows * columns, last * rows * columns):
        low[0], low[1] = block // columns // rows * EDGE, block // columns % rows * EDGE
        low[2] = block % columns * EDGE
        for c in range(3):
            high[c] = min(low[c] + EDGE, inside.shape[c])
        count = 0
        for z in range(low[0], high[0]):
            for y in range(low[1], high[1]):
                for x in range(low[2], high[2]):
                    is_surface = z in (low[0], high[0] - 1) or y in (low[1], high[1] - 1)
                    is_surface |= x in (low[2], high[2] - 1)
                    if not (is_surface and inside[z, y, x]) or local[z, y, x]:
                        continue
                    count += 1
                    local[z, y, x] = count
                    stack[0] = z, y, x
                    size = 1
                    while size:
                        size -= 1
                        at_z, at_y, at_x = stack[size]
                        for step in near:
                            to_z, to_y, to_x = at_z + step[0], at_y + step[1], at_x + step[2]
                            is_in = low[0] <= to_z < high[0] and low[1] <= to_y < high[1]
                            if not (is_in and low[2] <= to_x < high[2]):
                                continue
                            if inside[to_z, to_y, to_x] and not local[to_z, to_y, to_x]:
                                local[to_z, to_y, to_x] = count
                                stack[size] = to_z, to_y, to_x
                                size += 1
        counts[low[0] // EDGE, low[1] // EDGE, low[2] // EDGE] = count


def dot(a: Float32s, b: Float32s, threads: KernelThreads) -> float:
    """Return a product of arrays, summed in float64; the same for any number of threads."""
    sums = np.empty(-(-a.size // _CHUNK))
    threads.over(sums.size, _dot, a.reshape(-1), b.reshape(-1), sums)
    return float(sums.sum())


@kernel
def _dot(a: Float32s, b: Float32s, sums: Float64s, first: int, last: int) -> None:
    """Write the products of some chunks of two vectors."""
    for chunk in range(first, last):
        total = 0.0
        for i in range(chunk * _CHUNK, min(chunk * _CHUNK + _CHUNK, a.size)):
            total += np.float64(a[i]) * np.float64(b[i])
        sums[chunk] = total
