from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpore.patches.result import Patches


@given(st.integers(0, 2**31), st.integers(2, 3))
@settings(max_examples=50, deadline=None)
def test_the_patches_at_a_point_are_those_whose_voxels_hold_it(seed, n_axes):
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (30, 3))
    size = tuple(rng.integers(1, 7, n_axes))
    point = rng.uniform(0, 14, 3)
    if n_axes == 2:
        point[0] = round(point[0])
    found = Patches.at(SimpleNamespace(corners=corners, patch_shape=size), point)
    whole = (1,) * (3 - n_axes) + size
    voxel = np.floor(point + 0.5)
    expected = [
        number
        for number, corner in enumerate(corners)
        if all(c <= v < c + n for c, v, n in zip(corner, voxel, whole, strict=True))
    ]
    assert sorted(found) == expected
    middle = corners + (np.array(whole) - 1) / 2
    away = np.abs(middle[found] - point)[:, -n_axes:]
    assert (np.diff((away**2).sum(1)) >= -1e-9).all()
