from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from napari.utils._proxies import PublicOnlyProxy
from qtpy.QtCore import QPoint
from qtpy.QtWidgets import QApplication

from hushpore.viewer.layers.visibility import keep_status_empty

pytestmark = pytest.mark.gui


@pytest.mark.parametrize("before", [(4, 5, 6), (5, 6), None])
def test_labels_with_features_are_added_in_3d_before_the_mouse_moves(
    viewer: Any, before: tuple[int, ...] | None
) -> None:
    keep_status_empty(viewer)
    if before is not None:
        viewer.add_image(np.zeros(before))
    viewer.mouse_over_canvas = True
    viewer.dims.ndisplay = 3
    labels = viewer.add_labels(np.ones((4, 5, 6), int), features={"index": [1], "volume": [2.0]})
    assert list(viewer.layers)[-1] is labels


def test_the_status_line_is_back_with_the_next_move_of_the_mouse(
    make_napari_viewer: Any, qtbot: Any
) -> None:
    viewer = make_napari_viewer(show=True)
    # as napari gives it to plugins
    keep_status_empty(PublicOnlyProxy(viewer))
    viewer.add_labels(np.ones((4, 5, 6), int), features={"index": [1], "volume": [2.0]})
    viewer.mouse_over_canvas = True
    viewer.dims.ndisplay = 3
    assert not viewer.mouse_over_canvas
    canvas = viewer.window._qt_viewer.canvas.native
    for x in (40, 50, 60):
        qtbot.mouseMove(canvas, QPoint(x, 50))
        QApplication.processEvents()
    assert viewer.mouse_over_canvas
