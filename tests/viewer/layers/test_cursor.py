from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from napari.utils._proxies import PublicOnlyProxy

from hushpore.viewer.layers.visibility import keep_view_direction

pytestmark = pytest.mark.gui


@pytest.mark.parametrize("before", [(4, 5, 6), (5, 6), None])
def test_labels_with_features_are_added_in_3d_before_the_mouse_moves(
    viewer: Any, before: tuple[int, ...] | None
) -> None:
    keep_view_direction(viewer)
    if before is not None:
        viewer.add_image(np.zeros(before))
    viewer.mouse_over_canvas = True
    viewer.dims.ndisplay = 3
    labels = viewer.add_labels(np.ones((4, 5, 6), int), features={"index": [1], "volume": [2.0]})
    assert list(viewer.layers)[-1] is labels
    viewer.dims.ndisplay = 2
    assert viewer.cursor._view_direction is None


def test_a_view_that_napari_gives_to_plugins_is_aimed_without_a_warning(viewer: Any) -> None:
    keep_view_direction(PublicOnlyProxy(viewer))
    viewer.add_image(np.zeros((4, 5, 6)))
    viewer.dims.ndisplay = 3
    assert viewer.cursor._view_direction is not None
