import time

import numpy as np
import pytest
from qtpy.QtCore import QEvent, QObject, Qt, QTimer
from qtpy.QtWidgets import QApplication, QProgressBar, QVBoxLayout, QWidget

from hushpore.viewer.running.redraw import (
    LAYOUT_DELAY,
    MAX_DELAY,
    RedrawThrottle,
    coalesce_redraws,
    keep_label_shader,
    redraws_suspended,
    run_in_steps,
)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def changes(seconds, drawing):
    """Count the changes in a time in which each takes `drawing` seconds to be drawn."""
    clock = Clock()
    pace, count = RedrawThrottle(clock), 0
    while clock.now < 100.0 + seconds:
        if pace.is_due():
            count += 1
            pace.begin()
            clock.now += drawing
            pace.end()
        clock.now += 0.125
    return count


def test_what_is_drawn_fast_is_drawn_at_every_look():
    assert changes(100, drawing=0.0005) == pytest.approx(800, rel=0.02)


def test_drawing_takes_a_hundredth_of_the_time():
    assert changes(100, drawing=0.02) * 0.02 == pytest.approx(1, rel=0.2)


def test_however_slow_drawing_is_something_is_seen_every_few_seconds():
    assert changes(100, drawing=0.5) == pytest.approx(100 / (MAX_DELAY + 0.5), rel=0.1)


def test_nothing_is_changed_before_the_last_change_is_drawn():
    pace = RedrawThrottle(Clock())
    pace.begin()
    assert not pace.is_due()
    pace.end()
    assert pace.is_due()


def test_an_end_without_a_beginning_changes_nothing():
    pace = RedrawThrottle(Clock())
    pace.end()
    assert pace.is_due()


class Count(QObject):
    """Counts the events of one type that reach a widget."""

    def __init__(self, widget, kind):
        super().__init__()
        self.kind, self.count = kind, 0
        widget.installEventFilter(self)

    def eventFilter(self, watched, event):  # noqa: N802
        self.count += event.type() == self.kind
        return False


@pytest.fixture
def window(qtbot):
    """A window with two bars that has been drawn."""
    window = QWidget()
    qtbot.addWidget(window)
    column, bars = QVBoxLayout(window), [QProgressBar(), QProgressBar()]
    for bar in bars:
        column.addWidget(bar)
    window.show()
    qtbot.waitExposed(window)
    qtbot.wait(50)
    window.bars = bars
    return window


def change(bars):
    """Change both: a bar draws itself at once where its value changes, and one in a later turn."""
    bars[0].setValue(30)
    QTimer.singleShot(0, lambda: bars[1].setValue(60))


def test_what_changes_in_a_turn_and_follows_it_is_drawn_at_once(qtbot, window):
    bars = window.bars
    drawings = Count(window, QEvent.Type.UpdateRequest)
    painted = [Count(bar, QEvent.Type.Paint) for bar in bars]
    change(bars)
    qtbot.wait(100)
    one_by_one = drawings.count
    bars[0].setValue(10)
    bars[1].setValue(10)
    qtbot.wait(100)
    drawings.count, told = 0, []
    for each in painted:
        each.count = 0
    coalesce_redraws(bars[0], lambda: told.append(drawings.count))
    change(bars)
    assert drawings.count == 0
    qtbot.wait(100)
    assert drawings.count == 1 < one_by_one
    assert told == [0]
    assert [each.count for each in painted] == [1, 1]


def test_events_come_between_long_work_and_its_drawing(qtbot, window):
    events, told = Count(window, QEvent.Type.User), []

    def follow():
        QApplication.postEvent(window, QEvent(QEvent.Type.User))
        time.sleep(2e-3 * LAYOUT_DELAY)

    coalesce_redraws(window, lambda: told.append(events.count))
    QTimer.singleShot(0, follow)
    time.sleep(2e-3 * LAYOUT_DELAY)
    qtbot.waitUntil(lambda: bool(told))
    assert told == [1]


def test_the_window_is_drawn_however_fast_changes_follow_each_other(qtbot, window):
    drawings, values = Count(window, QEvent.Type.UpdateRequest), iter(range(1, 100))

    def change():
        coalesce_redraws(window)
        window.bars[0].setValue(next(values))

    changes = QTimer(interval=LAYOUT_DELAY // 2, timeout=change)
    changes.start()
    qtbot.waitUntil(lambda: drawings.count >= 3)
    changes.stop()
    assert window.bars[0].value() < 50


def test_the_window_may_be_gone_before_it_is_drawn(qtbot):
    window = QWidget()
    coalesce_redraws(window, lambda: pytest.fail("there is nothing to be drawn"))
    with qtbot.waitSignal(window.destroyed):
        window.deleteLater()
    qtbot.wait(100)


def test_nothing_is_drawn_while_events_are_handled_in_between(qtbot, window):
    drawings = Count(window, QEvent.Type.Paint)
    with redraws_suspended(window.bars[0]):
        # draws itself in an event of its own
        window.bars[1].setValue(60)
        window.bars[1].update()
        qtbot.wait(50)
        window.setStyleSheet("background: black")
        qtbot.wait(50)
        assert drawings.count == 0
    qtbot.wait(50)
    assert drawings.count == 1


def test_another_window_is_drawn_meanwhile(qtbot, window):
    other = QProgressBar()
    qtbot.addWidget(other)
    other.show()
    qtbot.waitExposed(other)
    qtbot.wait(50)
    drawings = Count(other, QEvent.Type.Paint)
    with redraws_suspended(window.bars[0]):
        other.update()
        qtbot.waitUntil(lambda: drawings.count > 0)


def test_no_filter_is_left_on_the_application_or_the_window(qtbot, window, monkeypatch):
    filters = []
    for kind in (QWidget, QApplication):
        monkeypatch.setattr(
            kind, "installEventFilter", lambda self, by: filters.append((self, by)), raising=False
        )
        monkeypatch.setattr(
            kind, "removeEventFilter", lambda self, by: filters.remove((self, by)), raising=False
        )
    with redraws_suspended(window.bars[0]):
        assert [watched for watched, _ in filters] == [window]
    assert not filters


def test_the_window_may_end_in_one_of_the_events(qtbot):
    window = QWidget()
    window.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    window.show()
    with redraws_suspended(window), qtbot.waitSignal(window.destroyed):
        window.close()


def test_other_labels_are_shown_without_code_compiled_anew(make_napari_viewer, monkeypatch):
    viewer = make_napari_viewer()
    layer = viewer.add_labels(np.ones((4, 4), np.int32))
    drawn = viewer.window._qt_viewer.canvas.layer_to_visual[layer]
    made = []
    before = type(drawn)._on_colormap_change
    monkeypatch.setattr(
        type(drawn),
        "_on_colormap_change",
        lambda self, event=None: (made.append(1), before(self, event))[1],
    )
    layer.data = np.full((4, 4), 2, np.int32)
    assert made, "napari compiles for other labels: without that nothing need be kept"
    keep_label_shader(layer)
    made.clear()
    layer.data = np.full((4, 4), 3, np.int32)
    assert not made
    assert (layer._slice.image.raw == 3).all()
    assert drawn._data.max() > 0
    # another type needs other code, and has it
    layer.data = np.full((4, 4), 3, np.uint8)
    assert made


def test_between_pieces_of_work_the_window_is_drawn_and_lives(qtbot, window):
    drawings, seen, beats = Count(window, QEvent.Type.UpdateRequest), [], [0]

    def beat():
        beats[0] += 1

    timer = QTimer(interval=5, timeout=beat)
    timer.start()

    def work():
        for number in range(3):
            seen.append((drawings.count, beats[0]))
            window.bars[0].setValue(10 + number)
            yield

    run_in_steps(window, work())
    assert len(seen) == 1
    qtbot.waitUntil(lambda: len(seen) == 3)
    drawn, lived = zip(*seen, strict=True)
    assert list(drawn) == sorted(set(drawn))
    assert list(lived) == sorted(set(lived))


def test_work_in_pieces_ends_with_its_widget_and_the_window_is_drawn(qtbot, window):
    drawings, widget = Count(window, QEvent.Type.UpdateRequest), QWidget(window)

    def work():
        yield
        pytest.fail("the widget is gone")

    run_in_steps(widget, work())
    window.bars[0].setValue(30)
    widget.deleteLater()
    qtbot.waitUntil(lambda: drawings.count == 1)
    qtbot.wait(100)


def test_work_in_pieces_ends_with_its_window(qtbot):
    window, done = QWidget(), []

    def work():
        done.append(1)
        yield
        pytest.fail("the window is gone")

    run_in_steps(window, work())
    with qtbot.waitSignal(window.destroyed):
        window.deleteLater()
    qtbot.wait(100)
    assert done == [1]
