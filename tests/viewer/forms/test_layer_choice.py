import numpy as np
import pytest
from napari.layers import Image

from hushpore.viewer.forms.layer_choice import LayerChoice
from hushpore.viewer.layers.conversion import METADATA_KEY, is_result

STACK = np.zeros((3, 8, 8))
RESULT = {METADATA_KEY: {"provenance": {"job": "denoise"}}}


@pytest.fixture
def choice(qtbot, viewer):
    """A choice as the denoiser makes it: images, but not its own results."""
    return make(qtbot, viewer)


def make(qtbot, viewer):
    choice = LayerChoice(
        viewer,
        lambda layer: isinstance(layer, Image) and not layer.rgb,
        lambda layer: isinstance(layer, Image) and not is_result(layer, "denoise"),
    )
    qtbot.addWidget(choice.native)
    return choice


def names(choice):
    return [choice.native.itemText(number) for number in range(choice.native.count())]


def test_an_empty_viewer_offers_nothing_and_says_so(choice):
    assert choice.value is None
    assert not choice.native.isEnabled()
    assert names(choice) == ["no suitable layer"]


def test_only_suitable_layers_are_listed_the_newest_first(viewer, choice):
    viewer.add_image(STACK, name="a")
    viewer.add_labels(STACK.astype(int), name="labels")
    viewer.add_image(np.zeros((8, 8, 3), np.uint8), rgb=True, name="photo")
    viewer.add_image(STACK, name="b")
    assert names(choice) == ["b", "a"]


def test_it_begins_with_the_active_layer(qtbot, viewer):
    first = viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="b")
    viewer.layers.selection.active = first
    assert make(qtbot, viewer).value is first


def test_it_begins_with_the_newest_where_the_active_layer_does_not_suit(qtbot, viewer):
    viewer.add_image(STACK, name="a")
    newest = viewer.add_image(STACK, name="b")
    viewer.add_labels(STACK.astype(int))
    assert make(qtbot, viewer).value is newest


def test_a_file_just_opened_is_taken(viewer, choice):
    viewer.add_image(STACK, name="a")
    newest = viewer.add_image(STACK, name="b")
    assert choice.value is newest


def test_the_jobs_own_result_is_listed_but_not_taken(viewer, choice):
    noisy = viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="a denoised", metadata=RESULT)
    assert names(choice) == ["a denoised", "a"]
    assert choice.value is noisy


def test_a_preview_is_never_listed(viewer, choice):
    viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="preview", metadata={METADATA_KEY: {"preview": True}})
    assert names(choice) == ["a"]


def test_a_preview_that_becomes_a_result_is_taken_as_one(viewer, choice):
    viewer.add_image(STACK, name="a")
    preview = viewer.add_image(
        STACK, name="preview", metadata={METADATA_KEY: {"preview": "filtered"}}
    )
    preview.metadata = {METADATA_KEY: {"provenance": {"job": "filter"}}}
    preview.data = STACK + 1
    assert choice.value is preview


def test_a_choice_of_the_user_stays(viewer, choice):
    first = viewer.add_image(STACK, name="a")
    viewer.add_image(STACK, name="b")
    choice.native.setCurrentIndex(1)
    choice.native.activated.emit(1)
    assert choice.value is first
    viewer.add_image(STACK, name="c")
    assert choice.value is first


def test_selecting_a_layer_in_napari_does_not_change_the_target(viewer, choice):
    first = viewer.add_image(STACK, name="a")
    second = viewer.add_image(STACK, name="b")
    viewer.layers.selection.active = first
    assert choice.value is second


def test_a_renamed_layer_is_shown_with_its_new_name(viewer, choice):
    layer = viewer.add_image(STACK, name="a")
    layer.name = "scan of foam"
    assert names(choice) == ["scan of foam"]
    assert choice.value is layer


def test_another_is_taken_when_the_layer_is_deleted(viewer, choice):
    first = viewer.add_image(STACK, name="a")
    second = viewer.add_image(STACK, name="b")
    told = []
    choice.changed.connect(told.append)
    viewer.layers.remove(second)
    assert told == [first]
    assert choice.value is first
    viewer.layers.remove(first)
    assert choice.value is None
    assert names(choice) == ["no suitable layer"]


def test_moving_layers_changes_the_order_but_not_the_choice(viewer, choice):
    viewer.add_image(STACK, name="a")
    second = viewer.add_image(STACK, name="b")
    viewer.layers.move(1, 0)
    assert names(choice) == ["a", "b"]
    assert choice.value is second
    assert choice.native.currentText() == "b"


def test_a_change_of_the_layers_scale_is_told(viewer, choice):
    layer = viewer.add_image(STACK)
    told = []
    choice.changed.connect(told.append)
    layer.scale = (2, 1, 1)
    assert told == [layer]
