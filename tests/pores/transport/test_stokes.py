"""Stokes flow in voxels, against formulas for ducts, tubes and arrays of spheres."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.events import result_of
from hushpore.pores.flow import NotSolvedError
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.transport import parts, stokes
from hushpore.pores.transport.stokes import solve_flow

if TYPE_CHECKING:
    from hushpore.pores.transport.result import Solution


def solve(
    void: Any,
    axis: int = 0,
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
    threads: int = 2,
    **how: bool,
) -> Solution:
    with KernelThreads(threads) as pool:
        found = solve_flow(np.ascontiguousarray(void), spacing, axis, pool, **how)
        return result_of(found)  # type: ignore[arg-type, no-any-return]


def blobs(shape: tuple[int, int, int], share: float, seed: int = 0) -> Any:
    """Make random void that spans the first axis."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    smooth = ndimage.gaussian_filter(noise, 2)
    label, _ = ndimage.label(smooth < np.quantile(smooth, share))
    through = np.intersect1d(label[0], label[-1])
    return np.isin(label, through[through > 0])


def duct(a: float, b: float) -> float:
    """Permeability of a duct with sides a <= b (White, Viscous Fluid Flow, 3-48)."""
    odd = np.arange(1, 200, 2)
    series = np.sum(np.tanh(odd * math.pi * b / (2 * a)) / odd**5)
    return float(a**2 / 12 * (1 - 192 * a / (math.pi**5 * b) * series))


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_the_flow_between_two_walls_is_exact_for_any_width(width: int) -> None:
    void = np.zeros((5, width + 1, 4), np.bool_)
    void[:, :width] = True
    share = width / (width + 1)
    found = solve(void, periodic=True)
    assert found.value == pytest.approx(share * width**2 / 12, rel=1e-3)


@pytest.mark.parametrize("sides", [(1, 1), (2, 2), (3, 3), (2, 5), (8, 8), (4, 24), (10, 20)])
def test_the_permeability_of_a_duct_is_that_of_its_series(sides: tuple[int, int]) -> None:
    found = solve(np.ones((6, *sides), np.bool_))
    assert found.value == pytest.approx(duct(*sides), rel=0.01)


@pytest.mark.parametrize("radius", [5, 10, 15])
def test_the_permeability_of_a_tube_is_that_of_poiseuille(radius: int) -> None:
    across = np.arange(2 * radius + 2) - (radius + 0.5)
    disc = across[:, None] ** 2 + across**2 < radius**2
    found = solve(np.repeat(disc[None], 6, axis=0))
    expected = math.pi * radius**4 / 8 / disc.size
    assert found.value == pytest.approx(expected, rel=0.02)
    # fastest on the axis, twice the mean in the tube
    assert found.flux.max() * disc.mean() == pytest.approx(2, rel=0.02)


# Drag of a sphere in a simple cubic array over that of Stokes, by the volume of spheres: A. A. Zick
# and G. M. Homsy (1982), table 2, https://doi.org/10.1017/S0022112082000627
@pytest.mark.parametrize(("volume", "drag"), [(0.125, 4.292), (0.343, 15.4)])
def test_the_permeability_of_a_cubic_array_of_spheres_is_the_published_one(
    volume: float, drag: float
) -> None:
    edge, cells = 24, 3
    radius = edge * (3 * volume / (4 * math.pi)) ** (1 / 3)
    across = (np.arange(edge) + 0.5 - edge / 2) ** 2
    cell = across[:, None, None] + across[:, None] + across > radius**2
    found = solve(np.concatenate([cell] * cells), periodic=True)
    expected = edge**3 / (6 * math.pi * radius * drag)
    assert found.value == pytest.approx(expected, rel=0.05)


def test_voxels_may_be_longer_along_an_axis() -> None:
    """A duct of 10 x 10 um in voxels of 2, 1 and 0.5 um."""
    void = np.ones((4, 10, 20), np.bool_)
    found = solve(void, spacing=(2.0, 1.0, 0.5))
    assert found.value == pytest.approx(duct(10, 10), rel=0.02)
    along_x = solve(void.transpose(1, 2, 0), axis=2, spacing=(1.0, 0.5, 2.0))
    assert along_x.value == pytest.approx(found.value, rel=1e-6)


def test_flow_is_conserved_and_pressure_falls_along_each_axis() -> None:
    void = blobs((20, 24, 28), 0.5)
    found = solve(void)
    for axis in (1, 2):
        turned = solve(np.moveaxis(void, 0, axis), axis)
        assert turned.value == found.value
        np.testing.assert_array_equal(np.moveaxis(turned.flux, axis, 0), found.flux)
    assert (found.flux[~void] == 0).all()
    # along the axis the mean is 1; sideways there is flow as well
    assert (found.flux.mean((1, 2)) > 0.98).all()
    assert 1 > found.profile[0] > found.profile[10] > found.profile[-1] > 0


def test_halving_the_voxels_hardly_changes_the_permeability_of_narrow_pores() -> None:
    void = blobs((32, 32, 32), 0.3, seed=3)
    fine = void.repeat(2, axis=0).repeat(2, axis=1).repeat(2, axis=2)
    found, finer = solve(void), solve(fine, spacing=(0.5, 0.5, 0.5))
    assert found.value == pytest.approx(finer.value, rel=0.1)


def test_double_the_edges_have_four_times_the_permeability() -> None:
    void = blobs((20, 20, 20), 0.5)
    one, two = (solve(void, spacing=(edge,) * 3) for edge in (1.0, 2.0))
    assert two.value == pytest.approx(4 * one.value, rel=1e-6)


def test_the_result_is_the_same_for_any_number_of_threads() -> None:
    void = blobs((40, 40, 40), 0.5, seed=1)
    one, three = solve(void, threads=1), solve(void, threads=3)
    assert one.value == three.value
    assert one.iterations == three.iterations
    np.testing.assert_array_equal(one.flux, three.flux)


def test_a_finer_solution_agrees_within_the_stated_change(monkeypatch: Any) -> None:
    void = blobs((40, 40, 40), 0.4, seed=2)
    found = solve(void)
    assert found.residual < 1e-3
    monkeypatch.setattr(stokes, "_CHANGE", 1e-5)
    assert found.value == pytest.approx(solve(void).value, rel=2e-3)


def test_a_large_network_of_pressures_is_solved_on_two_levels(monkeypatch: Any) -> None:
    void = blobs((40, 40, 40), 0.4, seed=2)
    expected = solve(void).value
    monkeypatch.setattr(parts, "_DIRECT", 10)
    assert solve(void).value == pytest.approx(expected, rel=3e-3)


def test_progress_rises_and_an_unfinished_flow_is_an_error(monkeypatch: Any) -> None:
    void = blobs((20, 20, 20), 0.5)
    with KernelThreads(1) as pool:
        done = list(solve_flow(void, (1.0, 1.0, 1.0), 0, pool))
        assert done[0] == 0
        assert done[-1] < 1
        assert len(done) > 10
        assert (np.diff(done) >= -1e-6).all()
        monkeypatch.setattr(stokes, "_MOST", 3)
        with pytest.raises(NotSolvedError, match="did not converge in 3 iterations"):
            list(solve_flow(void, (1.0, 1.0, 1.0), 0, pool))


def test_a_flow_that_is_given_up_ends_at_once_and_leaves_no_threads_at_work() -> None:
    with KernelThreads(2) as pool:
        steps = solve_flow(blobs((24, 24, 24), 0.5), (1.0, 1.0, 1.0), 0, pool)
        for _ in zip(range(3), steps, strict=False):
            pass
        steps.close()
        with pytest.raises(StopIteration):
            next(steps)
        again = result_of(solve_flow(np.ones((4, 8, 8), np.bool_), (1, 1, 1), 0, pool))
        assert again is not None
        assert again.value == pytest.approx(duct(8, 8), rel=0.01)


def test_transport_takes_the_volume_as_periodic_beside_the_axis() -> None:
    void = np.ones((6, 5, 4), np.bool_)
    void[:, 2] = False
    found = hushpore.transport(void, "flow", periodic=True)
    slit = 4 / 5 * 4**2 / 12
    assert found.totals["voxel_permeability_z"] == pytest.approx(slit, rel=1e-3)
    assert found.totals["voxel_permeability_x"] == pytest.approx(slit, rel=1e-3)
    assert found.totals["voxel_permeability_y"] is None
    closed = hushpore.transport(void, "flow").totals["voxel_permeability_z"]
    assert closed == pytest.approx(4 / 5 * duct(2, 4), rel=0.02)
