"""The letters of the line on the canvas are there before they are needed."""

from qtpy.QtCore import QObject

from hushpore.viewer.glyphs import LETTERS, Glyphs, _fonts


def test_every_letter_is_made_ready_while_nothing_else_goes_on(qtbot, make_napari_viewer):
    make_napari_viewer()
    parent = QObject()
    ready = Glyphs(parent)
    qtbot.waitUntil(lambda: not ready._timer.isActive(), timeout=20_000)
    (font,) = _fonts()
    assert set(LETTERS) <= set(font._glyphs)


def test_without_a_canvas_nothing_is_done(qtbot, monkeypatch):
    monkeypatch.setattr("hushpore.viewer.glyphs._fonts", list)
    parent = QObject()
    ready = Glyphs(parent)
    ready._make_one()
    assert not ready._timer.isActive()
