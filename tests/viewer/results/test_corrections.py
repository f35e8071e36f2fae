"""Corrections by hand in the window: the table, the layer, undo and the record follow."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.layers import Layer

from hushpore import Corrections, Volume, segment_pores
from hushpore.pores.result import restored
from hushpore.viewer.forms.layout import Fold
from hushpore.viewer.layers.conversion import is_painted, watch_painting
from hushpore.viewer.results.corrections import LINE, POINTS
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.pore_layer import pore_layer, result_of, tables_of
from hushpore.viewer.segment.widget import MergeHeight


@pytest.fixture
def panel(qtbot, given):
    viewer = ViewerModel()
    layer = viewer.add_layer(Layer.create(*pore_layer(given, "pores")))
    watch_painting(layer)
    viewer.layers.selection.active = layer
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    yield panel
    panel._let_go()


def labels(panel):
    return panel.view.tables.pores["label"].tolist()


def test_selected_pores_are_merged_and_other_colours_stay(panel, after, given):
    layer = panel.view.layer
    colour = tuple(layer.get_color(3))
    panel.view.select_labels([1, 2])
    after(panel.corrections.merge_walls)
    assert len(labels(panel)) == 2
    assert tuple(layer.get_color(3)) == colour
    fix = Corrections(given)
    fix.merge_walls([1, 2])
    pd.testing.assert_frame_equal(result_of(layer).pores, fix.result.pores, check_exact=True)
    np.testing.assert_array_equal(layer.data, fix.result.labels)
    assert tables_of(layer).totals == fix.result.provenance["result"]
    after(layer.undo)
    assert labels(panel) == [1, 2, 3]
    assert result_of(layer) is given
    after(layer.redo)
    assert len(labels(panel)) == 2
    assert panel.corrections._undo.isEnabled()
    assert "Merge across thin walls" in panel.corrections._undo.toolTip()


def test_a_stroke_of_the_brush_and_its_undo_change_the_table(panel, after, given, qtbot):
    layer = panel.view.layer
    before = given.labels.copy()
    layer.mode = "erase"
    layer.brush_size = 4
    layer.n_edit_dimensions = 3
    after(lambda: layer.paint((5, 14, 30), 0))
    layer.mode = "paint"
    after(lambda: layer.paint((5, 4, 50), 40))
    np.testing.assert_array_equal(given.labels, before)
    table = panel.view.tables.pores.set_index("label")["num_voxels"]
    assert table.loc[40] == np.count_nonzero(layer.data == 40) > 0
    assert table.loc[3] == np.count_nonzero(layer.data == 3) < 5 * 5 * 25
    assert not is_painted(layer)
    assert [each.kind for each in result_of(layer).corrections] == ["erase", "paint"]
    after(layer.undo)
    assert 40 not in labels(panel)
    assert not (layer.data == 40).any()
    # a stroke after an undo, reverted before it is measured
    layer.paint((5, 4, 50), 41)
    assert is_painted(layer)
    assert "out of date" in panel.corrections._state.text()
    assert panel.corrections._again.isEnabled()
    folds = [each.button.text() for each in panel.findChildren(Fold)]
    assert " Correct pores (table out of date)" in folds
    layer.undo()
    assert not (layer.data == 41).any()
    panel.corrections.measure_again()
    qtbot.waitUntil(lambda: not panel.corrections.is_busy)
    assert not is_painted(layer)
    assert "1 correction" in panel.corrections._state.text()


def test_a_pore_is_split_at_points_and_cut_along_a_line(panel, after, viewer_of):
    viewer, corrections = viewer_of(panel), panel.corrections
    layer = panel.view.layer
    corrections.split()
    points = viewer.layers[POINTS]
    assert "two or more places" in corrections._problem.text()
    assert points.mode == "add"
    for place in ((5, 14, 28), (5, 14, 46)):
        points.add(place)
    after(corrections.split)
    assert labels(panel) == [1, 2, 3, 4]
    assert layer.data[5, 14, 28] != layer.data[5, 14, 46]
    assert not len(points.data)
    after(layer.undo)
    corrections.cut()
    line = viewer.layers[LINE]
    line.add_lines([[(5, 10, 30), (5, 18, 30)]])
    after(corrections.cut)
    sizes = panel.view.tables.pores.set_index("label")["num_voxels"]
    assert sorted(sizes.loc[[3, 4]]) == [25 * 5, 25 * 20] or sorted(sizes.loc[[3, 4]]) == [
        25 * 6,
        25 * 19,
    ]


def test_what_does_not_work_is_said(panel, qtbot):
    corrections = panel.corrections
    corrections.merge()
    qtbot.waitUntil(lambda: not corrections.is_busy)
    qtbot.waitUntil(lambda: "two pores or more" in corrections._problem.text())
    assert labels(panel) == [1, 2, 3]


def test_corrected_pores_are_not_merged_by_height(panel, after, viewer_of, qtbot):
    viewer = viewer_of(panel)
    height = MergeHeight(viewer)
    qtbot.addWidget(height)
    assert height.layer is panel.view.layer
    panel.view.select_labels([3])
    after(panel.corrections.delete)
    assert height.layer is None
    assert labels(panel) == [1, 2]
    after(panel.corrections._undo.click)
    assert height.layer is panel.view.layer


@pytest.fixture
def viewer_of():
    return lambda panel: panel._viewer


def test_a_reopened_result_without_its_air_is_corrected_beside_its_scan(qtbot):
    y, x = np.mgrid[:40, :40]
    grey = np.full((14, 40, 40), 200, np.uint8)
    grey[:, (y - 19.5) ** 2 + (x - 19.5) ** 2 > 17**2] = 20
    grey[3:8, 10:15, 12:18] = grey[5:11, 22:27, 20:26] = 20
    scan = Volume(grey, 1.0, "um", name="core")
    given = segment_pores(scan, exterior="remove")
    assert given.provenance["result"]["exterior_share"] > 0.2
    stored = restored(given.labels_volume, given.merging_arrays, given.provenance)
    viewer = ViewerModel()
    viewer.add_image(np.zeros((14, 40, 40), np.uint8), name="other")
    layer = viewer.add_layer(Layer.create(*pore_layer(stored, "pores")))
    watch_painting(layer)
    viewer.layers.selection.active = layer
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    viewer.layers.pop(0)
    panel.view.select_labels([1])
    panel.corrections.delete()
    qtbot.waitUntil(lambda: "open it beside" in panel.corrections._problem.text())
    viewer.add_image(grey, name="core")
    viewer.layers.selection.active = layer
    panel.corrections.delete()
    qtbot.waitUntil(lambda: len(panel.view.labels) == 1)
    fix = Corrections(given)
    fix.delete([1])
    pd.testing.assert_frame_equal(result_of(layer).pores, fix.result.pores, check_exact=True)
    assert tables_of(layer).totals == fix.result.provenance["result"]
    panel._let_go()
