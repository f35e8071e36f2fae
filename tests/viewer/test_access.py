"""All is reached from the keyboard, has a name for a screen reader, and colours to tell apart."""

import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from napari._qt.dialogs.qt_notification import NapariQtNotification
from napari.utils.colormaps import label_colormap
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor, QKeySequence, QShortcut
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QDockWidget,
    QLabel,
    QLineEdit,
    QMainWindow,
    QScrollBar,
    QTabBar,
    QWidget,
)
from skimage.color import deltaE_ciede2000, rgb2lab

import hushpore
from hushpore import Volume
from hushpore.pores.phases.result import COLOURS as PHASE_COLOURS
from hushpore.runs.batch import Batch
from hushpore.sample_data import foam_phantom
from hushpore.viewer.batch import BatchWidget
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.forms.layout import (
    CANCEL,
    NEXT_SLICE,
    PREVIOUS_SLICE,
    REDO_MERGE,
    RUN,
    UNDO_MERGE,
    bind,
)
from hushpore.viewer.layers.reading import SeriesChooser
from hushpore.viewer.patches.widget import PatchesWidget, PatchHistogram
from hushpore.viewer.phases import PhasesWidget
from hushpore.viewer.preferences import PreferencesWidget
from hushpore.viewer.results.compare import CompareWidget
from hushpore.viewer.results.panel import ResultsWidget
from hushpore.viewer.results.plots import _LINE, _MARK, PlotsWidget
from hushpore.viewer.results.pore_layer import _PATH_COLOURS
from hushpore.viewer.results.pore_view import PALETTE
from hushpore.viewer.results.record_panel import RecordWidget
from hushpore.viewer.segment.grey_panel import VOID_COLOUR, WEAK_COLOUR
from hushpore.viewer.segment.widget import MeasureWidget, PoresWidget

WIDGETS = (
    DenoiseWidget,
    PoresWidget,
    PatchesWidget,
    PhasesWidget,
    MeasureWidget,
    BatchWidget,
    ResultsWidget,
    PlotsWidget,
    CompareWidget,
    RecordWidget,
    PreferencesWidget,
)

#: What a person operates.
CONTROLS = (
    QAbstractButton,
    QComboBox,
    QAbstractSpinBox,
    QLineEdit,
    QAbstractSlider,
    QAbstractItemView,
)


@pytest.fixture
def opened(qtbot, viewer, layer):
    """Open a widget in a viewer with an image and a pore result; return its Qt side."""
    viewer.add_image(np.random.default_rng(0).random((4, 16, 16), np.float32), name="scan")

    def make(kind):
        widget = kind(viewer)
        native = getattr(widget, "native", widget)
        qtbot.addWidget(native)
        native.show()
        qtbot.waitExposed(native)
        return widget, native

    return make


@pytest.fixture
def windows(monkeypatch):
    """The classes of what is shown as a window of its own."""
    shown, show = [], QWidget.setVisible

    def watched(widget, visible):
        if visible and widget.isWindow():
            shown.append(type(widget).__name__)
        show(widget, visible)

    monkeypatch.setattr(QWidget, "setVisible", watched)
    return shown


@pytest.mark.parametrize("kind", WIDGETS, ids=lambda kind: kind.__name__)
def test_no_part_of_a_widget_is_a_window_of_its_own_while_it_is_made(qtbot, viewer, windows, kind):
    viewer.add_image(np.zeros((4, 16, 16), np.float32), name="scan")
    widget = kind(viewer)
    qtbot.addWidget(getattr(widget, "native", widget))
    assert not windows


def controls_of(native):
    """Walk the tree of widgets; leave out what Qt makes inside a control."""
    for child in native.children():
        if not isinstance(child, QWidget) or isinstance(child, QScrollBar):
            continue
        takes_focus = bool(child.focusPolicy() & Qt.FocusPolicy.TabFocus)
        if isinstance(child, CONTROLS):
            yield child
        else:
            # a label with links is read and followed, and says its own text
            if takes_focus and not isinstance(child, QLabel):
                yield child
            yield from controls_of(child)


def name_of(control):
    """Return what Qt tells a screen reader of a control.

    By the rules of Qt's own `QAccessibleInterface`, which PyQt does not give to Python: the name
    that was set, else the text of a button, else that of the label whose buddy it is.
    """
    if control.accessibleName():
        return control.accessibleName()
    if isinstance(control, QAbstractButton):
        return control.text().strip()
    if isinstance(control, QTabBar):
        return " ".join(control.tabText(number) for number in range(control.count()))
    labels = control.window().findChildren(QLabel)
    return next((label.text() for label in labels if label.buddy() is control), "")


@pytest.mark.parametrize("kind", WIDGETS)
def test_every_control_has_a_name_and_is_reached_with_the_tab_key(opened, kind):
    _, native = opened(kind)
    check(native)


def check(native):
    found = list(controls_of(native))
    assert found
    nameless = [f"{type(each).__name__}: {each.toolTip()}" for each in found if not name_of(each)]
    assert not nameless
    unreached = [
        name_of(each) for each in found if not each.focusPolicy() & Qt.FocusPolicy.TabFocus
    ]
    assert not unreached


def test_what_is_asked_when_several_series_are_found_is_named_and_reached(qtbot):
    volumes = [Volume(np.zeros((2, 9, 9), np.int16), name=name) for name in ("scout", "head")]
    chooser = SeriesChooser(volumes)
    qtbot.addWidget(chooser)
    check(chooser)
    chooser._thumbnails.cancel()
    assert [chooser._list.item(row).text().splitlines()[0] for row in (0, 1)] == ["scout", "head"]
    assert name_of(chooser._list) == "Series"
    assert chooser._list.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_the_plot_of_groups_is_named_and_reached(qtbot, viewer):
    widget, docked = BatchWidget(viewer), []
    qtbot.addWidget(widget.native)
    dock = SimpleNamespace(setFloating=lambda _: None, resize=lambda *_: None)

    def add(panel, **_):
        docked.append(panel)
        qtbot.addWidget(panel)
        return dock

    widget._viewer = SimpleNamespace(
        window=SimpleNamespace(add_dock_widget=add), theme=viewer.theme, events=viewer.events
    )
    row = {"name": ["a"], "porosity": [0.1], "count": [1], "median_diameter": [2.0], "unit": ["um"]}
    widget.result = Batch(Path("out"), (), pd.DataFrame(row))
    widget.plot()
    check(docked[0])


def test_a_merge_height_is_named_and_reached_where_pores_can_be_merged(opened):
    widget, _ = opened(PoresWidget)
    widget.remerging.show()
    names = [name_of(each) for each in controls_of(widget.remerging)]
    assert {"Undo", "Redo"} <= set(names)
    assert sum("merge height" in name.lower() for name in names) == 2


def test_what_asks_for_consent_has_a_button_that_the_tab_key_reaches(qtbot):
    dialog = NapariQtNotification("It is.", "warning", actions=(("Open anyway", print),))
    qtbot.addWidget(dialog)
    buttons = dialog.findChildren(QAbstractButton)
    (ours,) = [each for each in buttons if each.text() == "Open anyway"]
    assert ours.focusPolicy() & Qt.FocusPolicy.TabFocus


@pytest.mark.parametrize("kind", [DenoiseWidget, PoresWidget, PatchesWidget, PhasesWidget])
def test_the_tab_key_goes_round_through_every_field_of_a_form(opened, kind):
    widget, native = opened(kind)
    round_trip, at = [], native
    while (at := at.nextInFocusChain()) is not native and len(round_trip) < 2000:
        round_trip.append(at)
    for field in widget.form:
        inside = [field.native, *field.native.findChildren(QWidget)]
        assert any(each in round_trip for each in inside), field.name
    assert widget._buttons.run in round_trip
    # what is folded away comes where it is seen, above Run
    last = widget.form[-1].native
    keyed = [
        each
        for each in (last, *last.findChildren(QWidget))
        if each.focusPolicy() & Qt.FocusPolicy.TabFocus and each in round_trip
    ]
    assert keyed
    places = [
        round_trip.index(each) for each in (widget.form.more.button, *keyed, widget._buttons.run)
    ]
    assert places == sorted(places)


def keys_of(native):
    return {shortcut.key().toString(): shortcut for shortcut in native.findChildren(QShortcut)}


def test_run_and_cancel_have_keys(qtbot, opened, fake_job):
    widget, native = opened(DenoiseWidget)
    widget.layer.value = widget._viewer.layers["scan"]
    keys = keys_of(native)
    keys[QKeySequence(RUN).toString()].activated.emit()
    assert widget.is_running
    # the key starts, and never cancels
    keys[QKeySequence(RUN).toString()].activated.emit()
    assert not widget.worker.is_cancelling
    with qtbot.waitSignal(widget._ends.cancelled, timeout=20_000):
        keys[QKeySequence(CANCEL).toString()].activated.emit()
        fake_job.gate.set()
    assert not widget.is_running
    assert "Ctrl" in widget._buttons.run.toolTip() or "⌘" in widget._buttons.run.toolTip()


def test_slices_are_gone_through_without_leaving_the_form(viewer, opened):
    _, native = opened(PoresWidget)
    viewer.dims.set_current_step(0, 2)
    keys = keys_of(native)
    keys[QKeySequence(NEXT_SLICE).toString()].activated.emit()
    assert viewer.dims.current_step[0] == 3
    for _ in range(9):
        keys[QKeySequence(PREVIOUS_SLICE).toString()].activated.emit()
    assert viewer.dims.current_step[0] == 0


def test_steps_of_merging_are_undone_and_redone_by_keys(qtbot, opened, monkeypatch):
    widget, native = opened(PoresWidget)
    done = []
    widget.remerging.show()
    qtbot.waitUntil(lambda: not widget.remerging.visibleRegion().isEmpty())
    monkeypatch.setattr(widget.remerging, "_go_to", done.append)
    keys = keys_of(native)
    keys[QKeySequence(UNDO_MERGE).toString()].activated.emit()
    keys[QKeySequence(REDO_MERGE).toString()].activated.emit()
    assert done == [widget.remerging._position - 1, widget.remerging._position + 1]


def test_a_key_acts_wherever_the_focus_is_while_its_widget_is_seen(qtbot):
    window = QWidget()
    qtbot.addWidget(window)
    elsewhere, one = QLineEdit(window), QWidget(window)
    pressed = []
    bind(one, RUN, lambda: pressed.append(1))
    window.show()
    window.activateWindow()
    elsewhere.setFocus()
    qtbot.waitUntil(elsewhere.hasFocus)
    ctrl = Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(elsewhere, Qt.Key.Key_Return, ctrl)
    assert pressed == [1]
    one.hide()
    qtbot.keyClick(elsewhere, Qt.Key.Key_Return, ctrl)
    assert pressed == [1]


def test_of_tabs_that_share_a_side_the_one_in_front_has_the_key(qtbot):
    window = QMainWindow()
    qtbot.addWidget(window)
    window.setCentralWidget(QLineEdit())
    docks, pressed = [], []
    for number in range(3):
        dock = QDockWidget(str(number), window)
        dock.setWidget(QLineEdit())
        bind(dock.widget(), RUN, partial(pressed.append, number))
        window.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, dock)
        if docks:
            window.tabifyDockWidget(docks[0], dock)
        docks.append(dock)
    window.show()
    window.activateWindow()
    qtbot.waitExposed(window)
    window.centralWidget().setFocus()
    for number in (1, 0, 2, 2):
        docks[number].raise_()
        qtbot.wait(50)
        ctrl = Qt.KeyboardModifier.ControlModifier
        qtbot.keyClick(window.centralWidget(), Qt.Key.Key_Return, ctrl)
    assert pressed == [1, 0, 2, 2]


def test_no_key_is_one_of_naparis(make_napari_viewer):
    from napari.utils.shortcuts import default_shortcuts

    taken = {
        QKeySequence(str(key)).toString() for keys in default_shortcuts.values() for key in keys
    }
    ours = {RUN, CANCEL, PREVIOUS_SLICE, NEXT_SLICE, UNDO_MERGE, REDO_MERGE}
    assert len(ours) == 6
    assert not {QKeySequence(key).toString() for key in ours} & taken


def test_a_range_of_patches_is_chosen_with_the_arrow_keys(qtbot, viewer):
    histogram = PatchHistogram(viewer)
    qtbot.addWidget(histogram)
    histogram.show_values("loss", np.linspace(0, 6, 100))
    qtbot.keyClick(histogram, Qt.Key.Key_Left)
    assert histogram.range == pytest.approx((0, 5.9))
    qtbot.keyClick(histogram, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    assert histogram.range == pytest.approx((0.1, 5.9))
    qtbot.keyClick(histogram, Qt.Key.Key_Escape)
    assert histogram.range is None


#: What red, green and blue light become without one kind of cone (Machado, Oliveira and Fernandes
#: 2009, https://doi.org/10.1109/TVCG.2009.113, severity 1).
SEEN = {
    "protanopia": [
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ],
    "deuteranopia": [
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ],
    "tritanopia": [
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ],
}


def seen_by(colour, matrix):
    values = np.array(QColor(colour).getRgbF()[:3])
    light = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    light = np.clip(np.array(matrix) @ light, 0, 1)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize(
    ("colours", "least"),
    [
        ((VOID_COLOUR, WEAK_COLOUR), 15),
        ((_LINE, _MARK), 15),
        (PALETTE[:2], 15),
        (PALETTE, 5),
        (PHASE_COLOURS, 5),
        (_PATH_COLOURS.values(), 10),
    ],
)
def test_colours_that_mean_something_are_told_apart_by_the_colour_blind(kind, colours, least):
    seen = [rgb2lab(seen_by(colour, SEEN[kind])) for colour in colours]
    nearest = min(deltaE_ciede2000(a, b) for a, b in itertools.combinations(seen, 2))
    # differences of some 2 are just seen side by side
    assert nearest > least


@pytest.mark.parametrize("kind", SEEN)
def test_nearly_all_neighbouring_pores_are_told_apart_by_the_colour_blind(kind):
    # 49 random colours: one pair in 49 has the same for everybody
    found = hushpore.segment_pores(foam_phantom((64, 128, 128), noise=0.05, rings=0).volume)
    pairs = found.throats[["pore_1", "pore_2"]].to_numpy()
    colours = label_colormap(49)
    seen = [
        rgb2lab(seen_by(QColor.fromRgbF(*map(float, colours.map(label))), SEEN[kind]))
        for label in range(pairs.max() + 1)
    ]
    away = deltaE_ciede2000(*(np.array(seen)[each] for each in pairs.T))
    assert len(away) > 200
    assert np.mean(away > 5) > 0.95


def test_the_check_of_colours_finds_red_and_green_alike():
    alike = [rgb2lab(seen_by(colour, SEEN["deuteranopia"])) for colour in ("#b35a00", "#6b7a00")]
    apart = [rgb2lab(np.array(QColor(c).getRgbF()[:3])) for c in ("#b35a00", "#6b7a00")]
    assert deltaE_ciede2000(*alike) < 0.5 * deltaE_ciede2000(*apart)
