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
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.flow import NotSolvedError
from hushpore.pores.parallel import inlined, kernel
from hushpore.pores.transport.parts import Coarse, dot, spanning_parts
from hushpore.pores.transport.result import Solution

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Int32s, Int64s, Mask, UInt8s
    from hushpore.pores.engine import Pass
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.transport.parts import Parts

#: Peak bytes of a voxel that conducts, and of any voxel of the volume, beside phases and maps.
BYTES_A_VOID_VOXEL, BYTES_A_VOXEL = 20, 2

#: The same on a GPU, maps included.
GPU_BYTES_A_VOID_VOXEL, GPU_BYTES_A_VOXEL = 90, 16

#: The conductance is found when the last `_WINDOW` steps lowered it by less than this share.
_TOLERANCE, _WINDOW = 1e-4, 5

#: Steps that conductances are rounded to, relative to the highest, so that 8 add up in 24 bits.
_LEVELS = 1 << 20

#: Most steps.
_STEPS = 5000


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
    """The system of equations of conducting voxels; transport is along the first axis.

    `slices`: for each colour, (slices + 1,), int64: first voxel of each slice. `right`, `diagonal`:
    of the equations, which are those of colour 1.
    """

    def __init__(
        self,
        phase: UInt8s,
        conductivity: Float64s,
        of_axes: Float64s,
        parts: Parts,
        threads: KernelThreads,
        periodic: bool,
    ) -> None:
        self.shape, self._periodic, self._threads = phase.shape, periodic, threads
        # harmonic means, relative to the highest; phases without conductivity have none
        pairs = conductivity[:, None] + conductivity
        products = 2 * np.outer(conductivity, conductivity)
        weights = np.divide(products, pairs, out=np.zeros_like(pairs), where=pairs > 0)
        table = of_axes[:, None, None] * weights
        to_face = _exact(2 * conductivity / table.max()).astype(np.float32)
        table = _exact(table / table.max())
        self._weights = table.astype(np.float32)
        is_even = np.indices(phase.shape[1:]).sum(axis=0) % 2 == 0
        self._is_colour = is_even, ~is_even
        self._inside, part, planes = [], [], []
        for z, given in enumerate(phase):
            number = parts.in_slice(z)
            inside = number >= 0
            self._inside.append(np.packbits(inside))
            part.append(number[self._of_colour(1, z, inside)])
            planes.append(self._read(np.where(inside, given, 0), z))
        self._part = self.put(np.concatenate(part))
        del part
        self.slices = self._connect(planes)
        del planes
        faces, ends = np.zeros(parts.used), []
        for z in (0, len(phase) - 1):
            number = parts.in_slice(z)
            inside, link = number >= 0, to_face[phase[z]]
            faces += np.bincount(number[inside], link[inside], parts.used)
            of_colours = [link[self._of_colour(colour, z, inside)] for colour in (0, 1)]
            ends.append([self.put(each) for each in of_colours])
            if z == 0:
                self.energy_of_zero = float(link[inside].sum(dtype=np.float64))
        matrix = parts.matrix(phase, table, periodic)
        matrix.setdiag(matrix.diagonal() + faces)
        self._coarse = Coarse(matrix, parts.block)
        del matrix
        inlet = [self._slice(colour, 0) for colour in (0, 1)]
        diagonals = []
        for colour in (0, 1):
            ones, diagonal = (self.put(np.full(self.slices[each][-1], value, np.float32))
                              for each, value in ((1 - colour, 1), (colour, 0)))  # fmt: skip
            self._add(colour, ones, diagonal)
            diagonal[inlet[colour]] += ends[0][colour]
            diagonal[self._slice(colour, len(phase) - 1)] += ends[1][colour]
            diagonals.append(diagonal)
        self._of_red, self.diagonal = diagonals
        # the other colour where this one is 0, the right side, and the energy of concentration 0
        self._red, self.right = (0 * each for each in diagonals)
        self._inlet_red = ends[0][0] / self._of_red[inlet[0]]
        self._red[inlet[0]] = self._inlet_red
        self._add(1, self._red, self.right)
        self.right[inlet[1]] += ends[0][1]
        self.energy_of_zero -= self.dot(ends[0][0], self._inlet_red)

    def _of_colour(self, colour: int, z: int, inside: Mask) -> Mask:
        """Return which of the voxels inside in a slice have a colour."""
        found: Mask = inside & self._is_colour[(colour + z) % 2]
        return found

    def _slice(self, colour: int, z: int) -> slice:
        """Return where the voxels of a colour in a slice are among all."""
        return slice(*self.slices[colour][z : z + 2])

    def put(self, values: Any) -> Any:
        """Return an array where this grid computes."""
        return values

    get = put

    def _read(self, plane: UInt8s, z: int) -> Any:
        """Return what `_connect` needs of a slice; `plane`: phases, 0 outside."""
        return [_runs_of(plane, (colour + z) % 2) for colour in (0, 1)]

    def _connect(self, planes: list[Any]) -> list[Int64s]:
        """Find what is beside each voxel; returns the first voxel of each slice, by colour."""
        self._runs = [_joined(each) for each in zip(*planes, strict=True)]
        return [each.at[each.row[:: self.shape[1]]] for each in self._runs]

    def _add(self, colour: int, values: Float32s, out: Float32s, sign: int = 1) -> None:
        """Add the values of the other colour around each voxel of one, times the conductances."""
        runs = *self._runs[colour], *self._runs[1 - colour]
        how = values, out, np.float32(sign) * self._weights, self.shape, colour, self._periodic
        self._threads.over(self.shape[0], _add_around, *runs, *how)

    def dot(self, a: Float32s, b: Float32s) -> float:
        """Return a product of vectors, summed in float64."""
        return dot(a, b, self._threads)

    def _fill_red(self, values: Float32s) -> None:
        """Find the other colour from values of this one, with concentrations of 0 at the faces."""
        self._red[:] = 0
        self._add(0, values, self._red)
        self._red /= self._of_red

    def times(self, values: Float32s, out: Float32s) -> None:
        """Multiply the Schur complement by a vector."""
        self._fill_red(values)
        out[:] = values
        out *= self.diagonal
        self._add(1, self._red, out, -1)

    def _sums(self, values: Float32s) -> Float64s:
        """Return the sum of each part."""
        sums = np.zeros(self._coarse.size)
        _add_up(self._part, values, sums)
        return sums

    def add_correction(self, residual: Float32s, out: Float32s) -> None:
        """Add the correction on the coarse grid."""
        found = self._coarse.solve(self._sums(residual)).astype(np.float32)
        out += self.put(found)[self._part]

    def field(self, values: Float32s) -> Float32s:
        """Return the concentration of all voxels, (z, y, x); -1 outside."""
        self._fill_red(values)
        self._red[self._slice(0, 0)] += self._inlet_red
        field = np.full(self.shape, np.float32(-1))
        for z, plane in enumerate(field):
            inside = np.unpackbits(self._inside[z], count=plane.size).reshape(plane.shape) > 0
            for colour, own in enumerate((self._red, values)):
                found = self.get(own[self._slice(colour, z)])
                plane[self._of_colour(colour, z, inside)] = found
        return field


class _GpuGrid(_Grid):
    """The same on a GPU, by PyTorch, with a list of neighbours in place of runs.

    `device`: of PyTorch; the CPU too.
    """

    def __init__(self, *arguments: Any, device: str) -> None:
        self._device = device
        super().__init__(*arguments)

    def put(self, values: Any) -> Any:
        import torch

        return torch.from_numpy(values).to(self._device)

    def get(self, values: Any) -> Any:
        return values.cpu().numpy()

    def _read(self, plane: UInt8s, z: int) -> UInt8s:
        return plane

    def _connect(self, planes: list[UInt8s]) -> list[Int64s]:
        import torch

        phase, table = self.put(np.stack(planes)), self.put(self._weights)
        z, y, x = (torch.arange(size, device=self._device) for size in phase.shape)
        odd = (z[:, None, None] + y[:, None] + x) % 2
        colours = [(phase > 0) & (odd == colour) for colour in (0, 1)]
        del odd
        number = torch.zeros(phase.shape, dtype=torch.int32, device=self._device)
        for own in colours:
            number[own] = torch.arange(int(own.sum()), dtype=torch.int32, device=self._device)
        self._links: list[list[Any]] = [[], []]
        for axis, step in product(range(3), (1, -1)):
            near, other = number.roll(step, axis), phase.roll(step, axis)
            if axis == 0 or not self._periodic:
                other.select(axis, 0 if step > 0 else -1).zero_()
            for own, links in zip(colours, self._links, strict=True):
                here, there = phase[own].long(), other[own].long()
                links.append((near[own] * (there > 0), table[axis][here, there]))
        return [np.append(0, own.sum((1, 2)).cumsum(0).cpu().numpy()) for own in colours]

    def _add(self, colour: int, values: Any, out: Any, sign: int = 1) -> None:
        for near, weight in self._links[colour] if len(values) else ():
            out.addcmul_(values.index_select(0, near), weight, value=sign)

    def dot(self, a: Any, b: Any) -> float:
        return float(a.double() @ b.double())

    def _sums(self, values: Any) -> Float64s:
        sums = self.put(np.zeros(self._coarse.size))
        found: Float64s = sums.index_add_(0, self._part, values.double()).cpu().numpy()
        return found


def solve_diffusion(
    phase: UInt8s,
    conductivity: Sequence[float],
    spacing: Sequence[float],
    axis: int,
    threads: KernelThreads,
    *,
    periodic: bool = False,
    device: str | None = None,
) -> Pass[Solution | None]:
    """Solve steady diffusion along an axis.

    `phase`: (z, y, x), uint8; 0 does not conduct. `conductivity`: of each phase, from phase 0 on; 0
    for one that does not conduct either. `spacing`: edges of a voxel. `periodic`: whether the other
    sides are periodic instead of closed. `device`: of PyTorch, to solve there; by default kernels
    of the CPU do.
    Yields: about the completed fraction, after each step.
    Returns: None if nothing spans the axis.
    Raises NotSolvedError without convergence.
    """
    of_phase = np.asarray(conductivity, np.float64)
    phase = np.moveaxis(phase, axis, 0)
    _, *cross = phase.shape
    if periodic and any(each % 2 for each in cross):
        # two colours alternate around an even number of voxels only
        phase = np.tile(phase, (1, *(1 + each % 2 for each in cross)))
    lengths = spacing[axis] / np.array([spacing[axis], *np.delete(spacing, axis)])
    parts = spanning_parts(np.ascontiguousarray((of_phase > 0)[phase]), threads, periodic=periodic)
    if parts is None:
        return None
    yield 0.0
    make = partial(_GpuGrid, device=device) if device else _Grid
    grid: _Grid = make(phase, of_phase, lengths**2, parts, threads, periodic)
    del parts
    found, iterations, residual = yield from _solve(grid)
    field = grid.field(found)
    del grid, found
    profile = np.array([plane[plane >= 0].mean(dtype=np.float64) for plane in field])
    mean = _to_flux(field, phase, of_phase, lengths, periodic) / math.prod(field.shape[1:])
    field = field[:, : cross[0], : cross[1]]
    field /= np.float32(mean)
    flux = np.ascontiguousarray(np.moveaxis(field, 0, axis))
    return Solution(mean * profile.size, flux, profile, iterations, residual)


def _solve(grid: _Grid) -> Pass[tuple[Float32s, int, float]]:
    """Return the concentrations of one colour, the number of steps, and the residual."""
    depth = grid.shape[0]
    line = (1 - (np.arange(depth) + 0.5) / depth).astype(np.float32)
    x = grid.put(np.repeat(line, np.diff(grid.slices[1])))
    q, r = 0 * x, grid.right
    size = math.sqrt(grid.dot(r, r))
    grid.times(x, q)
    grid.add_correction(r - q, x)
    energy = grid.energy_of_zero - grid.dot(x, r)
    grid.times(x, q)
    r -= q
    energy -= grid.dot(x, r)
    p, rz = 0 * x, 1.0
    gains: list[float] = []
    for step in range(_STEPS):
        q[:] = r
        q /= grid.diagonal
        grid.add_correction(r, q)
        before, rz = rz, grid.dot(r, q)
        if rz <= 0:
            break
        p *= rz / before if step else 0.0
        p += q
        grid.times(p, q)
        alpha = rz / grid.dot(p, q)
        gains.append(alpha * rz)
        energy -= gains[-1]
        q *= alpha
        r -= q
        q[:] = p
        q *= alpha
        x += q
        lately = sum(gains[-_WINDOW:])
        if lately < _TOLERANCE * energy and len(gains) >= _WINDOW:
            break
        yield min(1.0, max(0.0, math.log(lately / energy) / math.log(_TOLERANCE)))
    else:
        raise NotSolvedError(f"Diffusion did not converge in {_STEPS} steps.")
    return x, len(gains), math.sqrt(grid.dot(r, r)) / size


def _exact(weights: Float64s) -> Float64s:
    """Round conductances so that float32 sums of those around a voxel are exact.

    Otherwise the rounded sums are the same everywhere, and act as a sink in all voxels.
    """
    found: Float64s = np.rint(weights * _LEVELS) / _LEVELS
    return found


def _runs_of(plane: UInt8s, odd: int) -> tuple[Int64s, Int32s, Int64s, UInt8s, int]:
    """Return the runs of one colour in a slice; `odd`: the first x of the colour in the first row.

    Returns: the runs in each row; first k, first voxel and phase of each run; and the voxels.
    """
    height, width = plane.shape
    # each half row ends outside
    half = np.zeros((height, width // 2 + 2), np.uint8)
    for way in (0, 1):
        rows = plane[way::2, (way + odd) % 2 :: 2]
        half[way::2, : rows.shape[1]] = rows
    flat = half.ravel()
    runs = np.flatnonzero((flat > 0) & (flat != np.roll(flat, 1)))
    count = np.cumsum(flat > 0)
    row, begin = np.divmod(runs, half.shape[1])
    of_rows = np.bincount(row, minlength=height)
    return of_rows, begin.astype(np.int32), count[runs] - 1, flat[runs], int(count[-1])


def _joined(slices: Iterable[Any]) -> _Colour:
    """Return the runs of all slices."""
    rows, begin, at, phase, voxels = zip(*slices, strict=True)
    first = np.cumsum([0, *voxels])
    at = (*(own + each for own, each in zip(at, first[:-1], strict=True)), first[-1:])
    row = np.cumsum(np.concatenate([[0], *rows]))
    return _Colour(row, *(np.concatenate(each) for each in (begin, at, phase)))


def _to_flux(
    field: Float32s, phase: UInt8s, of_phase: Float64s, lengths: Float64s, periodic: bool
) -> float:
    """Turn concentrations into magnitudes of the flux in place; returns the dissipated energy.

    `lengths`: edge of a voxel along the first axis over that along each.
    """
    how: dict[str, Any] = {"mode": "wrap"} if periodic else {}
    low, inner, high = slice(None, -2), slice(1, -1), slice(2, None)
    tiny = np.finfo(np.float64).tiny

    def at(z: int) -> tuple[Array, Array]:
        own = np.where(field[z] >= 0, of_phase[phase[z]], 0)
        return np.pad(field[z].astype(np.float64), 1, **how), np.pad(own, 1, **how)

    # beside the faces values are mirrored, so that their mean is that of the face
    here, energy = at(0), 0.0
    before = 2 - here[0], here[1]
    for z, flux in enumerate(field):
        after = at(z + 1) if z + 1 < len(field) else (-here[0], here[1])
        value, own = (each[inner, inner] for each in here)
        square = np.zeros_like(value)
        beside = (
            ((before, inner, inner), (after, inner, inner)),
            ((here, low, inner), (here, high, inner)),
            ((here, inner, low), (here, inner, high)),
        )
        for length, sides in zip(lengths, beside, strict=True):
            mean = 0.0
            for sign, (near, y, x) in zip((0.5, -0.5), sides, strict=True):
                fall, other = value - near[0][y, x], near[1][y, x]
                flow = 2 * own * other / np.maximum(own + other, tiny) * fall * length
                # half of what is dissipated between two voxels
                energy += 0.5 * length * (flow * fall).sum()
                mean = mean + sign * flow
            square += mean**2
        np.sqrt(square, out=flux, casting="same_kind")
        before, here = here, after
    return float(energy)


@inlined
def _row_beside(way: int, z: int, y: int, depth: int, height: int, periodic: bool) -> int:
    """Return the row before or after one along z (ways 0 and 1) or y (2 and 3); -1 outside."""
    to_z = z + (2 * way - 1 if way < 2 else 0)
    to_y = y + (2 * way - 5 if way >= 2 else 0)
    is_out = to_z < 0 or to_z == depth or (not periodic and (to_y < 0 or to_y == height))
    return -1 if is_out else to_z * height + to_y % height


@kernel
def _add_around(
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
    """Add the values around voxels of one colour, in a range of slices."""
    depth, height, width = shape
    for row in range(first * height, last * height):
        start, stop = row_start[row], row_start[row + 1]
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
def _add_up(part: Int32s, values: Float32s, sums: Float64s) -> None:
    """Add the values of each part to its sum."""
    for i in range(part.size):
        sums[part[i]] += values[i]
