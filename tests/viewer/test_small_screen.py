"""A window of 1366 x 768 pixels, with Results open, has room for what matters."""

import numpy as np
import pytest
from napari.layers import Layer
from qtpy.QtCore import QPoint, QRect, Qt
from qtpy.QtWidgets import QDockWidget, QMainWindow, QTabBar, QWidget

from hushpore.base.events import Note
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.patches.widget import PatchesWidget
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.pore_layer import pore_layer
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def window(qtbot, viewer, made_of_cubes):
    """A window with docks where napari has them, and what is in it by name."""
    viewer.add_image(np.random.default_rng(0).random((4, 16, 16), np.float32), name="scan")
    viewer.add_layer(Layer.create(*pore_layer(made_of_cubes([2, 3] * 20), "pores")))
    viewer.layers.selection.active = viewer.layers["scan"]
    main = QMainWindow()
    qtbot.addWidget(main)
    main.menuBar().addMenu("File")
    main.statusBar().showMessage("ready")
    main.setCentralWidget(QWidget())
    main.resize(1366, 768)
    main.show()
    kinds = {"": QWidget, "Denoise": DenoiseWidget, "Show patches": PatchesWidget}
    kinds |= {"Segment pores": PoresWidget, "Results": ResultsWidget}
    widgets, docks = {}, {}
    for name, kind in kinds.items():
        widgets[name] = kind(viewer) if name else QWidget(minimumWidth=320)
        docks[name] = QDockWidget(f"{name} (hushpore)", main)
        if name == "Results":
            # as napari's title bar of what lies below
            docks[name].setFeatures(QDockWidget.DockWidgetFeature.DockWidgetVerticalTitleBar)
        docks[name].setWidget(getattr(widgets[name], "native", widgets[name]))
        area = (
            Qt.DockWidgetArea.RightDockWidgetArea if name else Qt.DockWidgetArea.LeftDockWidgetArea
        )
        main.addDockWidget(area, docks[name])
        qtbot.wait(100)
    docks["Segment pores"].raise_()
    below = Qt.DockWidgetArea.BottomDockWidgetArea
    qtbot.waitUntil(lambda: main.dockWidgetArea(docks["Results"]) == below, timeout=10_000)
    qtbot.wait(300)
    return main, widgets


def is_in_sight(widget):
    return widget.visibleRegion().boundingRect() == QRect(QPoint(0, 0), widget.size())


def test_run_progress_and_result_are_in_sight_beside_results(qtbot, window):
    main, widgets = window
    pores = widgets["Segment pores"]
    long = "Porosity 20 %, and a line that is long enough to be wrapped once or twice"
    pores._result.say(long)
    pores._progress.begin()
    qtbot.wait(200)
    assert main.height() == 768
    assert is_in_sight(pores._buttons.run)
    assert is_in_sight(pores._progress)
    assert is_in_sight(pores._result)
    # and the form has its share
    assert pores._upper.height() > 0.3 * pores.native.height()
    pores._progress.hide()


NOTES = [
    "Slice 6 is missing; the median spacing, 4.002 mm, is used for all slices of the series.",
    "Gantry tilt 18.5 degrees: each slice is offset by 1.79 mm, which is not corrected.",
    "The header gives 12 stored bits but bit 15 as the highest; check that this is correct.",
    "The series has 2 localizer images of another shape; they were left out.",
    "The slices have no positions. They were ordered by frame number.",
]


def test_the_histogram_keeps_80_pixels_beside_results_whatever_the_file_says(qtbot, window):
    pores = window[1]["Segment pores"]
    pores.layer.value.metadata[METADATA_KEY] = {"notes": NOTES}
    pores._show_facts()
    qtbot.waitUntil(lambda: pores.greys.greys is not None and not pores.greys.is_busy)
    pores._result.say("Porosity 20 %, and a line that is long enough to be wrapped " * 4)
    pores._remarks.show_remarks([Note("A remark that takes several lines " * 6)])
    qtbot.wait(200)
    assert pores.greys.histogram.visibleRegion().boundingRect().height() >= 80
    assert "5 notes" in pores._facts.html
    assert "bit 15" not in pores._facts.html
    pores._facts.linkActivated.emit("notes")
    assert "bit 15" in pores._facts.html
    pores._facts.linkActivated.emit("notes")
    assert "bit 15" not in pores._facts.html
    assert pores._facts.text().splitlines()[1:] == NOTES


def test_run_and_cancel_keep_their_place_through_a_run(qtbot, window):
    main, widgets = window
    pores = widgets["Segment pores"]
    places = []

    def look():
        qtbot.wait(30)
        for button in (pores._buttons.run, pores._buttons.cancel):
            places.append((button.text()[:6], button.mapTo(main, QPoint(0, 0)), button.size()))

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


def test_the_slider_for_merging_keeps_its_place_while_the_text_above_changes(qtbot, window):
    pores = window[1]["Segment pores"]
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
    table = window[1]["Results"].pores
    ends = [table.rowViewportPosition(row) + table.rowHeight(row) for row in range(40)]
    assert sum(end <= table.viewport().height() for end in ends) >= 12


@pytest.mark.parametrize("column", ["equivalent_diameter", "is_open"])
def test_all_controls_of_results_are_in_sight_with_a_legend_of_the_colours(qtbot, window, column):
    results = window[1]["Results"]
    results.colours.by.choose(column)
    qtbot.wait(100)
    assert is_in_sight(results.colours.bar if column != "is_open" else results.colours.legend)
    for control in (results._in_3d, results._save_3d, results._filter, results._range):
        assert is_in_sight(control)


def test_the_names_of_all_tabs_can_be_read(window):
    main, _ = window
    bars = [bar for bar in main.findChildren(QTabBar) if bar.parent() is main]
    (bar,) = [bar for bar in bars if bar.isVisible() and bar.count() > 1]
    names = [bar.tabText(number) for number in range(bar.count())]
    assert names == ["Denoise", "Patches", "Pores"]
    for number, name in enumerate(names):
        assert bar.tabRect(number).width() > bar.fontMetrics().horizontalAdvance(name)
    assert bar.tabRect(len(names) - 1).right() <= bar.width()


@pytest.mark.parametrize("unfolded", [False, True])
def test_nothing_is_wider_than_its_column(qtbot, window, unfolded):
    for name, widget in window[1].items():
        if hasattr(widget, "_upper"):
            widget.form.more.button.setChecked(unfolded)
            qtbot.wait(10)
            for column in (widget._upper, widget._lower):
                # a twentieth to spare, for fonts are wider elsewhere
                room = 0.95 * column.viewport().width()
                assert column.widget().minimumSizeHint().width() <= room, name
