"""Steady diffusion in voxels, against formulas and a direct solution of the same equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve

from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.transport.diffusion import solve_diffusion

if TYPE_CHECKING:
    from hushpore.pores.transport.result import Solution


def solve(
    phase: Any,
    axis: int = 0,
    conductivity: tuple[float, ...] = (0.0, 1.0),
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0),
    threads: int = 2,
    **how: Any,
) -> Solution:
    with KernelThreads(threads) as pool:
        found = solve_diffusion(
            np.asarray(phase, np.uint8), conductivity, spacing, axis, pool, **how
        )
        return result_of(found)  # type: ignore[arg-type, no-any-return]


def solve_directly(
    phase: Any,
    conductivity: Any = (0.0, 1.0),
    spacing: Any = (1.0, 1.0, 1.0),
    periodic: bool = False,
) -> float:
    """Return the effective conductivity along the first axis, by elimination."""
    own = np.asarray(conductivity, np.float64)[np.asarray(phase, np.uint8)].ravel()
    index = np.arange(own.size).reshape(phase.shape)
    rows, columns, values = [], [], []
    for axis in range(3):
        a, b = np.delete(index, -1, axis).ravel(), np.delete(index, 0, axis).ravel()
        if periodic and axis:
            a = np.append(a, np.take(index, -1, axis).ravel())
            b = np.append(b, np.take(index, 0, axis).ravel())
        both = (own[a] > 0) & (own[b] > 0)
        a, b = a[both], b[both]
        rows += [a, b]
        columns += [b, a]
        values += 2 * [2 / (1 / own[a] + 1 / own[b]) * (spacing[0] / spacing[axis]) ** 2]
    where = np.concatenate(rows), np.concatenate(columns)
    graph = sparse.coo_array((np.concatenate(values), where), (own.size, own.size)).tocsr()
    component = sparse.csgraph.connected_components(graph)[1]
    used = np.isin(component, np.intersect1d(*(
        component[index[end].ravel()][own[index[end].ravel()] > 0] for end in (0, -1)
    )))  # fmt: skip
    inlet, outlet = np.zeros((2, own.size))
    inlet[index[0].ravel()] = 2 * own[index[0].ravel()]
    outlet[index[-1].ravel()] = 2 * own[index[-1].ravel()]
    matrix = sparse.diags_array(graph.sum(axis=1) + inlet + outlet) - graph
    values_of = spsolve(matrix.tocsc()[used][:, used], inlet[used])
    return float(outlet[used] @ values_of) * len(phase) / phase[0].size


def blobs(shape: tuple[int, ...], share: float, seed: int = 0) -> Any:
    """Return a random phase of connected blobs."""
    field = ndimage.gaussian_filter(
        np.random.default_rng(seed).normal(size=shape), 1.5, mode="wrap"
    )
    return field < np.quantile(field, share)


def test_a_straight_tube_conducts_as_its_cross_section() -> None:
    y, x = np.mgrid[:30, :25]
    tube = np.broadcast_to((y - 15) ** 2 + (x - 12) ** 2 <= 81, (17, 30, 25))
    found = solve(tube)
    assert found.value == pytest.approx(tube.mean(), rel=1e-6)
    assert found.profile == pytest.approx(1 - (np.arange(17) + 0.5) / 17, abs=1e-6)
    assert found.flux[tube] == pytest.approx(1 / tube.mean(), rel=1e-5)
    assert not found.flux[~tube].any()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layers_conduct_by_their_harmonic_or_arithmetic_mean(axis: int) -> None:
    layers = np.full((12, 10, 9), 2, np.uint8)
    layers[:, :4] = 1
    expected = 10 / (4 / 2 + 6 / 5) if axis == 1 else (4 * 2 + 6 * 5) / 10
    assert solve(layers, axis, (0, 2, 5)).value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("radius", [30, 40])
def test_a_cubic_array_of_spheres_conducts_as_rayleigh_found(radius: float) -> None:
    """J. Rayleigh (1892), https://doi.org/10.1080/14786449208620364."""
    z, y, x = np.mgrid[:48, :48, :48] + 0.5  # an eighth of a sphere, as sides are mirrors
    void = z**2 + y**2 + x**2 > radius**2
    share = 1 - void.mean()
    expected = 1 - 3 * share / (2 + share - 1.1775 * share ** (10 / 3))
    assert solve(void).value == pytest.approx(expected, rel=0.01)


def test_a_square_array_of_rods_conducts_as_rayleigh_found() -> None:
    y, x = np.mgrid[:128, :128] + 0.5
    void = (y**2 + x**2 > 80**2)[None]
    share = 1 - void.mean()
    expected = 1 - 2 * share / (1 + share - 0.305827 * share**4)
    assert solve(void, axis=1).value == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "spacing", "periodic"),
    [
        ((20, 18, 22), (1, 1, 1), False),
        ((20, 18, 22), (2, 1, 1), True),
        ((17, 19, 13), (0.7, 1, 1.6), True),
        ((1, 9, 9), (1, 1, 1), False),
    ],
)
def test_random_phases_conduct_as_a_direct_solution(
    shape: Any, spacing: Any, periodic: bool
) -> None:
    void = blobs(shape, 0.55)
    expected = solve_directly(void, spacing=spacing, periodic=periodic)
    found = solve(void, spacing=spacing, periodic=periodic)
    assert found.value == pytest.approx(expected, rel=2e-4)
    assert found.flux.shape == shape


def test_three_phases_conduct_as_a_direct_solution() -> None:
    phase = blobs((20, 20, 20), 0.5).astype(np.uint8) + blobs((20, 20, 20), 0.4, seed=1)
    conductivity = (0.0, 0.05, 1.0)
    expected = solve_directly(phase, conductivity)
    assert solve(phase, conductivity=conductivity).value == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize(
    ("shape", "axis", "periodic"),
    [
        ((20, 18, 22), 0, False),
        ((17, 19, 13), 1, True),
        ((14, 20, 18), 2, True),
        ((1, 9, 9), 0, False),
    ],
)
def test_a_gpu_gives_what_the_cpu_gives(shape: Any, axis: int, periodic: bool) -> None:
    phase = blobs(shape, 0.6).astype(np.uint8) + blobs(shape, 0.4, seed=1)
    how: Any = {"conductivity": (0.0, 0.3, 1.0), "spacing": (1, 2, 0.8), "periodic": periodic}
    found, expected = (solve(phase, axis, device=each, **how) for each in ("cpu", None))
    assert found.value == pytest.approx(expected.value, rel=1e-4)
    assert found.profile == pytest.approx(expected.profile, abs=1e-3)
    assert np.allclose(found.flux, expected.flux, atol=0.02)
    assert abs(found.iterations - expected.iterations) <= 1


def test_what_spans_only_across_a_periodic_side_conducts_with_periodic_sides_only() -> None:
    void = np.zeros((9, 7, 6), bool)
    void[:5, 0], void[4:, -1] = True, True
    with KernelThreads(1) as pool:
        closed = solve_diffusion(void.astype(np.uint8), (0, 1), (1, 1, 1), 0, pool)
        assert result_of(closed) is None
    assert solve(void, periodic=True).value == pytest.approx(
        solve_directly(void, periodic=True), rel=2e-4
    )


def test_the_result_is_bit_identical_on_any_number_of_threads() -> None:
    void = blobs((24, 24, 24), 0.5)
    one, three = (solve(void, threads=count) for count in (1, 3))
    assert one.value == three.value
    assert np.array_equal(one.flux, three.flux)


def test_the_flux_through_the_gap_in_a_plate_is_all_of_the_flux() -> None:
    void = np.ones((24, 12, 6), bool)
    void[6, 2:], void[16, :-2] = False, False
    found = solve(void)
    through_gap = found.flux[6, :2].mean() * 2 / 12
    assert through_gap == pytest.approx(1, rel=0.05)
