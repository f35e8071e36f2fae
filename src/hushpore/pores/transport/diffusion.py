"""Steady diffusion in the voxels of a phase, by conjugate gradients without a stored matrix.

Finite volumes of one voxel each: the flow between two neighbours is their difference in
concentration times the harmonic mean of their conductivities, and the faces of fixed concentration
lie half a voxel outside the first and last voxels. Neighbours differ in the colour of the
checkerboard, so that one colour is eliminated exactly and conjugate gradients solve for the other.
They are preconditioned by the diagonal plus an additive correction on a coarse grid, one unknown
for each part of `hushpore.pores.transport.parts`, whose matrix is factorised once.

Voxels of a colour are stored without those outside, row by row, as runs of one phase. Half a row,
``k = x // 2``, has the same places in the rows beside it, so that neighbours are stretches of
memory that overlap.

The conductance follows from the dissipated energy, whose error is the square of that of the
concentrations; conjugate gradients lower it in each step by a known amount.

References
----------
O. Axelsson (1994), "Iterative Solution Methods", chapters 9 and 11, Cambridge University Press.
https://doi.org/10.1017/CBO9780511624100

S. Cooper, A. Bertei, P. Shearing, J. Kilner and N. Brandon (2016), "TauFactor: An open-source
application for calculating tortuosity factors from tomographic data", SoftwareX 5, 203-210.
https://doi.org/10.1016/j.softx.2016.09.002
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.flow import NotSolvedError
from hushpore.pores.parallel import inlined, kernel
from hushpore.pores.transport.parts import spanning_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Int64s, Mask, UInt8s
    from hushpore.pores.engine import Pass
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.transport.parts import Parts

#: Peak bytes of a voxel that conducts, and of any voxel of the volume, beside the phases.
BYTES_A_VOID_VOXEL, BYTES_A_VOXEL = 20, 8

#: The conductance is found when the last `_WINDOW` steps lowered it by less than this share.
_TOLERANCE, _WINDOW = 1e-4, 5

#: Steps that conductances are rounded to, relative to the highest, so that 8 add up in 24 bits.
_LEVELS = 1 << 20

#: Most steps.
_STEPS = 5000


class Diffusion(NamedTuple):
    """Steady diffusion along one axis.

    `conductivity`: effective conductivity of the volume, in the unit of those of the phases.
    `flux`: (z, y, x), float32: magnitude of the flux over the mean flux along the axis, 0 where
    nothing flows. `profile`: (slices along the axis,), float64: mean concentration of the
    conducting voxels, between 1 at the first face and 0 at the last.
    `iterations`: steps of conjugate gradients. `residual`: over the right side.
    """

    conductivity: float
    flux: Float32s
    profile: Float64s
    iterations: int
    residual: float


class _Colour(NamedTuple):
    """The voxels of one colour, as runs of one phase in half rows.

    `row`: (rows + 1,), int64: first run of each row. `begin`: (runs,), int32: first k of a run.
    `at`: (runs + 1,), int64: its first voxel among all. `phase`: (runs,), uint8.
    """

    row: Int64s
    begin: Int32s
    at: Int64s
    phase: UInt8s


class _Grid:
    """The system of equations of conducting voxels; transport is along the first axis."""

    def __init__(
        self,
        phase: UInt8s,
        conductivity: Float64s,
        of_axes: tuple[float, ...],
        parts: Parts,
        threads: KernelThreads,
        periodic: bool,
    ) -> None:
        self.shape, self._periodic, self._threads = phase.shape, periodic, threads
        # harmonic means; phases without conductivity have none
        pairs = conductivity[:, None] + conductivity
        products = 2 * np.outer(conductivity, conductivity)
        weights = np.divide(products, pairs, out=np.zeros_like(pairs), where=pairs > 0)
        table = np.array(of_axes)[:, None, None] * weights
        # relative to the highest
        conductivity, table = conductivity / table.max(), _exact(table / table.max())
        self._weights = table.astype(np.float32)
        self.colours = [_colour_of(phase, colour, threads) for colour in (0, 1)]
        self.slices = [colour.at[colour.row[:: self.shape[1]]] for colour in self.colours]
        inlets, outlets = zip(*(self._at_faces(colour, conductivity) for colour in (0, 1)),
                              strict=True)  # fmt: skip
        diagonals = []
        for colour in (0, 1):
            ones = np.ones(self.slices[1 - colour][-1], np.float32)
            diagonal = self._gather(colour, ones, np.empty(self.slices[colour][-1], np.float32))
            diagonal[: inlets[colour].size] += inlets[colour]
            diagonal[diagonal.size - outlets[colour].size :] += outlets[colour]
            diagonals.append(diagonal)
        self._of_red, self.diagonal = diagonals
        self._red = np.zeros_like(self._of_red)
        self._red[: inlets[0].size] = inlets[0]
        self._red /= self._of_red
        # right side, and the energy of concentration 0
        self.right = self._gather(1, self._red, np.empty_like(self.diagonal))
        self.right[: inlets[1].size] += inlets[1]
        self.energy_of_zero = sum(float(each.sum(dtype=np.float64)) for each in inlets)
        self.energy_of_zero -= _dot(inlets[0], self._red[: inlets[0].size])
        self.inlet_red = self._red[: inlets[0].size].copy()
        self.part = np.empty(self.diagonal.size, np.int32)
        for z, own in enumerate(self._voxels(1)):
            number = parts.in_slice(z)
            self.part[own] = number[_is_colour(1, z, number.shape) & (number >= 0)]
        matrix = parts.matrix(phase, table, periodic).tocsc()
        faces = np.zeros(parts.used)
        for z in (0, self.shape[0] - 1):
            number = parts.in_slice(z)
            is_used = number >= 0
            link = _exact(2 * conductivity)[phase[z][is_used]]
            faces += np.bincount(number[is_used], link, parts.used)
        matrix.setdiag(matrix.diagonal() + faces)
        self._coarse = _factorised(matrix)

    def _voxels(self, colour: int) -> list[slice]:
        """Return where the voxels of a colour in each slice are among all."""
        bounds = self.slices[colour]
        return [slice(low, high) for low, high in pairwise(bounds)]

    def _at_faces(self, colour: int, conductivity: Float64s) -> tuple[Float32s, Float32s]:
        """Return the conductance to the first and last face of the voxels of a colour there."""
        runs, height = self.colours[colour], self.shape[1]
        found = []
        for own in (slice(0, runs.row[height]), slice(runs.row[-1 - height], runs.row[-1])):
            length = np.diff(runs.at[own.start : own.stop + 1])
            link = _exact(2 * conductivity).astype(np.float32)
            found.append(link[np.repeat(runs.phase[own], length)])
        return found[0], found[1]

    def _gather(self, colour: int, values: Float32s, out: Float32s) -> Float32s:
        """Sum the values of the other colour around each voxel of one, times the conductances."""
        own, other = self.colours[colour], self.colours[1 - colour]
        how = values, out, self._weights, self.shape, colour, self._periodic
        self._threads.over(self.shape[0], _gather, *own, *other, *how)
        return out

    def times(self, values: Float32s, out: Float32s) -> Float32s:
        """Multiply the Schur complement by a vector."""
        red = self._gather(0, values, self._red)
        red /= self._of_red
        self._gather(1, red, out)
        np.subtract(self.diagonal * values, out, out=out)
        return out

    def corrected(self, residual: Float32s) -> Float32s:
        """Return the correction on the coarse grid, for each part."""
        sums = np.bincount(self.part, residual, self._coarse.shape[0])
        found: Float32s = self._coarse.solve(sums).astype(np.float32)
        return found

    def field(self, values: Float32s) -> Float32s:
        """Return the concentration of all voxels, (z, y, x); -1 outside."""
        red = self._gather(0, values, self._red)
        red /= self._of_red
        red[: self.inlet_red.size] += self.inlet_red
        field = np.full(self.shape, np.float32(-1))
        for colour, own in enumerate((red, values)):
            runs = self.colours[colour]
            _scatter(*runs, own, field, colour)
        return field


def solve_diffusion(
    phase: UInt8s,
    conductivity: Sequence[float],
    spacing: Sequence[float],
    axis: int,
    threads: KernelThreads,
    *,
    periodic: bool = False,
) -> Pass[Diffusion | None]:
    """Solve steady diffusion along an axis.

    `phase`: (z, y, x), uint8; 0 does not conduct. `conductivity`: of each phase, from phase 0 on; 0
    for one that does not conduct either. `spacing`: edges of a voxel. `periodic`: whether the other
    sides are periodic instead of closed.
    Yields: about the completed fraction, after each step.
    Returns: None if nothing spans the axis.
    Raises NotSolvedError without convergence.
    """
    of_phase = np.asarray(conductivity, np.float64)
    phase = np.moveaxis(phase, axis, 0)
    cross = phase.shape[1:]
    if periodic:
        # two colours alternate around an even number of voxels only
        phase = np.tile(phase, (1, *(1 + each % 2 for each in cross)))
    phase = np.array(phase, order="C")
    steps = np.array([spacing[axis], *(each for i, each in enumerate(spacing) if i != axis)])
    of_axes = tuple(float(each) for each in (steps[0] / steps) ** 2)
    inside = of_phase[phase] > 0
    parts = spanning_parts(inside, threads, periodic=periodic)
    if parts is None:
        return None
    for z, plane in enumerate(phase):
        plane[parts.in_slice(z) < 0] = 0
    del inside
    yield 0.0
    grid = _Grid(phase, of_phase, of_axes, parts, threads, periodic)
    del parts
    found, iterations, residual = yield from _solve(grid)
    field = grid.field(found)
    del grid, found
    flux, energy = np.empty(field.shape, np.float32), np.empty(len(field))
    lengths = (steps[0] / steps).astype(np.float64)
    threads.over(len(field), _flux, field, phase, of_phase, lengths, periodic, flux, energy)
    mean = float(energy.sum()) / math.prod(field.shape[1:])
    profile = np.array([plane[plane >= 0].mean(dtype=np.float64) for plane in field])
    del field
    flux = flux[:, : cross[0], : cross[1]]
    flux /= np.float32(mean)
    flux = np.ascontiguousarray(np.moveaxis(flux, 0, axis))
    return Diffusion(mean * profile.size, flux, profile, iterations, residual)


def _solve(grid: _Grid) -> Pass[tuple[Float32s, int, float]]:
    """Return the concentrations of one colour, the number of steps, and the residual."""
    depth = grid.shape[0]
    line = (1 - (np.arange(depth) + 0.5) / depth).astype(np.float32)
    x = np.repeat(line, np.diff(grid.slices[1]))
    q = np.empty_like(x)
    r = grid.right - grid.times(x, q)
    x += grid.corrected(r)[grid.part]
    np.subtract(grid.right, grid.times(x, q), out=r)
    energy = grid.energy_of_zero - _dot(x, grid.right) - _dot(x, r)
    size = math.sqrt(_dot(grid.right, grid.right))
    p, rz = np.zeros_like(x), 1.0
    gains: list[float] = []
    for step in range(_STEPS):
        np.divide(r, grid.diagonal, out=q)
        q += grid.corrected(r)[grid.part]
        before, rz = rz, _dot(r, q)
        if rz <= 0:
            break
        p *= np.float32(rz / before if step else 0)
        p += q
        grid.times(p, q)
        alpha = rz / _dot(p, q)
        gains.append(alpha * rz)
        energy -= gains[-1]
        q *= np.float32(alpha)
        r -= q
        np.multiply(p, np.float32(alpha), out=q)
        x += q
        lately = sum(gains[-_WINDOW:])
        if lately < _TOLERANCE * energy and len(gains) >= _WINDOW:
            break
        yield min(1.0, max(0.0, math.log(lately / energy) / math.log(_TOLERANCE)))
    else:
        raise NotSolvedError(f"Diffusion did not converge in {_STEPS} steps.")
    return x, len(gains), math.sqrt(_dot(r, r)) / size


def _exact(weights: Float64s) -> Float64s:
    """Round conductances so that float32 sums of those around a voxel are exact.

    Otherwise the rounded sums are the same everywhere, and act as a sink in all voxels.
    """
    found: Float64s = np.rint(weights * _LEVELS) / _LEVELS
    return found


def _factorised(matrix: Any) -> Any:
    """Factorise a symmetric positive definite matrix."""
    from scipy.sparse.linalg import splu

    order = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
    return splu(matrix, **order, options={"SymmetricMode": True})


def _is_colour(colour: int, z: int, shape: tuple[int, ...]) -> Mask:
    """Return which voxels of a slice have a colour."""
    y, x = np.ogrid[: shape[0], : shape[1]]
    found: Mask = (y + x + z) % 2 == colour
    return found


def _colour_of(phase: UInt8s, colour: int, threads: KernelThreads) -> _Colour:
    """Return the voxels of one colour."""
    rows = phase.shape[0] * phase.shape[1]
    row, voxels = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.int64)
    threads.over(rows, _count_runs, phase, colour, row[1:], voxels[1:], smallest=256)
    np.cumsum(row, out=row)
    np.cumsum(voxels, out=voxels)
    runs = _Colour(
        row,
        np.empty(row[-1], np.int32),
        np.full(row[-1] + 1, voxels[-1]),
        np.empty(row[-1], np.uint8),
    )
    threads.over(rows, _find_runs, phase, colour, voxels, *runs, smallest=256)
    return runs


@kernel
def _count_runs(
    phase: UInt8s, colour: int, runs: Int64s, voxels: Int64s, first: int, last: int
) -> None:
    """Count the runs and voxels of one colour in a range of rows."""
    height = phase.shape[1]
    for row in range(first, last):
        z, y = divmod(row, height)
        before, count, held = 0, 0, 0
        for x in range((colour + z + y) & 1, phase.shape[2], 2):
            here = phase[z, y, x]
            count += int(here not in (0, before))
            held += int(here != 0)
            before = here
        runs[row], voxels[row] = count, held


@kernel
def _find_runs(
    phase: UInt8s,
    colour: int,
    voxels: Int64s,
    row_start: Int64s,
    begin: Int32s,
    at: Int64s,
    phase_of: UInt8s,
    first: int,
    last: int,
) -> None:
    """Write the runs of one colour in a range of rows."""
    height = phase.shape[1]
    for row in range(first, last):
        z, y = divmod(row, height)
        before, run, voxel = 0, row_start[row] - 1, voxels[row]
        for x in range((colour + z + y) & 1, phase.shape[2], 2):
            here = phase[z, y, x]
            if here not in (0, before):
                run += 1
                begin[run], at[run], phase_of[run] = x >> 1, voxel, here
            voxel += int(here != 0)
            before = here


@inlined
def _row_beside(way: int, z: int, y: int, depth: int, height: int, periodic: bool) -> int:
    """Return the row before or after one along z (ways 0 and 1) or y (2 and 3); -1 outside."""
    to_z = z + (2 * way - 1 if way < 2 else 0)
    to_y = y + (2 * way - 5 if way >= 2 else 0)
    is_out = to_z < 0 or to_z == depth or (not periodic and (to_y < 0 or to_y == height))
    return -1 if is_out else to_z * height + to_y % height


@kernel
def _gather(
    row_start: Int64s,
    begin: Int32s,
    at: Int64s,
    phase: UInt8s,
    other_row: Int64s,
    other_begin: Int32s,
    other_at: Int64s,
    other_phase: UInt8s,
    values: Float32s,
    out: Float32s,
    weights: Float32s,
    shape: tuple[int, int, int],
    colour: int,
    periodic: bool,
    first: int,
    last: int,
) -> None:
    """Sum the values around voxels of one colour, in a range of slices."""
    depth, height, width = shape
    for row in range(first * height, last * height):
        start, stop = row_start[row], row_start[row + 1]
        for i in range(at[start], at[stop]):
            out[i] = 0
        z, y = divmod(row, height)
        is_odd = (colour + z + y) & 1
        for way in range(7):
            near, shift = row, 0
            if way < 4:
                near = _row_beside(way, z, y, depth, height, periodic)
            elif way == 5:
                shift = 1 - 2 * is_odd
            elif way == 6:
                near = row if periodic else -1
                shift = (width // 2 - 1) * (2 * is_odd - 1)
            if near < 0:
                continue
            of_axis = weights[min(way >> 1, 2)]
            i, j, end = start, other_row[near], other_row[near + 1]
            while i < stop and j < end:
                low, other_low = begin[i], other_begin[j] + shift
                high, other_high = (
                    low + at[i + 1] - at[i],
                    other_low + other_at[j + 1] - other_at[j],
                )
                inner, outer = max(low, other_low), min(high, other_high)
                if inner < outer:
                    weight = of_axis[phase[i], other_phase[j]]
                    to, source = at[i] + inner - low, other_at[j] + inner - other_low
                    for n in range(outer - inner):
                        out[to + n] += weight * values[source + n]
                if high < other_high:
                    i += 1
                else:
                    j += 1


@kernel
def _dot(a: Float32s, b: Float32s) -> float:
    """Return a product of vectors, summed in float64."""
    found = 0.0
    for i in range(a.size):
        found += np.float64(a[i]) * np.float64(b[i])
    return found


@kernel
def _scatter(
    row_start: Int64s,
    begin: Int32s,
    at: Int64s,
    phase: UInt8s,
    values: Float32s,
    field: Float32s,
    colour: int,
) -> None:
    """Write the values of one colour into a field, (z, y, x)."""
    height = field.shape[1]
    for row in range(field.shape[0] * height):
        z, y = divmod(row, height)
        is_odd = (colour + z + y) & 1
        for run in range(row_start[row], row_start[row + 1]):
            for n in range(at[run + 1] - at[run]):
                field[z, y, 2 * (begin[run] + n) + is_odd] = values[at[run] + n]


@kernel
def _flux(
    field: Float32s,
    phase: UInt8s,
    conductivity: Float64s,
    lengths: Float64s,
    periodic: bool,
    flux: Float32s,
    energy: Float64s,
    first: int,
    last: int,
) -> None:
    """Write the magnitude of the flux, and the energy dissipated in each of a range of slices.

    `lengths`: edge of a voxel along the first axis over that along each. Along each axis the flux
    is the mean of those through the two faces of a voxel.
    """
    depth, height, width = field.shape
    energy[first:last] = 0
    for row in range(first * height, last * height):
        z, y = divmod(row, height)
        for x in range(width):
            square, both = 0.0, 0.0
            here, own = np.float64(field[z, y, x]), conductivity[phase[z, y, x]]
            for way in range(6 if here >= 0 else 0):
                axis, step = way >> 1, 2 * (way & 1) - 1
                to_z = z + (step if axis == 0 else 0)
                to_y = y + (step if axis == 1 else 0)
                to_x = x + (step if axis == 2 else 0)
                is_out = to_y < 0 or to_y == height or to_x < 0 or to_x == width
                weight, share, there = 2 * own, 1.0, 1.0 - max(to_z, 0) / depth
                if 0 <= to_z < depth:
                    to_y, to_x = to_y % height, to_x % width
                    there = np.float64(field[to_z, to_y, to_x])
                    other = conductivity[phase[to_z, to_y, to_x]]
                    is_wall = there < 0 or (is_out and not periodic)
                    share = 0.5
                    weight = 0.0 if is_wall else 2 * own * other / (own + other)
                both = (both if step > 0 else 0.0) + weight * step * (here - there)
                energy[z] += share * weight * ((here - there) * lengths[axis]) ** 2
                square += (both * lengths[axis] / 2) ** 2 if step > 0 else 0.0
            flux[z, y, x] = math.sqrt(square)
