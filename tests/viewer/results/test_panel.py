import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.layers import Layer
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog, QWidget

from hushpore.viewer.docks import open_page
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.pore_layer import pore_layer
from hushpore.viewer.results.pore_view import PoreView


def add(viewer, result, name="pores"):
    return viewer.add_layer(Layer.create(*pore_layer(result, name)))


@pytest.fixture
def panel(qtbot, viewer, layer):
    panel = ResultsWidget(viewer)
    qtbot.addWidget(panel)
    yield panel
    panel._let_go()


def shown(panel):
    return panel.pores.rows.table["label"].tolist()


def test_the_result_of_the_selected_layer_is_shown(panel):
    assert "pores" in panel._title.text()
    assert "Porosity" in panel._summary.text()
    assert "µm" in panel._summary.text()
    assert shown(panel) == [1, 2, 3, 4]
    assert panel._tabs.tabText(1) == "&Throats (3)"


def test_the_name_of_a_layer_is_no_markup(viewer, panel, made_of_cubes):
    panel.resize(700, 300)
    panel.show()
    add(viewer, made_of_cubes([2]), "a <5 & b")
    assert panel._title.text() == "a <5 & b"
    assert panel._title.textFormat() == Qt.TextFormat.PlainText


def test_what_can_wait_is_folded_away(viewer, panel, made_of_cubes):
    result = made_of_cubes([2, 3])
    result.provenance["result"]["anisotropy"] = 0.04
    viewer.layers.selection.active = add(viewer, result, "with chords")
    assert "anisotropy" not in panel._summary.text()
    panel.show()
    assert not panel.figures.isVisible()
    panel._fold.button.click()
    assert panel.figures.isVisible()
    assert "Degree of anisotropy" in panel.figures.text()


def test_without_a_result_it_says_how_to_get_one(qtbot):
    panel = ResultsWidget(ViewerModel())
    qtbot.addWidget(panel)
    assert "Run 'Pores'" in panel._summary.text()
    assert not panel._controls.isEnabled()


def test_an_image_in_between_does_not_take_the_table_away(viewer, panel):
    viewer.add_image(np.zeros((4, 4, 4)))
    assert shown(panel) == [1, 2, 3, 4]


def test_it_moves_on_when_its_layer_goes_or_another_is_selected(
    viewer, layer, panel, made_of_cubes
):
    other = add(viewer, made_of_cubes([6, 6]), "other")
    assert shown(panel) == [1, 2]
    viewer.layers.selection.active = layer
    assert len(shown(panel)) == 4
    viewer.layers.remove(layer)
    assert panel.view.layer is other
    viewer.layers.remove(other)
    assert panel.view is None
    assert "Run 'Pores'" in panel._summary.text()
    assert panel.pores.rows.rowCount() == panel.throats.rows.rowCount() == 0
    assert [panel._tabs.tabText(number) for number in range(2)] == ["&Pores", "&Throats"]


def test_a_filter_hides_rows_and_pores(panel):
    panel._filter.setText("num_voxels > 20 and not is_open")
    panel.apply_filter()
    assert shown(panel) == [2, 3]
    assert panel.view.shown.tolist() == [False, True, True, False]
    assert "Shown: 2 pores" in panel._summary.text()
    assert panel._tabs.tabText(0) == "&Pores (2 of 4)"
    panel._reset()
    assert panel._tabs.tabText(0) == "&Pores (4)"


def test_a_filter_that_cannot_be_read_is_explained_and_changes_nothing(panel):
    panel._filter.setText("num_voxel > 20")
    panel.apply_filter()
    assert "did you mean num_voxels" in panel._problem.text()
    assert len(shown(panel)) == 4
    panel._filter.setText("num_voxels > 20")
    panel.apply_filter()
    assert not panel._problem.text()


def test_the_slider_filters_by_its_column_and_together_with_the_line(panel):
    panel._range_of.choose("num_voxels")
    panel._range.setValue((20, 70))
    assert shown(panel) == [2, 4]
    panel._filter.setText("is_open")
    panel.apply_filter()
    assert shown(panel) == [4]


def test_rows_and_pores_are_selected_together(viewer, layer, panel):
    panel.view.select_labels([3], "canvas")
    assert panel.pores.chosen_positions().tolist() == [2]
    panel.pores.selectRow(0)
    assert panel.view.selected.tolist() == [True, False, False, False]


def test_a_selected_row_brings_its_slice(viewer, layer, panel):
    viewer.dims.set_point(0, 8.0)
    panel.pores.selectRow(0)
    assert viewer.dims.point[0] == 0


def test_a_throat_selects_the_pores_at_its_ends(panel):
    panel._tabs.setCurrentIndex(1)
    panel.throats.selectRow(1)
    assert panel.view.selected.tolist() == [False, True, True, False]


def test_colours_show_a_column_with_its_unit(panel):
    panel.colours.by.choose("equivalent_diameter")
    assert panel.view.column == "equivalent_diameter"
    assert "µm" in panel.colours.bar.toolTip()
    assert not panel.colours.bar.isHidden()
    panel.colours.map.setCurrentText("plasma")
    assert panel.view.colormap == "plasma"


def test_show_all_drops_filter_selection_and_colours(layer, panel):
    own = layer.colormap
    panel._filter.setText("is_open")
    panel.apply_filter()
    panel.colours.by.choose("sphericity")
    panel.view.select_labels([1])
    panel._reset()
    assert len(shown(panel)) == 4
    assert layer.colormap is own
    assert panel.colours.by.column() == "random"
    assert panel.colours.bar.isHidden()


def test_the_rows_shown_are_exported_in_their_order(qtbot, panel, tmp_path, monkeypatch):
    path = tmp_path / "part.csv"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **__: (str(path), ""))
    panel._filter.setText("num_voxels > 20")
    panel.apply_filter()
    panel._export()
    qtbot.waitUntil(path.exists, timeout=10_000)
    table = pd.read_csv(path)
    expected = panel.pores.rows.table.reset_index(drop=True)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    beside = tmp_path / "part columns.csv"
    qtbot.waitUntil(beside.exists, timeout=10_000)
    columns = pd.read_csv(beside, index_col="column", keep_default_na=False)
    assert list(columns.index) == list(table.columns)
    assert columns.loc["volume", "unit"] == "µm³"
    assert columns.loc["sphericity", "unit"] == ""
    assert "ball" in columns.loc["equivalent_diameter", "meaning"]


def test_another_result_in_the_layer_is_shown(qtbot, layer, panel, made_of_cubes):
    from hushpore.viewer.results.pore_layer import update_pore_layer

    with qtbot.waitSignal(panel.view.tables_changed):
        update_pore_layer(layer, made_of_cubes([2, 2]))
    assert shown(panel) == [1, 2]
    assert "2 pores, 1 throat ·" in panel._summary.text()


def test_the_layer_gets_its_colours_back_when_the_panel_goes(viewer, layer, panel):
    own = layer.colormap
    panel.colours.by.choose("sphericity")
    panel._let_go()
    assert layer.colormap is own
    assert id(layer) not in PoreView._of_layer


def test_3d_is_left_with_the_panel_and_for_another_layer(
    qtbot, viewer, layer, panel, made_of_cubes
):
    other = viewer.add_layer(Layer.create(*pore_layer(made_of_cubes([2, 3]), "other")))
    viewer.layers.selection.active = layer
    dock = QWidget()
    qtbot.addWidget(dock)
    panel.setParent(dock)
    for leave in (
        lambda: setattr(viewer.layers.selection, "active", other),
        lambda: panel.setParent(None),
    ):
        before = {each.name: each.visible for each in viewer.layers}
        panel._in_3d.click()
        qtbot.waitUntil(lambda: panel.scene.is_ready)
        assert viewer.dims.ndisplay == 3
        leave()
        assert viewer.dims.ndisplay == 2
        assert {each.name: each.visible for each in viewer.layers} == before


def test_in_a_real_window_table_and_plots_share_one_view(make_napari_viewer, made_of_cubes):
    viewer = make_napari_viewer()
    layer = add(viewer, made_of_cubes([2, 3]))
    results, plots = open_page(viewer, "Table"), open_page(viewer, "Plots")
    assert results.view is plots.view is PoreView.of(viewer, layer)


def test_kinds_have_a_legend_with_counts_that_selects(qtbot, layer, panel):
    panel.colours.by.choose("is_open")
    legend = panel.colours.legend
    assert "closed 2" in legend.text()
    assert "open 2" in legend.text()
    assert panel.colours.bar.isHidden()
    assert panel.colours.map.isHidden()
    is_open = layer.features["is_open"].to_numpy()
    colours = layer.colormap.map(layer.features["index"].to_numpy(np.int32))
    assert len(np.unique(colours[is_open], axis=0)) == 1
    assert len(np.unique(colours, axis=0)) == 2
    legend.linkActivated.emit("1")
    np.testing.assert_array_equal(panel.view.selected, is_open)
    panel.colours.by.choose("random")
    assert legend.isHidden()


def test_words_of_ones_own_are_kinds_too_and_not_numbers(viewer, layer, panel):
    layer.features = layer.features.assign(group=["left", "left", "right", "right"])
    panel.view._reread()
    panel.colours.by.choose("group")
    assert "left 2" in panel.colours.legend.text()
    assert panel._range_of.findData("group") < 0
