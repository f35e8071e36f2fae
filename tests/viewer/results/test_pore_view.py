from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from napari.utils.colormaps import AVAILABLE_COLORMAPS, label_colormap

from hushpore.io.lazy_arrays import PlaneStack
from hushpore.viewer.results import pore_view
from hushpore.viewer.results.pore_layer import pore_layer, update_pore_layer
from hushpore.viewer.results.pore_view import (
    MISSING,
    PALETTE,
    PoreView,
    categories_of,
    is_categorical,
)


@pytest.fixture
def view(qapp, viewer, layer):
    view = PoreView.of(viewer, layer)
    yield view
    view.close()


def opacity(layer, highest=4):
    return layer.colormap.map(np.arange(highest + 1, dtype=np.int32))[:, 3]


def click(viewer, layer, place, *modifiers, drag=0, ndisplay=2):
    where = layer.data_to_world(place)
    event = SimpleNamespace(
        pos=(0, 0), type="mouse_press", button=1, modifiers=modifiers, position=where,
        view_direction=None if ndisplay == 2 else np.array((0, 0, 1.0)),
        dims_displayed=[1, 2] if ndisplay == 2 else [0, 1, 2],
    )  # fmt: skip
    for callback in list(viewer.mouse_drag_callbacks):
        if getattr(callback, "__self__", None).__class__ is PoreView:
            gesture = callback(viewer, event)
            next(gesture)
            event.type, event.pos = ("mouse_move" if drag else "mouse_release"), (drag, 0)
            next(gesture, None)
            event.type = "mouse_release"
            next(gesture, None)


def test_a_layer_has_one_view(viewer, layer, view):
    assert PoreView.of(viewer, layer) is view


def test_pores_that_do_not_pass_are_not_to_be_seen(layer, view):
    view.show_only(np.array([True, False, True, False]))
    assert opacity(layer).tolist() == [0, 1, 0, 1, 0]


def test_selected_pores_stand_out_of_dimmed_ones_and_in_3d_alone(viewer, layer, view):
    view.select_labels([2])
    np.testing.assert_allclose(opacity(layer), [0, 0.18, 1, 0.18, 0.18], rtol=1e-6)
    viewer.dims.ndisplay = 3
    assert opacity(layer).tolist() == [0, 0, 1, 0, 0]


def test_pores_are_coloured_by_a_column(layer, view):
    view.colour_by("num_voxels", "plasma")
    low, high = view.limits()
    share = np.clip((np.array([8, 27, 125, 64]) - low) / (high - low), 0, 1)
    expected = AVAILABLE_COLORMAPS["plasma"].map(share)
    found = layer.colormap.map(np.arange(1, 5, dtype=np.int32))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_resetting_gives_back_the_layers_own_colours(layer, view):
    own = label_colormap(49, seed=0.3)
    layer.colormap = own
    view.colour_by("sphericity")
    view.select_labels([1])
    view.show_only(np.array([True, True, True, False]))
    view.reset()
    assert layer.colormap is own
    assert view.shown.all()
    assert not view.selected.any()


def test_a_colour_map_of_the_user_is_taken_over(layer, view):
    view.show_only(np.array([True, False, True, False]))
    layer.new_colormap(seed=3)
    assert opacity(layer).tolist() == [0, 1, 0, 1, 0]
    own = label_colormap(49, seed=0.7)
    layer.colormap = own
    assert opacity(layer).tolist() == [0, 1, 0, 1, 0]
    view.reset()
    assert layer.colormap is own


def test_another_result_in_the_layer_is_shown_whole(qtbot, layer, view, made_of_cubes):
    view.select_labels([2])
    with qtbot.waitSignal(view.tables_changed):
        update_pore_layer(layer, made_of_cubes([2, 2, 2, 2, 2, 5]))
    assert view.shown.size == 6
    assert not view.selected.any()
    assert (opacity(layer, 6)[1:] == 1).all()


def test_a_click_selects_the_pore_under_it(viewer, layer, view):
    click(viewer, layer, (0, 0, 6))
    assert view.selected.tolist() == [False, True, False, False]
    click(viewer, layer, (0, 0, 12), "Shift")
    assert view.selected.tolist() == [False, True, True, False]
    click(viewer, layer, (0, 0, 6), "Control")
    assert view.selected.tolist() == [False, False, True, False]
    click(viewer, layer, (0, 5, 0))
    assert not view.selected.any()


def test_a_drag_and_a_click_while_painting_select_nothing(viewer, layer, view):
    click(viewer, layer, (0, 0, 6), drag=30)
    assert not view.selected.any()
    layer.mode = "paint"
    click(viewer, layer, (0, 0, 6))
    assert not view.selected.any()


def test_in_3d_a_click_sees_through_what_is_hidden(viewer, layer, view):
    viewer.dims.ndisplay = 3
    start = layer.data_to_world((1, 1, -5))
    assert view.label_at(start, np.array((0, 0, 1.0)), [0, 1, 2]) == 1
    view.show_only(np.array([False, True, True, True]))
    assert view.label_at(start, np.array((0, 0, 1.0)), [0, 1, 2]) == 2


def on_disk(values):
    """Return values as they are where they lie on disk."""

    def read(number, out):
        out[...] = values[number]

    return PlaneStack(np.arange(len(values)), values.shape[1:], values.dtype, read)


@pytest.mark.parametrize("kind", [np.asarray, on_disk])
@pytest.mark.parametrize("has_levels", [True, False])
def test_pores_on_disk_and_of_several_levels_are_clicked_too(
    qapp, viewer, made_of_cubes, kind, has_levels
):
    result = made_of_cubes([6, 6])
    data, keywords, _ = pore_layer(result, "pores")
    levels = [kind(data), kind(np.ascontiguousarray(data[::2, ::2, ::2]))]
    shown = levels if has_levels else levels[0]
    layer = viewer.add_labels(shown, **{**keywords, "multiscale": has_levels})
    view = PoreView.of(viewer, layer)
    viewer.dims.set_current_step(0, 1)
    click(viewer, layer, (1, 1, 9))
    assert view.selected.tolist() == [False, True]
    click(viewer, layer, (1, 6, 9))
    assert not view.selected.any()
    viewer.dims.ndisplay = 3
    for start, direction, seen in (((1, 1, -5), (0, 0, 1), 1), ((1, 1, 30), (0, 0, -1), 2)):
        place, way = layer.data_to_world(start), np.array(direction, float)
        assert view.label_at(place, way, [0, 1, 2]) == seen
    view.close()


def test_the_slice_of_a_pore_is_shown_unless_it_is_already(viewer, layer, view):
    viewer.dims.set_point(0, layer.data_to_world((4, 0, 0))[0])
    view.go_to(2)
    assert viewer.dims.point[0] == 8
    view.go_to(0)
    assert viewer.dims.point[0] == 0


def test_a_view_goes_with_its_last_user_or_its_layer(viewer, layer, view):
    own = layer.colormap
    first, second = object(), object()
    view.attach(first)
    view.attach(second)
    view.colour_by("sphericity")
    view.detach(first)
    assert layer.colormap is not own
    view.detach(second)
    assert layer.colormap is own
    again = PoreView.of(viewer, layer)
    assert again is not view
    viewer.layers.remove(layer)
    assert id(layer) not in PoreView._of_layer


def test_too_many_labels_for_napari_keep_their_colours(monkeypatch, viewer, layer, view):
    monkeypatch.setattr(pore_view, "MAX_COLOURS", 3)
    own = layer.colormap
    assert not view.can_colour
    view.select_labels([2])
    assert layer.colormap is own
    assert view.selected.tolist() == [False, True, False, False]


def kinds_of(values, name="group"):
    return [(kind.word, kind.rows.tolist()) for kind in categories_of(pd.Series(values, name=name))]


@pytest.mark.parametrize(
    ("values", "is_one"),
    [
        ([True, False], True),
        (["a", "b", "a"], True),
        (pd.Categorical(["a", "b"]), True),
        ([f"pore {number}" for number in range(9)], False),
        ([1, 2, 1], False),
        ([0.5, 1.5], False),
    ],
)
def test_yes_and_no_and_a_few_words_are_kinds(values, is_one):
    assert is_categorical(pd.Series(values)) == is_one


def test_kinds_are_in_order_and_every_pore_is_of_one():
    assert kinds_of(["b", "a", "b"]) == [("a", [False, True, False]), ("b", [True, False, True])]


def test_yes_and_no_are_said_in_the_words_of_the_column():
    assert [word for word, _ in kinds_of([True, False], "is_open")] == ["closed", "open"]
    assert [word for word, _ in kinds_of([True, False], "touches_border")] == [
        "inside",
        "cut by a face",
    ]
    assert [word for word, _ in kinds_of([True, False], "anything")] == ["no", "yes"]


def test_a_kind_has_the_same_colour_whether_or_not_others_occur():
    (alone,) = categories_of(pd.Series([True, True], name="is_open"))
    both = categories_of(pd.Series([True, False], name="is_open"))
    assert alone.colour == both[1].colour == PALETTE[1]


def test_what_is_missing_is_of_no_kind():
    *_, last = categories_of(pd.Series(["a", None, "b"], dtype=object))
    assert (last.word, last.colour) == ("unknown", MISSING)
    assert last.rows.tolist() == [False, True, False]
