"""Corrections by hand with a mouse on the canvas, in 2D and in 3D."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from napari.layers import Layer
from qtpy.QtCore import QEvent, QPointF, Qt
from qtpy.QtGui import QMouseEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

from hushpore import Volume, measure_labels
from hushpore.viewer.layers.conversion import watch_painting
from hushpore.viewer.results.corrections import LINE, POINTS
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.pore_layer import pore_layer, result_of

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


@pytest.fixture
def viewer(make_napari_viewer, given, qtbot):
    viewer = make_napari_viewer()
    layer = viewer.add_layer(Layer.create(*pore_layer(given, "pores")))
    watch_painting(layer)
    viewer.layers.selection.active = layer
    viewer.dims.set_current_step(0, 5)
    return viewer


@pytest.fixture
def panel(viewer, qtbot):
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    yield panel
    panel._let_go()


@pytest.fixture
def mouse(viewer, given):
    return Mouse(viewer, given)


class Mouse:
    """Moves over the canvas of a viewer, by events that Qt delivers to it."""

    def __init__(self, viewer, given):
        self._viewer, self.given = viewer, given
        self._canvas = viewer.window._qt_viewer.canvas

    def _place(self, voxel):
        """Return where a voxel lies on the canvas, in pixels."""
        node = self._canvas.layer_to_visual[self._viewer.layers["pores"]].node
        shown = [voxel[axis] for axis in self._viewer.dims.displayed]
        # vispy has x first, and in 2D begins at the edge of a voxel
        place = [each + 0.5 * (len(shown) == 2) for each in reversed(shown)]
        to_canvas = node.get_transform("visual", "canvas")
        x, y, _, w = to_canvas.map([*place, *[0] * (3 - len(place)), 1])
        return QPointF(x / w, y / w)

    def drag(self, *voxels, modifiers=NONE):
        """Press the left button at a voxel, move to others, and let go."""
        places = [self._place(voxel) for voxel in voxels]
        # vispy and napari pass over moves that follow within 10 and 5 ms
        self._send(QEvent.Type.MouseMove, places[0], Qt.MouseButton.NoButton, False, modifiers)
        QTest.qWait(30)
        self._send(QEvent.Type.MouseButtonPress, places[0], LEFT, True, modifiers)
        for place in places[1:]:
            self._send(QEvent.Type.MouseMove, place, Qt.MouseButton.NoButton, True, modifiers)
            QTest.qWait(30)
        self._send(QEvent.Type.MouseButtonRelease, places[-1], LEFT, False, modifiers)

    def _send(self, kind, place, button, is_held, modifiers):
        native = self._canvas.native
        held = LEFT if is_held else Qt.MouseButton.NoButton
        whole = QPointF(native.mapToGlobal(place.toPoint()))
        QApplication.sendEvent(native, QMouseEvent(kind, place, whole, button, held, modifiers))


def table(panel):
    return panel.view.tables.pores.set_index("label")


def assert_measured(panel):
    """The table is that of measuring the labels on the screen from scratch."""
    layer = panel.view.layer
    found, truth = result_of(layer), measure_labels(Volume(layer.data, 2.0, "um"), values="labels")
    same = ["volume", "equivalent_diameter", "surface_area", "centroid_z", "centroid_y", "is_open"]
    pd.testing.assert_frame_equal(
        found.pores[same], truth.pores[same], check_dtype=False, rtol=1e-12
    )
    assert found.pores["label"].tolist() == np.unique(layer.data)[1:].tolist()
    pd.testing.assert_frame_equal(panel.view.tables.pores, found.pores)


def test_a_stroke_paints_and_another_erases(panel, mouse, after):
    layer = panel.view.layer
    colours = {label: tuple(layer.get_color(label)) for label in (1, 2)}
    layer.mode, layer.brush_size, layer.selected_label = "paint", 1, 3
    after(lambda: mouse.drag((5, 18, 30), (5, 18, 36), (5, 18, 40)))
    painted = np.zeros_like(layer.data)
    painted[5, 18, 30:41] = 3
    given = mouse.given.labels
    np.testing.assert_array_equal(layer.data, np.where(painted, painted, given))
    assert table(panel).loc[3, "num_voxels"] == 25 * 25 + 11
    assert_measured(panel)
    layer.mode = "erase"
    after(lambda: mouse.drag((5, 18, 30), (5, 18, 40)))
    np.testing.assert_array_equal(layer.data, given)
    assert_measured(panel)
    assert [each.kind for each in result_of(layer).corrections] == ["paint", "erase"]
    assert {label: tuple(layer.get_color(label)) for label in (1, 2)} == colours
    # a pore painted beside others gets a row
    layer.mode, layer.brush_size, layer.selected_label = "paint", 3, 9
    after(lambda: mouse.drag((5, 5, 40), (5, 5, 50)))
    assert panel.view.tables.pores["label"].tolist() == [1, 2, 3, 9]
    assert table(panel).loc[9, "num_voxels"] == np.count_nonzero(layer.data == 9) > 20
    assert_measured(panel)


def test_pores_clicked_on_a_slice_are_merged_and_deleted(panel, mouse, after):
    layer, other = panel.view.layer, tuple(panel.view.layer.get_color(3))
    mouse.drag((5, 5, 5))
    mouse.drag((5, 5, 13), modifiers=Qt.KeyboardModifier.ControlModifier)
    assert panel.view.labels[panel.view.selected].tolist() == [1, 2]
    after(panel.corrections.merge_walls)
    assert len(panel.view.labels) == 2
    assert np.unique(layer.data[5, 6, 3:16]).size == 1
    assert tuple(layer.get_color(3)) == other
    assert_measured(panel)
    mouse.drag((5, 5, 5))
    after(panel.corrections.delete)
    assert panel.view.labels.tolist() == [3]
    assert tuple(layer.get_color(3)) == other
    assert_measured(panel)


def test_pores_clicked_in_3d_are_merged_split_and_deleted(panel, mouse, after, viewer, qtbot):
    with qtbot.waitSignal(panel.scene.shown):
        panel._in_3d.click()
    assert viewer.dims.ndisplay == 3
    mouse.drag((5, 6, 5))
    assert panel.view.labels[panel.view.selected].tolist() == [1]
    # the others are hidden while one is selected
    mouse.drag((5, 6, 13))
    assert not panel.view.selected.any()
    mouse.drag((5, 14, 37))
    after(panel.corrections.delete)
    assert panel.view.labels.tolist() == [1, 2]
    assert_measured(panel)
    panel.pores.selectAll()
    after(panel.corrections.merge_walls)
    (label,) = panel.view.labels
    assert viewer.dims.ndisplay == 3
    mouse.drag((5, 6, 9))
    assert panel.view.labels[panel.view.selected].tolist() == [label]
    assert_measured(panel)
    after(panel.corrections._undo.click)
    after(panel.corrections._undo.click)
    assert panel.view.labels.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(panel.view.layer.data, mouse.given.labels)


def test_a_line_drawn_with_the_mouse_cuts_a_pore_and_points_split_it(panel, mouse, after, viewer):
    panel.corrections.cut()
    assert viewer.layers.selection.active.name == LINE
    mouse.drag((5, 10, 35.5), (5, 14, 35.5), (5, 18, 35.5))
    assert len(viewer.layers[LINE].data) == 1
    after(panel.corrections.cut)
    assert sorted(table(panel).loc[[3, 4], "num_voxels"]) == [25 * 11, 25 * 14]
    assert_measured(panel)
    after(panel.corrections._undo.click)
    panel.corrections.split()
    for place in ((5, 14, 28), (5, 14, 46)):
        mouse.drag(place)
    assert len(viewer.layers[POINTS].data) == 2
    after(panel.corrections.split)
    assert panel.view.labels.tolist() == [1, 2, 3, 4]
    assert panel.view.layer.data[5, 14, 28] != panel.view.layer.data[5, 14, 46]
    assert_measured(panel)
