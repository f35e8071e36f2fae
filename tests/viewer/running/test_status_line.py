import pytest

from hushpore.viewer.running.status_line import POSITION, StatusLine


@pytest.fixture
def overlay(viewer):
    return viewer.canvas.overlays.text


def shown(overlay):
    return overlay.text, bool(overlay.visible)


def test_it_is_written_and_given_back(viewer, overlay):
    overlay.text = "mine"
    line = StatusLine(viewer)
    line.show("training, 10 %")
    line.show("training, 20 %")
    assert shown(overlay) == ("training, 20 %", True)
    line.remove()
    assert shown(overlay) == ("mine", False)


def test_the_place_of_the_text_is_given_back_unless_the_user_has_moved_it(viewer, overlay):
    overlay.position = "bottom_center"
    line = StatusLine(viewer)
    line.show("training")
    assert overlay.position == POSITION
    line.remove()
    assert overlay.position == "bottom_center"
    line = StatusLine(viewer)
    line.show("training")
    overlay.position = "top_right"
    line.remove()
    assert overlay.position == "top_right"


def test_a_text_of_the_user_stays(viewer, overlay):
    overlay.text, overlay.visible = "Fig. 1", True
    line = StatusLine(viewer)
    line.show("training")
    assert shown(overlay) == ("Fig. 1", True)
    line.remove()
    assert shown(overlay) == ("Fig. 1", True)


@pytest.mark.parametrize("change", [{"visible": False}, {"text": "Fig. 1"}], ids=str)
def test_what_the_user_changes_meanwhile_stays(viewer, overlay, change):
    line = StatusLine(viewer)
    line.show("training, 10 %")
    overlay.update(change)
    theirs = shown(overlay)
    line.show("training, 20 %")
    line.remove()
    assert shown(overlay) == theirs


def test_of_two_jobs_the_first_writes(viewer, overlay):
    first, second = StatusLine(viewer), StatusLine(viewer)
    first.show("denoising")
    second.show("pores")
    assert overlay.text == "denoising"
    first.remove()
    second.remove()
    assert shown(overlay) == ("", False)
