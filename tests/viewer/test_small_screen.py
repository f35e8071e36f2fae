"""A window of 1366 x 768 pixels, with Results open, has room for what matters."""

import numpy as np
import pytest
from napari.layers import Layer
from napari.qt import get_stylesheet
from qtpy.QtCore import QPoint, QRect, Qt
from qtpy.QtWidgets import (
    QDockWidget,
    QLabel,
    QListView,
    QMainWindow,
    QScrollArea,
    QStyle,
    QStyleOptionViewItem,
    QTabBar,
    QWidget,
)

from hushpore.base.events import Note, StageTime, Timing
from hushpore.viewer import docks
from hushpore.viewer.docks import DOCKS, IMAGE_SHARE, WIDE
from hushpore.viewer.layers.conversion import METADATA_KEY, PREVIOUS, name_of
from hushpore.viewer.results.pore_layer import pore_layer

#: Width of napari's docks of layers, with the handles beside them.
LEFT = 333

PAGES = [(dock, page) for dock, pages in DOCKS.items() for page in pages]


class Window:
    """A window with docks where napari has them, and the pages in it."""

    def __init__(self, qtbot, viewer):
        self.main = main = QMainWindow()
        qtbot.addWidget(main)
        main.menuBar().addMenu("File")
        main.statusBar().showMessage("ready")
        main.setCentralWidget(QWidget())
        main.resize(1366, 768)
        main.show()
        left = QDockWidget("layers", main)
        left.setWidget(QWidget(minimumWidth=LEFT))
        main.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, left)
        self.docks, self.pages = {}, {}
        for name in DOCKS:
            self.docks[name] = dock = QDockWidget(f"{name} (hushpore)", main)
            self.pages[name] = getattr(docks, f"{name}Pages")(viewer)
            # napari's texts are larger than Qt's, and have a frame
            self.pages[name].setStyleSheet(get_stylesheet("dark"))
            dock.setWidget(self.pages[name])
            main.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, dock)
            qtbot.waitUntil(lambda dock=dock, name=name: dock.windowTitle() == name)
            qtbot.wait(20)
        self._qtbot = qtbot

    def open(self, dock, page):
        self.docks[dock].raise_()
        shown = self.pages[dock].open(page)
        self._qtbot.waitUntil(getattr(shown, "native", shown).isVisible)
        self._qtbot.wait(100)
        return shown


@pytest.fixture
def window(qtbot, viewer, made_of_cubes):
    """The window with a scan and its pores."""
    viewer.add_image(np.random.default_rng(0).random((4, 16, 16), np.float32), name="scan")
    viewer.add_layer(Layer.create(*pore_layer(made_of_cubes([2, 3] * 20), "pores")))
    viewer.layers.selection.active = viewer.layers["scan"]
    return Window(qtbot, viewer)


@pytest.fixture
def pores(qtbot, window):
    """The widget of pores, once its histogram is counted."""
    widget = window.open("Pores", "Pores")
    qtbot.waitUntil(lambda: widget.greys.greys is not None and not widget.greys.is_busy)
    qtbot.wait(100)
    return widget


def is_in_sight(widget):
    return widget.visibleRegion().boundingRect() == QRect(QPoint(0, 0), widget.size())


@pytest.mark.parametrize(("dock", "page"), PAGES)
def test_the_image_keeps_its_share_and_nothing_is_wider_than_its_dock(window, dock, page):
    native = window.open(dock, page)
    native = getattr(native, "native", native)
    image = window.main.centralWidget()
    assert image.width() >= IMAGE_SHARE * window.main.width()
    assert image.height() >= IMAGE_SHARE * window.main.height()
    assert window.main.height() == 768
    assert native.minimumSizeHint().width() <= native.width()
    for column in native.findChildren(QScrollArea):
        if column.isVisible():
            assert column.widget().minimumSizeHint().width() <= column.viewport().width(), page


def test_a_wider_window_leaves_the_rest_to_the_dock_and_a_narrow_one_shrinks_it(qtbot, window):
    window.open("Denoise", "Denoise")
    window.main.resize(1600, 900)
    qtbot.wait(100)
    side = window.docks["Denoise"]
    assert side.width() == WIDE
    # a width of the user's stays
    window.main.resizeDocks([side], [380], Qt.Orientation.Horizontal)
    qtbot.wait(100)
    window.main.resize(1640, 900)
    qtbot.wait(100)
    assert side.width() == 380
    window.main.resize(1400, 800)
    qtbot.wait(100)
    assert window.main.centralWidget().width() >= IMAGE_SHARE * 1400
    assert side.width() < WIDE


def test_the_first_screen_of_pores_needs_no_scroll(pores):
    assert pores._upper.verticalScrollBar().maximum() == 0
    assert is_in_sight(pores.greys.histogram)
    assert pores.greys.histogram.height() >= 90
    for name in ("threshold", "pore_type", "minimum_voxels"):
        assert is_in_sight(pores.form[name].native)
    for part in (pores.layer.native, pores.form.more.button, pores._buttons.run):
        assert is_in_sight(part)


@pytest.mark.parametrize(("dock", "page"), [("Denoise", "Denoise"), ("Pores", "Labels")])
def test_the_first_screen_of_a_job_needs_no_scroll(window, dock, page):
    widget = window.open(dock, page)
    assert widget._upper.verticalScrollBar().maximum() == 0
    assert is_in_sight(widget._buttons.run)


def cut_labels(native):
    """Return the wrapped texts that need more lines than they have."""
    labels = [each for each in native.findChildren(QLabel) if each.isVisible() and each.wordWrap()]
    return [each.text() for each in labels if each.heightForWidth(each.width()) > each.height()]


@pytest.mark.parametrize("width", [1366, 1700])
def test_no_hint_is_cut_whatever_its_length(qtbot, window, pores, width):
    window.main.resize(width, 768)
    lines = list(pores.form._lines.values())
    for words in (3, 60, 12, 1, 30):
        for line in lines:
            line.setText("Otsu -337 HU: void " + "53 % " * words)
            line.show()
        qtbot.wait(50)
        assert cut_labels(pores.native) == []


def test_the_open_timing_is_no_wider_than_its_dock(qtbot, window, pores):
    stage = StageTime(40, 4.5, 0.6, 0.6, 0.1, 0.1, 0.13, voxels_per_second=534.2e6)
    names = ("sample", "distance", "uncertainty", "preparing")
    pores.timing.show_timing(Timing(dict.fromkeys(names, stage), elapsed=20))
    pores.timing.set_open(True)
    qtbot.wait(50)
    lower = pores._lower
    assert lower.widget().width() <= lower.viewport().width() <= window.docks["Pores"].width()


NOTES = [
    "Slice 6 is missing; the median spacing, 4.002 mm, is used for all slices of the series.",
    "Gantry tilt 18.5 degrees: each slice is offset by 1.79 mm, which is not corrected.",
    "The header gives 12 stored bits but bit 15 as the highest; check that this is correct.",
    "The series has 2 localizer images of another shape; they were left out.",
    "The slices have no positions. They were ordered by frame number.",
]


def test_the_histogram_keeps_90_pixels_whatever_the_file_and_the_result_say(qtbot, pores):
    pores.layer.value.metadata[METADATA_KEY] = {"notes": NOTES}
    pores._show_facts()
    pores._result.say("Porosity 20 %, and a line that is long enough to be wrapped " * 4)
    pores._remarks.show_remarks([Note("A remark that takes several lines " * 6)])
    qtbot.wait(200)
    assert pores.greys.histogram.visibleRegion().boundingRect().height() >= 90
    assert "5 notes" in pores._facts.html
    assert "bit 15" not in pores._facts.html
    pores._facts.linkActivated.emit("notes")
    assert "bit 15" in pores._facts.html
    pores._facts.linkActivated.emit("notes")
    assert "bit 15" not in pores._facts.html
    assert pores._facts.text().splitlines()[1:] == NOTES


def test_progress_and_result_are_in_sight(qtbot, pores):
    pores._result.say("Porosity 20 %, and a line that is long enough to be wrapped once or twice")
    pores._progress.begin()
    qtbot.wait(200)
    assert is_in_sight(pores._progress)
    assert is_in_sight(pores._result)
    pores._progress.hide()


def test_messages_keep_their_left_end_where_a_part_is_too_wide(qtbot, pores):
    pores._result.say("Porosity 20 %")
    lower = pores._lower
    lower.widget().setMinimumWidth(lower.viewport().width() + 50)
    qtbot.wait(50)
    lower.bring_into_view(pores._result)
    lower.horizontalScrollBar().setValue(30)
    assert lower.horizontalScrollBar().value() == 0


def test_run_and_cancel_keep_their_place_through_a_run(qtbot, window, pores):
    places = []

    def look():
        qtbot.wait(30)
        for button in (pores._buttons.run, pores._buttons.cancel):
            places.append(
                (button.text()[:6], button.mapTo(window.main, QPoint(0, 0)), button.size())
            )

    look()
    # during a job: progress, notes and timing
    pores._buttons.show_running()
    pores._progress.begin()
    look()
    pores._remarks.show_remarks([Note("A remark that takes several lines " * 6, True)] * 3)
    look()
    pores._remarks._fold.set_open(True)
    look()
    pores.timing.show_totals({"training": 3.0, "denoising": 1.0})
    pores.timing.set_open(True)
    look()
    pores._buttons.show_cancelling()
    look()
    # after it: result, problem, merge height, a longer form
    pores._progress.hide()
    pores._buttons.show_idle("")
    pores._result.say("Porosity 20 %, and a line that is long enough to be wrapped " * 4)
    pores.remerging.show()
    look()
    pores.form.more.button.setChecked(True)
    pores._voxel_size.ask(pores._facts.volume)
    look()
    assert len(set(map(str, places))) == 2
    pores._progress.hide()


def test_the_slider_for_merging_keeps_its_place_while_the_text_above_changes(qtbot, pores):
    pores._result.say("Porosity 20 % (open 19 %, closed 1 %), and 1,204 pores of 0.4 mm " * 2)
    pores.remerging.show()
    qtbot.wait(50)
    before = pores.remerging.y(), pores.remerging.height()
    pores._result.hold_height()
    pores._result.say("Porosity 20 %")
    pores.remerging._note.setText("")
    qtbot.wait(50)
    assert (pores.remerging.y(), pores.remerging.height()) == before
    # until another run
    pores._result.say("")
    assert pores._result.minimumHeight() == 0


def test_twelve_rows_of_the_table_are_in_sight(window):
    table = window.open("Results", "Table").pores
    ends = [table.rowViewportPosition(row) + table.rowHeight(row) for row in range(40)]
    assert sum(end <= table.viewport().height() for end in ends) >= 12


def test_a_page_behind_another_tab_is_hidden_with_its_previews(qtbot, window, pores):
    pores.greys.shown.setChecked(True)
    qtbot.waitUntil(lambda: not pores.greys.is_busy)
    window.open("Results", "Table")
    assert not pores.greys.isVisible()
    assert "scan · void" not in [layer.name for layer in window.pages["Pores"]._viewer.layers]
    window.open("Pores", "Pores")
    assert pores.greys.isVisible()


def test_the_names_of_all_tabs_can_be_read(window):
    bars = [bar for bar in window.main.findChildren(QTabBar) if bar.parent() is window.main]
    (bar,) = [bar for bar in bars if bar.isVisible() and bar.count() > 1]
    names = [bar.tabText(number) for number in range(bar.count())]
    assert names == list(DOCKS)
    for number, name in enumerate(names):
        assert bar.tabRect(number).width() > bar.fontMetrics().horizontalAdvance(name)


def test_names_of_layers_are_not_cut_where_they_differ(qtbot, make_napari_viewer):
    viewer = make_napari_viewer(show=True)
    viewer.window._qt_window.resize(1366, 768)
    scans = ("bread_2024-03-18_rec_0001", "bread_2024-03-18_rec_0002")
    kinds = ("pores", "denoised", "phases", "measured")
    names = [*scans, *(name_of(scan, shows) for scan in scans for shows in kinds)]
    # hidden ones need to differ within their scan
    names += [name_of(scans[0], f"{PREVIOUS.removeprefix(' · ')}{shows}") for shows in kinds]
    for name in names:
        viewer.add_image(np.zeros((2, 2), np.uint8), name=name)
    qtbot.wait(100)
    (view,) = [
        each for each in viewer.window._qt_window.findChildren(QListView)
        if each.model() is not None and each.model().rowCount() == len(names)
    ]  # fmt: skip
    seen = [shown_name(view, view.model().index(row, 0)) for row in range(len(names))]
    assert any("…" in name for name in seen)
    assert len(set(seen)) == len(names), seen


def shown_name(view, index):
    """Return the name of a layer as it is drawn in napari's list of layers."""
    option, delegate = QStyleOptionViewItem(), view.itemDelegate()
    view.initViewItemOption(option)
    option.rect = view.visualRect(index)
    delegate.initStyleOption(option, index)
    delegate.get_layer_icon(option, index)
    part = QStyle.SubElement.SE_ItemViewItemText
    room = view.style().subElementRect(part, option, view).width()
    middle = Qt.TextElideMode.ElideMiddle
    return option.fontMetrics.elidedText(option.text, middle, room)
