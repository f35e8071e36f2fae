"""The line on the canvas is written and given back; it and its letters are there beforehand."""

import threading
from contextlib import nullcontext

import pytest
from napari.components import ViewerModel
from psygnal import EmitLoopError
from qtpy.QtWidgets import QWidget

from hushpore.viewer.running.status import LETTERS, FontWarmup, StatusLine, _fonts
from hushpore.viewer.running.worker import JobWorker, calling


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


@pytest.mark.parametrize(("kind", "is_raised"), [(RuntimeError, False), (ValueError, True)])
def test_a_canvas_that_is_gone_is_not_written_on(viewer, overlay, kind, is_raised):
    line = StatusLine(viewer)
    line.show("training")

    def draw(*_):
        raise kind("Internal C++ object already deleted.")

    overlay.events.visible.connect(draw)
    with pytest.raises(EmitLoopError) if is_raised else nullcontext():
        line.remove()


def test_every_letter_is_made_ready_while_nothing_else_goes_on(qtbot, make_napari_viewer):
    viewer = make_napari_viewer()
    parent = QWidget()
    ready = FontWarmup(parent, viewer)
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)
    (font,) = _fonts()
    assert set(LETTERS) <= set(font._glyphs)


def test_the_line_is_made_ready_unseen_and_the_overlay_is_left_as_it_was(qtbot):
    viewer = ViewerModel()
    viewer.canvas.overlays.text.text = "Fig. 1"
    shown = []
    viewer.canvas.overlays.text.events.visible.connect(
        lambda: shown.append(viewer.canvas.overlays.text.text)
    )
    parent = QWidget()
    ready = FontWarmup(parent, viewer)
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)
    assert shown == [" ", " "]
    assert viewer.canvas.overlays.text.text == "Fig. 1"
    assert not viewer.canvas.overlays.text.visible


def test_a_text_of_the_user_stays_while_the_font_is_made_ready(qtbot):
    viewer = ViewerModel()
    viewer.canvas.overlays.text.text, viewer.canvas.overlays.text.visible = "Fig. 1", True
    parent = QWidget()
    ready = FontWarmup(parent, viewer)
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)
    assert viewer.canvas.overlays.text.text == "Fig. 1"
    assert viewer.canvas.overlays.text.visible


def test_the_blank_line_gives_way_to_that_of_a_job(qtbot):
    viewer = ViewerModel()
    overlay = viewer.canvas.overlays.text
    overlay.text = "Fig. 1"
    parent = QWidget()
    ready = FontWarmup(parent, viewer)
    qtbot.waitUntil(lambda: overlay.text == " ", timeout=20_000)
    ready.give_way()
    line = StatusLine(viewer)
    line.show("Denoise scan: training, 25 %")
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)
    assert (overlay.text, overlay.visible) == ("Denoise scan: training, 25 %", True)
    line.remove()
    assert (overlay.text, overlay.visible) == ("Fig. 1", False)


@pytest.mark.usefixtures("no_job_running")
def test_no_letter_is_made_while_libraries_are_imported_unless_a_job_begins(
    qtbot, make_napari_viewer
):
    viewer, ends = make_napari_viewer(), threading.Event()
    imports = JobWorker(lambda: calling(ends.wait))
    imports.start()
    parent = QWidget()
    ready = FontWarmup(parent, viewer)
    qtbot.wait(200)
    assert next(ready._left) == LETTERS[0]
    ready.give_way()
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)
    with qtbot.waitSignal(imports.returned):
        ends.set()


def test_without_a_canvas_nothing_is_done(qtbot, monkeypatch):
    monkeypatch.setattr("hushpore.viewer.running.status._fonts", list)
    parent = QWidget()
    ready = FontWarmup(parent, ViewerModel())
    ready._make_letter()
    assert next(ready._left) == LETTERS[1]
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)


def test_while_a_scan_is_read_letters_alone_are_made_ready(qtbot, make_napari_viewer):
    viewer = make_napari_viewer()
    shown = []
    viewer.canvas.overlays.text.events.visible.connect(shown.append)
    parent = QWidget()
    ready = FontWarmup(parent)
    qtbot.waitUntil(lambda: ready.is_ready, timeout=20_000)
    (font,) = _fonts()
    assert set(LETTERS) <= set(font._glyphs)
    assert shown == []
