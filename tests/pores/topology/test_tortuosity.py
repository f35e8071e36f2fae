"""Shortest ways through voids of which they are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from skimage.graph import MCP_Geometric

import hushpore
from hushpore import Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import result_of
from hushpore.pores.memory_plan import plan_slabs
from hushpore.pores.settings import PoreSettings
from hushpore.pores.topology.tortuosity import find_path_lengths, find_tortuosity


def along_z(void: np.ndarray, spacing: tuple[float, ...] = (1, 1, 1), **how: Any) -> float | None:
    how = {"faces_only": False, **how}
    return result_of(find_tortuosity(void, spacing, 3, **how))["tortuosity_z"]


@pytest.mark.parametrize("faces_only", [False, True])
def test_a_straight_tube_has_one_whatever_the_voxels(faces_only: bool) -> None:
    void = np.zeros((40, 20, 20), bool)
    void[:, 5:9, 5:9] = True
    for spacing in ((1, 1, 1), (2, 1, 0.5)):
        assert along_z(void, spacing, faces_only=faces_only) == pytest.approx(1)
    assert along_z(np.ones((6, 5, 4), bool)) == pytest.approx(1)


@pytest.mark.parametrize(("step_z", "step_y"), [(1, 1), (2, 1), (1, 3)])
def test_a_thin_diagonal_is_as_long_as_its_steps(step_z: float, step_y: float) -> None:
    void = np.zeros((30, 30, 3), bool)
    void[np.arange(30), np.arange(30), 1] = True
    expected = np.hypot(step_z, step_y) / step_z
    assert along_z(void, (step_z, step_y, 1)) == pytest.approx(expected)
    assert along_z(void, (step_z, step_y, 1), faces_only=True) is None


@pytest.mark.parametrize("slope", [0.25, 0.5, 0.7, 1.0])
def test_an_inclined_channel_is_within_3_per_cent(slope: float) -> None:
    z, y, _ = np.indices((60, 90, 3))
    half = 5
    void = np.abs(y - 10 - slope * z) < half
    # to each voxel of the last slice a straight way, which bends round no wall
    slack = np.linspace(0, 2 * half, 1001) / 59
    expected = np.hypot(1, np.maximum(slope - slack, 0)).mean()
    assert along_z(void) == pytest.approx(expected, rel=0.03)
    assert along_z(void, (2, 2, 2)) == pytest.approx(expected, rel=0.03)


def test_a_zigzag_is_as_long_as_a_string_in_it() -> None:
    # of one voxel: 60 steps at 45 degrees
    z, y, _ = np.indices((61, 14, 3))
    void = np.abs(z % 20 - 10) + 2 == y
    assert along_z(void) == pytest.approx(np.sqrt(2))


def test_ways_are_no_longer_than_those_of_steps_alone_and_no_shorter_than_straight() -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(2).normal(size=(24, 26, 28)), 1.5)
    void = noise > 0
    found = result_of(find_path_lengths(void, (1, 1.5, 0.7), faces_only=False)).astype(float)
    steps = MCP_Geometric(np.where(void, 1.0, -1.0), sampling=(1, 1.5, 0.7))
    expected, _ = steps.find_costs([tuple(at) for at in np.argwhere(void) if at[0] == 0])
    expected[~void] = np.inf
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    is_met = np.isfinite(found)
    assert (found[is_met] <= expected[is_met] * (1 + 1e-5)).all()
    assert (found >= np.arange(24)[:, None, None] * (1 - 1e-5)).all()
    assert found[is_met].mean() < 0.99 * expected[is_met].mean()


def test_a_result_tells_it_where_it_is_asked_for() -> None:
    void = np.zeros((16, 18, 20), bool)
    void[:, 4:7, 4:7] = True
    found = hushpore.segment_pores(Volume(void), device="cpu", exterior="keep", tortuosity=True)
    totals = found.provenance["result"]
    assert totals["tortuosity_z"] == pytest.approx(1)
    assert totals["tortuosity_y"] is None
    assert found.remerge(2).provenance["result"]["tortuosity_z"] == pytest.approx(1)
    without = hushpore.segment_pores(Volume(void), device="cpu", exterior="keep")
    assert "tortuosity_z" not in without.provenance["result"]
    image = hushpore.segment_pores(Volume(void[0]), device="cpu", exterior="keep", tortuosity=True)
    assert "tortuosity_z" not in image.provenance["result"]


def test_what_does_not_fit_into_memory_is_refused_in_words() -> None:
    volume = Volume(np.zeros((60, 60, 60), np.uint8))
    assert plan_slabs(volume, PoreSettings(memory_budget=0.003)).on_disk
    with pytest.raises(MemoryLimitError, match="tortuosity"):
        plan_slabs(volume, PoreSettings(memory_budget=0.003, tortuosity=True))
