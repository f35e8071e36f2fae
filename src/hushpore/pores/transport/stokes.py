"""Slow flow of a liquid through the voxels of the void: Stokes' equations on a staggered grid.

Pressures lie at voxel centres, velocities on the faces between two void voxels. A layer of voxels
of given pressure is added before the first slice and after the last one, which repeats them; the
liquid sticks to the solid and to the other sides of the volume.

Pores of rock are a few voxels wide. The usual friction at a wall, of a velocity that falls to 0
over half a voxel, makes a slit of one voxel 50 % too permeable, and a square duct 3.5 times. Here
it depends on the number of faces side by side in both directions across the flow, so that the
permeability of slits is exact and that of rectangular ducts right within 1.5 %. A round wall, which
is a staircase of voxels, has less. Where the solid has a step, half of a face has a wall beside it.

The system is symmetric and indefinite, and is solved by MINRES. Its preconditioner smooths the
velocities by Chebyshev polynomials, and takes the pressures from a network of the connected parts
of the void in small blocks, with the conductances of rectangular ducts. Only void voxels are
stored, as a list with the places of their six neighbours.

References
----------
F. H. Harlow and J. E. Welch (1965), "Numerical calculation of time-dependent viscous incompressible
flow of fluid with free surface", Physics of Fluids 8, 2182-2189. https://doi.org/10.1063/1.1761178

C. C. Paige and M. A. Saunders (1975), "Solution of sparse indefinite systems of linear equations",
SIAM Journal on Numerical Analysis 12, 617-629. https://doi.org/10.1137/0712047

D. Silvester and A. Wathen (1994), "Fast iterative solution of stabilised Stokes systems. Part II:
using general block preconditioners", SIAM Journal on Numerical Analysis 31, 1352-1367.
https://doi.org/10.1137/0731070
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.flow import NotSolvedError
from hushpore.pores.parallel import inlined, kernel
from hushpore.pores.transport.parts import Coarse, dot, spanning_parts
from hushpore.pores.transport.result import Solution

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Int64s, Mask
    from hushpore.pores.engine import Pass
    from hushpore.pores.parallel import KernelThreads

#: Peak memory beside the mask, in bytes: of a void voxel, and of a voxel of the volume.
BYTES_A_VOID_VOXEL, BYTES_A_VOXEL = 300, 13

#: Eigenvalues of the scaled Laplacian that the smoother of velocities covers: the highest, and the
#: lowest of a duct with a conductance of 1 voxel squared, which falls with the mean conductance
#: within limits; steps of the smoother at the upper limit.
_HIGH, _LOW, _LIMITS, _STEPS = 2.0, 0.14, (0.003, 0.02), 4

#: Edge of the blocks whose parts are the nodes of the network of pressures, in voxels.
_BLOCK = 4

#: Weights of a voxel's own pressure and of the network's conductances, of least iterations on rock.
_OWN, _CONDUCTANCE = 2.0, 0.6

#: Relative change of the permeability at which it is found, iterations between two estimates, the
#: most iterations, and the residual that is usually reached, by which progress is estimated.
_CHANGE, _EVERY, _MOST, _USUAL = 1e-3, 10, 2000, 1e-3

#: Share by which the friction of a wall is higher in a duct than between two walls, times the width
#: of the duct in voxels: that of which ducts of any sides are right within 1.5 %.
_CORNERS = 0.37

#: Share by which it is higher, instead, where the channel is wider one voxel away from the wall, as
#: in tubes: that of which tubes with a radius of 5 to 15 voxels are right within 2 %.
_STAIRS = -0.08

#: Width of a row of faces without an end, where the void is periodic.
_OPEN = 2**15

#: Fewest voxels for a thread.
_CHUNK = 8192


def solve_flow(
    void: Mask,
    spacing: Sequence[float],
    axis: int,
    threads: KernelThreads,
    *,
    periodic: bool = False,
) -> Pass[Solution | None]:
    """Solve Stokes flow along an axis.

    `void`: (z, y, x), bool. `spacing`: edges of a voxel. `periodic`: whether the other sides are
    periodic instead of solid.
    Yields: about the completed fraction, after each step.
    Returns: None if nothing spans the axis; the same for any number of threads.
    Raises NotSolvedError without convergence.
    """
    along = np.ascontiguousarray(np.moveaxis(void, axis, 0))
    parts = spanning_parts(along, threads, periodic=periodic)
    if parts is None:
        return None
    along = np.stack([parts.in_slice(z) >= 0 for z in range(len(along))])
    del parts
    steps = np.array([spacing[axis], *np.delete(spacing, axis)])
    grid = Grid(along, steps[0] / steps, threads, periodic=periodic)
    yield 0.0
    solution, mean, iterations, change = yield from _minres(grid, threads)
    inner = slice(grid.inlet, grid.count - grid.outlet)
    square = np.zeros(grid.count, np.float32)
    for c in range(3):
        square += (solution[:-1, c] + solution[grid.near[:-1, 2 * c], c]) ** 2
    speed = np.zeros(along.shape, np.float32)
    speed[along] = np.sqrt(square[inner]) / np.float32(2 * mean)
    voxels = along.sum(axis=(1, 2))
    starts = np.cumsum(voxels) - voxels
    profile = np.add.reduceat(solution[inner, 3], starts, dtype=np.float64) / voxels
    permeability = float(mean * (len(along) + 1) * steps[0] ** 2)
    speed = np.ascontiguousarray(np.moveaxis(speed, 0, axis))
    return Solution(permeability, speed, profile, iterations, change)


class Grid:
    """The unknowns of a void and what connects them; arrays have an empty last row for the solid.

    `along`: (z, y, x), bool: the void, with the pressure drop along z. `per_length`: voxels along
    each axis in the length of one along z. `periodic`: whether the void goes on behind the other
    sides as it begins at the opposite ones.
    `count`: voxels, of which the first `inlet` and the last `outlet` have a given pressure. `near`:
    (count + 1, 6), int32: neighbours, low and high, along z, y, x; `count` where there is solid.
    `inverse`: (count + 1, 4), float32: inverse of the diagonal of the Laplacian of the velocity
    along z, y, x on the high face of each voxel, 0 without a face; 1 where pressure is unknown.
    `slopes`, `weights`: (3,), float32: of first and second derivatives. `area`: voxels in a
    cross-section of the volume.
    """

    def __init__(
        self, along: Mask, per_length: Float64s, threads: KernelThreads, *, periodic: bool = False
    ) -> None:
        self.slopes = np.array(per_length, np.float32)
        self.weights = self.slopes**2
        self.area = along[0].size
        self.inlet, self.outlet = (int(along[at].sum()) for at in (0, -1))
        ends = self.inlet, self.outlet
        self.padded = np.concatenate([along[:1], along, along[-1:]])
        place = np.flatnonzero(self.padded)
        count = self.count = place.size
        index = np.full(self.padded.shape, count, np.int32)
        index.ravel()[place] = np.arange(count, dtype=np.int32)
        beside: dict[str, Any] = {"mode": "wrap"} if periodic else {"constant_values": count}
        index = np.pad(index, ((0, 0), (1, 1), (1, 1)), **beside)
        index = np.pad(index, ((1, 1), (0, 0), (0, 0)), constant_values=count)
        place = np.flatnonzero(np.pad(self.padded, 1))
        self.near = np.full((count + 1, 6), count, np.int32)
        for c, step in enumerate(each // index.itemsize for each in index.strides):
            self.near[:-1, 2 * c] = index.ravel()[place - step]
            self.near[:-1, 2 * c + 1] = index.ravel()[place + step]
        del index, place
        self.inverse = np.zeros((count + 1, 4), np.float32)
        self.inverse[self.inlet : count - self.outlet, 3] = 1
        has_face = self.near[:, 1::2] < count
        has_face[:, 1:] &= self.inverse[:, 3:] > 0
        self.conductance = np.zeros((count + 1, 3), np.float32)
        for c in range(3):
            runs = np.full((3, count + 1), _OPEN, np.int32)
            for t in {0, 1, 2} - {c}:
                threads.over(count, _find_widths, runs[t], has_face, self.near, c, t)
            out = (self.inverse, self.conductance, has_face, self.near, runs, self.weights)
            threads.over(count, _find_friction, *out, *ends, c)

    def parts(self) -> tuple[Int32s, Int64s]:
        """Number the parts of the void that are connected within blocks.

        Returns: (count,), int32: part of each voxel, from 0, after the last where the pressure is
        given; and (parts, 3): the block of each part.
        """
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        inner = slice(self.inlet, self.count - self.outlet)
        places = np.unravel_index(np.flatnonzero(self.padded)[inner], self.padded.shape)
        block = np.stack([(at // _BLOCK).astype(np.int32) for at in places], axis=1)
        del places
        size = len(block)
        below = self.near[inner, ::2] - self.inlet
        is_linked = (below >= 0) & (below < size)
        for c in range(3):
            is_linked[:, c] &= (block[below[:, c] % size] == block).all(axis=1)
        links = np.nonzero(is_linked)[0].astype(np.int32), below[is_linked]
        graph = sparse.coo_array((np.ones(links[0].size, np.bool_), links), (size, size))
        count, number = connected_components(graph, directed=False)
        part = np.full(self.count, count, np.int32)
        part[inner] = number
        blocks = np.empty((count, 3), np.int64)
        blocks[number] = block
        return part, blocks


class _Preconditioner:
    """An approximate inverse: smoothed velocities, and pressures of a network of parts of the void.

    `part`: (count,), int32: of each voxel of the grid. `count`: parts.
    """

    def __init__(self, grid: Grid) -> None:
        from scipy import sparse

        self.grid = grid
        mean = grid.conductance[grid.conductance > 0].mean(dtype=np.float64)
        self.low = float(np.clip(_LOW / mean, *_LIMITS))
        self.steps = round(_STEPS * math.sqrt(_LIMITS[1] / self.low))
        self.part, blocks = grid.parts()
        self.count = len(blocks)
        pairs, values = [], []
        for c in range(3):
            here = self.part
            there = here[np.minimum(grid.near[:-1, 2 * c + 1], grid.count - 1)]
            links = np.flatnonzero((grid.conductance[:-1, c] > 0) & (here != there))
            pairs.append(np.stack([here[links], there[links]]))
            values.append(_CONDUCTANCE * grid.conductance[links, c])
        size = (self.count + 1,) * 2
        graph = sparse.coo_array(
            (np.concatenate(values), tuple(np.concatenate(pairs, axis=1))), size, np.float64
        ).tocsr()
        graph = graph + graph.T
        # where pressure is given it is 0, without a row of its own
        matrix = (sparse.diags_array(graph.sum(axis=1)) - graph)[:-1, :-1].tocsr()
        self.coarse = Coarse(matrix, blocks)

    def apply(
        self, out: Float32s, before: Float32s, right: Float32s, threads: KernelThreads
    ) -> tuple[Float32s, Float32s]:
        """Precondition a residual into one of two arrays; returns that one and the other."""
        grid = self.grid
        centre, radius = (_HIGH + self.low) / 2, (_HIGH - self.low) / 2
        np.multiply(grid.inverse, right, out=out)
        out *= np.float32(1 / centre)
        before.fill(0)
        rho = radius / centre
        for _ in range(self.steps - 1):
            old, rho = rho, 1 / (2 * centre / radius - rho)
            how = (grid.inverse, grid.near, grid.weights, np.float32(rho * old))
            factor = np.float32(2 * rho / radius)
            threads.over(grid.count, _smooth, out, before, right, *how, factor, smallest=_CHUNK)
            out, before = before, out
        pressure = grid.inverse[:-1, 3] * right[:-1, 3]
        sources: Float64s = np.bincount(self.part, pressure, self.count + 1)[:-1].astype(np.float64)
        found = np.append(self.coarse.solve(sources), 0).astype(np.float32)
        np.multiply(pressure, np.float32(_OWN), out=out[:-1, 3])
        out[:-1, 3] += found[self.part]
        return out, before


def _minres(grid: Grid, threads: KernelThreads) -> Pass[tuple[Float32s, float, int, float]]:
    """Solve for velocities and pressures, (count + 1, 4), float32.

    Returns: them, the mean velocity in the volume, the iterations, and the relative change of that
    velocity in the last of them. Half the difference of its two estimates is of first order in the
    residual, the second one's own error of second order.
    """
    inverse = _Preconditioner(grid)
    shape = grid.inverse.shape

    def over(function: Callable[..., Any], *arguments: Any) -> None:
        threads.over(grid.count, function, *arguments, smallest=_CHUNK)

    def combine(out: Float32s, own: float, a: Float32s, x: float, b: Float32s, y: float) -> None:
        over(_combine, out, np.float32(own), a, np.float32(x), b, np.float32(y))

    def multiply(out: Float32s, x: Float32s) -> None:
        over(_multiply, out, x, grid.inverse, grid.near, grid.weights, grid.slopes)

    last = np.zeros(shape, np.float32)
    last[: grid.inlet, 0] = grid.slopes[0]
    solution, residual, way, old_way, lanczos, spare, work = (
        np.zeros(shape, np.float32) for _ in range(7)
    )
    lanczos, work = inverse.apply(lanczos, work, last, threads)
    first_norm = norm = left = math.sqrt(dot(last, lanczos, threads))
    old_norm = 1.0
    cosine, sine, lower, upper = -1.0, 0.0, 0.0, 0.0
    change, mean = math.inf, 0.0
    for iteration in range(1, _MOST + 1):
        # the next vector of Lanczos' recurrence, over the one before the last
        multiply(work, lanczos)
        combine(residual, -norm / old_norm, work, 1 / norm, last, 0)
        diagonal = dot(lanczos, residual, threads) / norm
        combine(residual, 1, last, -diagonal / norm, work, 0)
        last, residual = residual, last
        spare, work = inverse.apply(spare, work, last, threads)
        old_norm, norm = norm, math.sqrt(max(dot(last, spare, threads), 0.0))
        # rotate it into a triangle
        upper_old, across = upper, cosine * lower + sine * diagonal
        pivot = sine * lower - cosine * diagonal
        upper, lower = sine * norm, -cosine * norm
        size = max(math.hypot(pivot, norm), 1e-30)
        cosine, sine = pivot / size, norm / size
        step, left = cosine * left, sine * left
        combine(old_way, -upper_old / size, lanczos, 1 / (old_norm * size), way, -across / size)
        way, old_way = old_way, way
        combine(solution, 1, way, step, way, 0)
        lanczos, spare = spare, lanczos
        if iteration % _EVERY == 0:
            flow = float(solution[: grid.inlet, 0].sum(dtype=np.float64))
            multiply(work, solution)
            second = 2 * flow - dot(solution, work, threads) / float(grid.slopes[0])
            old, mean = mean, second / grid.area
            change = max(abs(mean - old), abs(flow - second) / grid.area) / abs(mean)
            if mean > 0 and change < _CHANGE:
                return solution, mean, iteration, change
        yield min(0.99, math.log(max(left / first_norm, 1e-30)) / math.log(_USUAL))
    raise NotSolvedError(
        f"The flow did not converge in {_MOST} iterations; the permeability still changed by "
        f"{change:.1%}."
    )


@inlined
def _beside(x: Float32s, near: Int32s, weights: Float32s, i: int, c: int) -> Any:
    """Return the weighted sum of a velocity on the faces around that of a voxel."""
    return (
        weights[0] * (x[near[i, 0], c] + x[near[i, 1], c])
        + weights[1] * (x[near[i, 2], c] + x[near[i, 3], c])
        + weights[2] * (x[near[i, 4], c] + x[near[i, 5], c])
    )


@kernel
def _smooth(
    x: Float32s,
    before: Float32s,
    right: Float32s,
    inverse: Float32s,
    near: Int32s,
    weights: Float32s,
    momentum: float,
    step: float,
    first: int,
    last: int,
) -> None:
    """Do a step of Chebyshev's recurrence for velocities, from `before` and `x`, into `before`."""
    for i in range(first, last):
        for c in range(3):
            if inverse[i, c] > 0:
                now = x[i, c]
                error = inverse[i, c] * (right[i, c] + _beside(x, near, weights, i, c)) - now
                before[i, c] = now + momentum * (now - before[i, c]) + step * error


@kernel
def _multiply(
    out: Float32s,
    x: Float32s,
    inverse: Float32s,
    near: Int32s,
    weights: Float32s,
    slopes: Float32s,
    first: int,
    last: int,
) -> None:
    """Multiply by the matrix: friction and gradient of pressure, and the inflow of each voxel."""
    zero = np.float32(0)
    for i in range(first, last):
        inflow = zero
        for c in range(3):
            inflow += slopes[c] * (x[near[i, 2 * c], c] - x[i, c])
            force = zero
            if inverse[i, c] > 0:
                force = x[i, c] / inverse[i, c] - _beside(x, near, weights, i, c)
                force += slopes[c] * (x[near[i, 2 * c + 1], 3] - x[i, 3])
            out[i, c] = force
        out[i, 3] = inflow * inverse[i, 3]


@kernel
def _combine(
    out: Float32s, own: float, a: Float32s, x: float, b: Float32s, y: float, first: int, last: int
) -> None:
    """Replace `out` by ``own * out + x * a + y * b``."""
    for i in range(first, last):
        for c in range(4):
            out[i, c] = own * out[i, c] + x * a[i, c] + y * b[i, c]


@kernel
def _find_widths(
    widths: Int32s, has_face: Mask, near: Int32s, c: int, t: int, first: int, last: int
) -> None:
    """Write the number of faces across `c` in a row along `t`, for rows that begin in a range."""
    for start in range(first, last):
        if has_face[start, c] and not has_face[near[start, 2 * t], c]:
            count, i = 0, start
            while has_face[i, c]:
                count += 1
                i = near[i, 2 * t + 1]
            i = start
            while has_face[i, c]:
                widths[i] = count
                i = near[i, 2 * t + 1]


@kernel
def _find_friction(
    inverse: Float32s,
    conductance: Float32s,
    has_face: Mask,
    near: Int32s,
    widths: Int32s,
    weights: Float32s,
    inlet: int,
    outlet: int,
    c: int,
    first: int,
    last: int,
) -> None:
    """Write the inverse diagonal and the conductance of the faces across `c`."""
    solid = len(near) - 1
    for i in range(first, last):
        if not has_face[i, c]:
            continue
        j = near[i, 2 * c + 1]
        # the flow enters and leaves without a change along z
        friction = weights[c] * ((c > 0 or i >= inlet) + (c > 0 or j < solid - outlet))
        resistance = 0.0
        widest = 1
        for t in range(3):
            if t != c:
                widest = max(widest, widths[t, i])
                resistance += 12 * weights[t] / widths[t, i] ** 2
        for t in range(3):
            if t == c:
                continue
            width, s = widths[t, i], 3 - c - t
            for side in range(2):
                a, b = near[i, 2 * t + side], near[j, 2 * t + side]
                inner = near[i, 2 * t + 1 - side]
                is_stair = has_face[inner, c] and widths[s, inner] > widths[s, i]
                more = _STAIRS if is_stair else min(_CORNERS / widest, _CORNERS / 2)
                wall = 6 * width / (3 * width - 2) * (1 + more)
                if a == solid and b == solid:
                    friction += weights[t] * wall
                elif solid in (a, b):
                    friction += weights[t] * (wall + 1) / 2
                elif t > 0 or inlet <= a < solid - outlet:
                    friction += weights[t]
        inverse[i, c] = 1 / friction
        conductance[i, c] = weights[c] / resistance
