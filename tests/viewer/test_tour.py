"""The guided tour leads through the widgets, each in front when its step is shown."""

from hushpore.viewer.layers.start import LINKS
from hushpore.viewer.segment.widget import PoresWidget
from hushpore.viewer.tour import STEPS, take_tour


def test_every_step_shows_its_widget_in_front(make_napari_viewer, qtbot):
    viewer = make_napari_viewer(show=True)
    take_tour(viewer)
    window = viewer.window._qt_window
    tooltip = window._viewer_tour._tooltip
    for number, (_name, title, text) in enumerate(STEPS):
        qtbot.waitUntil(lambda title=title: tooltip._title.text() == title)
        assert tooltip._body.text() == text
        assert not window._viewer_tour._steps[number].target().visibleRegion().isEmpty()
        assert tooltip._counter.text() == f"{number + 1}/{len(STEPS)}"
        if number < len(STEPS) - 1:
            tooltip._next.click()
    with qtbot.waitSignal(window._viewer_tour.destroyed):
        tooltip._next.click()
    assert window._viewer_tour is None


def test_an_empty_window_has_a_link_to_the_tour(make_napari_viewer, qtbot):
    viewer = make_napari_viewer(show=True)
    widget = PoresWidget(viewer)
    viewer.window.add_dock_widget(widget, name="Pores")
    assert LINKS["take tour"] in widget._facts.html
    widget._follow("take tour")
    tour = viewer.window._qt_window._viewer_tour
    with qtbot.waitSignal(tour.destroyed):
        tour.close_tour()
