import threading
from functools import cached_property

import numpy as np
import pandas as pd
import pytest
from napari.layers import Layer

import hushpore
from hushpore.pores.result import Pores
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.layers.voxel_size import set_voxel_size
from hushpore.viewer.results.pore_layer import pore_layer, result_of, tables_of
from hushpore.viewer.results.pore_view import PoreView
from hushpore.viewer.segment.widget import MergeHeight


@pytest.fixture(scope="module")
def void():
    """Two balls that overlap, and a third one beside them that hardly does."""
    z, y, x = np.indices((24, 24, 64))
    near = [(z - 12) ** 2 + (y - 12) ** 2 + (x - c) ** 2 for c in (12, 25, 43)]
    return np.min(near, axis=0) <= 100


@pytest.fixture(scope="module")
def result(void):
    return hushpore.segment_pores(void, merge_height=0.5)


@pytest.fixture
def control(qtbot, viewer):
    control = MergeHeight(viewer)
    qtbot.addWidget(control)
    return control


def show(viewer, result, name="scan · pores"):
    layer = viewer.add_layer(Layer.create(*pore_layer(result, name)))
    viewer.layers.selection.active = layer
    return layer


def wait(qtbot, control):
    qtbot.waitUntil(lambda: not control.is_busy, timeout=20_000)


def height_of(layer):
    return layer.metadata[METADATA_KEY]["provenance"]["settings"]["merge_height"]


def test_it_is_hidden_until_a_result_is_chosen(viewer, control, result):
    viewer.add_labels(np.zeros((4, 4), int))
    assert control.isHidden()
    layer = show(viewer, result)
    assert not control.isHidden()
    assert control.layer is layer
    assert control._box.value() == 0.5
    viewer.layers.remove(layer)
    assert control.isHidden()


def test_it_begins_where_auto_has_led_and_leads_back(qtbot, viewer, control, void):
    small = hushpore.segment_pores(void[::3, ::3, ::3])
    layer = show(viewer, small)
    found = small.merge_height
    assert 0.1 < found.merge_height < 0.5
    assert control._box.value() == pytest.approx(found.merge_height, abs=0.005)
    assert control._note.text().replace("\u00a0", " ") == found.reason
    control._box.setValue(2.0)
    wait(qtbot, control)
    assert (height_of(layer), control._note.text()) == (2.0, "")
    control.undo()
    wait(qtbot, control)
    assert height_of(layer) == "auto"
    assert control._box.value() == pytest.approx(found.merge_height, abs=0.005)


def test_it_is_called_as_the_layer_is(viewer, control, result):
    layer = show(viewer, result, "pores (preview)")
    layer.name = "pores"
    assert control._title.toolTip().startswith("pores. ")


def test_another_height_changes_labels_tables_and_record_in_place(qtbot, viewer, control, result):
    layer = show(viewer, result)
    shown = []
    control.merged.connect(shown.append)
    control._box.setValue(5.0)
    wait(qtbot, control)
    expected = result.remerge(5.0)
    assert len(expected.pores) < len(result.pores)
    np.testing.assert_array_equal(layer.data, expected.labels)
    assert len(tables_of(layer).pores) == len(expected.pores)
    assert height_of(layer) == 5.0
    assert shown[-1].headline == expected.headline
    assert viewer.layers == [layer]


def test_what_takes_a_look_at_all_labels_is_done_in_the_thread(
    qtbot, viewer, control, result, monkeypatch
):
    made_in = []
    profile = cached_property(lambda merged: made_in.append(threading.current_thread()))
    profile.__set_name__(Pores, "porosity_profile")
    show(viewer, result)
    monkeypatch.setattr(Pores, "porosity_profile", profile)
    control._box.setValue(3)
    wait(qtbot, control)
    assert made_in
    assert threading.main_thread() not in made_in


def test_only_the_newest_of_many_heights_is_computed_last(qtbot, viewer, control, result):
    layer = show(viewer, result)
    shown = []
    control.merged.connect(shown.append)
    for position in range(60):
        control._slider.setValue(position)
    wait(qtbot, control)
    assert height_of(layer) == pytest.approx(59 * 0.05)
    assert len(shown) < 10


def test_undo_and_redo_lead_to_former_heights(qtbot, viewer, control, result):
    layer = show(viewer, result)
    for h in (2.0, 5.0):
        control._box.setValue(h)
        wait(qtbot, control)
    assert not control._redo.isEnabled()
    for step, h in ((control.undo, 2.0), (control.undo, 0.5), (control.redo, 2.0)):
        step()
        wait(qtbot, control)
        assert height_of(layer) == control._box.value() == h
        np.testing.assert_array_equal(layer.data, result.remerge(h).labels)
    control._box.setValue(1.0)
    wait(qtbot, control)
    assert not control._redo.isEnabled()
    control.undo()
    wait(qtbot, control)
    assert height_of(layer) == 2.0


def test_a_drag_is_one_step_to_undo(qtbot, viewer, control, result):
    layer = show(viewer, result)
    control._slider.setSliderDown(True)
    for h in (1.0, 2.0, 3.0):
        control._box.setValue(h)
        wait(qtbot, control)
    assert not control._undo.isEnabled()
    control._slider.setSliderDown(False)
    assert control._undo.isEnabled()
    control.undo()
    wait(qtbot, control)
    assert height_of(layer) == 0.5


def test_peaks_of_snow_give_way_to_heights_and_come_back(qtbot, viewer, control, void):
    snow = hushpore.segment_pores(void, merging="snow")
    layer = show(viewer, snow)
    assert "Split at SNOW peaks" in control._note.text()
    control._box.setValue(0.4)
    wait(qtbot, control)
    assert "Now merged by height" in control._note.text()
    assert layer.metadata[METADATA_KEY]["provenance"]["settings"]["merging"] == "height"
    control.undo()
    wait(qtbot, control)
    np.testing.assert_array_equal(layer.data, snow.labels)
    assert result_of(layer) is snow


def test_each_layer_keeps_its_own_result(qtbot, viewer, control, result, void):
    first = show(viewer, result)
    second = show(viewer, hushpore.segment_pores(void, merge_height=1.0), "other")
    control._box.setValue(5.0)
    wait(qtbot, control)
    np.testing.assert_array_equal(first.data, result.labels)
    assert height_of(second) == 5.0
    viewer.layers.selection.active = first
    assert control.layer is first
    assert control._box.value() == 0.5


def test_removing_the_layer_meanwhile_does_no_harm(qtbot, viewer, control, result):
    layer = show(viewer, result)
    control._box.setValue(5.0)
    control._timer.stop()
    control._merge()
    viewer.layers.remove(layer)
    wait(qtbot, control)
    np.testing.assert_array_equal(layer.data, result.labels)


def test_a_voxel_size_given_meanwhile_stays_and_the_height_is_asked_for_again(
    qtbot, viewer, control, result, monkeypatch
):
    layer = show(viewer, result)
    gate, remerge = threading.Event(), Pores.remerge

    def slowly(merged, h):
        assert gate.wait(60)
        return remerge(merged, h)

    monkeypatch.setattr(Pores, "remerge", slowly)
    control._box.setValue(5.0)
    qtbot.waitUntil(lambda: control._wanted is None)
    set_voxel_size(viewer, layer, "15um")
    gate.set()
    wait(qtbot, control)
    tables = tables_of(layer)
    assert tables.unit == "um"
    expected = result.resized((15.0,) * 3, "um", "").remerge(5.0)
    pd.testing.assert_frame_equal(tables.pores, expected.pores)
    assert (height_of(layer), control._box.value()) == (5.0, 5.0)


@pytest.mark.parametrize("has_table", [False, True])
def test_pores_that_merging_leaves_keep_their_colours(qtbot, viewer, control, result, has_table):
    layer = show(viewer, result)
    view = PoreView.of(viewer, layer) if has_table else None
    middles = [(12, 12, x) for x in (12, 25, 43)]

    def colours():
        qtbot.wait(20)
        return [tuple(layer.get_color(int(layer.data[at]))) for at in middles]

    before = colours()
    assert len(set(before)) == 3
    for height in (4.0, 0.5, 40.0, 0.5):
        control._box.setValue(height)
        wait(qtbot, control)
        found = colours()
        labels = [int(layer.data[at]) for at in middles]
        for one in range(3):
            # one colour for each pore, that of one of the pores it was made of
            own = {before[k] for k in range(3) if labels[k] == labels[one]}
            assert found[one] in own
        if len(set(labels)) == 3:
            assert found == before
    assert len({*labels}) == 3
    if view is not None:
        view.colour_by("num_voxels")
        control._box.setValue(4.0)
        wait(qtbot, control)
        by_column = colours()
        view.colour_by("")
        assert colours() != by_column
        control._box.setValue(0.5)
        wait(qtbot, control)
        assert colours() == before
        view.close()


def test_colours_that_the_user_shuffled_are_kept_while_merging(qtbot, viewer, control, result):
    layer = show(viewer, result)

    def colours_at(height):
        control._box.setValue(height)
        wait(qtbot, control)
        return [tuple(layer.get_color(int(layer.data[12, 12, x]))) for x in (12, 25, 43)]

    before = colours_at(4.0)
    layer.new_colormap(seed=7)
    shuffled = [tuple(layer.get_color(int(layer.data[12, 12, x]))) for x in (12, 25, 43)]
    assert shuffled != before
    colours_at(0.5)
    assert colours_at(4.0) == shuffled
