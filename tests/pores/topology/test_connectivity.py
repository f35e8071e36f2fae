"""Connectivity of the solid, against scikit-image and lattices whose loops can be counted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import euler_number

from hushpore.pores.topology.connectivity import solid_euler


@pytest.mark.parametrize("faces_only", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_that_of_scikit_image(seed: int, faces_only: bool) -> None:
    noise = np.random.default_rng(seed).normal(size=(12, 15, 11))
    void = ndimage.gaussian_filter(noise, seed / 4) > 0
    own, other = (1, 3) if faces_only else (3, 1)
    of_void = euler_number(void, connectivity=own)
    expected = euler_number(~void, connectivity=other)
    assert solid_euler(void, of_void, faces_only=faces_only).whole == expected


@pytest.mark.parametrize("faces_only", [False, True])
def test_a_lattice_of_struts_has_two_loops_in_each_of_its_cells(faces_only: bool) -> None:
    # struts 3 wide through the middle of cells of 9: a node and three struts each
    middle = np.abs(np.arange(36) % 9 - 4) <= 1
    z, y, x = np.meshgrid(middle, middle, middle, indexing="ij")
    void = ~((z & y) | (y & x) | (z & x))
    of_void = euler_number(void, connectivity=1 if faces_only else 3)
    found = solid_euler(void, of_void, faces_only=faces_only)
    assert found.added == 4**3 * (1 - 3)
    assert found.connectivity == 1 + 2 * 4**3


def test_what_parts_of_a_volume_add_is_what_the_volume_adds() -> None:
    noise = np.random.default_rng(3).normal(size=(20, 14, 16))
    void = ndimage.gaussian_filter(noise, 1) > 0

    def added(part: np.ndarray) -> float:
        return solid_euler(part, euler_number(part, connectivity=3), faces_only=False).added

    # parts share a slice, in which what is added counts half each; the outer faces stay as they are
    assert added(void[:11]) + added(void[10:]) == pytest.approx(added(void))
