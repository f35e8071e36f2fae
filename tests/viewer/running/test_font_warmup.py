"""The line on the canvas and its letters are there before they are needed."""

from napari.components import ViewerModel
from qtpy.QtCore import QObject

from hushpore.viewer.running.font_warmup import LETTERS, Glyphs, _fonts


def test_every_letter_is_made_ready_while_nothing_else_goes_on(qtbot, make_napari_viewer):
    viewer = make_napari_viewer()
    parent = QObject()
    ready = Glyphs(parent, viewer)
    qtbot.waitUntil(lambda: not ready._timer.isActive(), timeout=20_000)
    (font,) = _fonts()
    assert set(LETTERS) <= set(font._glyphs)


def test_the_line_is_made_ready_unseen_and_the_overlay_is_left_as_it_was(qtbot):
    viewer = ViewerModel()
    viewer.canvas.overlays.text.text = "Fig. 1"
    shown = []
    viewer.canvas.overlays.text.events.visible.connect(
        lambda: shown.append(viewer.canvas.overlays.text.text)
    )
    parent = QObject()
    ready = Glyphs(parent, viewer)
    qtbot.waitUntil(lambda: not ready._timer.isActive(), timeout=20_000)
    assert shown == [" ", " "]
    assert viewer.canvas.overlays.text.text == "Fig. 1"
    assert not viewer.canvas.overlays.text.visible


def test_a_text_of_the_user_stays(qtbot):
    viewer = ViewerModel()
    viewer.canvas.overlays.text.text, viewer.canvas.overlays.text.visible = "Fig. 1", True
    parent = QObject()
    ready = Glyphs(parent, viewer)
    qtbot.waitUntil(lambda: not ready._timer.isActive(), timeout=20_000)
    assert viewer.canvas.overlays.text.text == "Fig. 1"
    assert viewer.canvas.overlays.text.visible


def test_without_a_canvas_nothing_is_done(qtbot, monkeypatch):
    monkeypatch.setattr("hushpore.viewer.running.font_warmup._fonts", list)
    parent = QObject()
    ready = Glyphs(parent, ViewerModel())
    ready._make_one()
    assert next(ready._left) == LETTERS[1]
    qtbot.waitUntil(lambda: not ready._timer.isActive(), timeout=20_000)
