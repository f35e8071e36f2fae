from types import SimpleNamespace

import pytest
from napari._qt.dialogs.qt_notification import NapariQtNotification
from napari.utils.notifications import NotificationSeverity, notification_manager
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QWidget

from hushpore import InputError
from hushpore.viewer.running.problem import explain, notify_note, offer_action


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_input_error_speaks_for_itself():
    problem = explain(raised(InputError("The scan is constant.")))
    assert problem.message == "The scan is constant."
    assert problem.expected


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate"), "GPU ran out of memory"),
        (MemoryError(), "not enough memory"),
        (PermissionError(13, "Permission denied", "/scan"), "No permission to access /scan."),
        (FileNotFoundError(2, "No such file", "/scan"), "The file no longer exists: /scan."),
        (ZeroDivisionError("division by zero"), "division by zero (ZeroDivisionError)"),
        (KeyError(), "KeyError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_errors_are_put_into_words(error, words):
    problem = explain(raised(error))
    assert words in problem.message
    assert "\n" not in problem.message
    assert not problem.expected


def test_the_details_hold_the_traceback_and_the_versions():
    details = explain(raised(ZeroDivisionError("by zero"))).details
    assert "Traceback" in details
    assert "hushpore 0" in details
    assert "Python 3" in details


def test_a_warning_with_a_button_is_shown_in_full_until_it_is_answered(qtbot):
    parent = QWidget()
    qtbot.addWidget(parent)
    # which napari makes where a window is open
    long = "It is damaged, or made to fill the memory. " * 9
    texts = long, "Another"
    dialogs = [NapariQtNotification(text, "warning", parent=parent) for text in texts]
    viewer = SimpleNamespace(window=SimpleNamespace(main_menu=parent))
    pressed = []
    offer_action(viewer, long, "Go on", pressed.append, NotificationSeverity.WARNING)
    assert [bool(each.property("expanded")) for each in dialogs] == [True, False]
    message = dialogs[0].message
    wrapped = message.fontMetrics().boundingRect(
        0, 0, message.width(), 10_000, Qt.TextFlag.TextWordWrap, long
    )
    assert message.minimumHeight() >= wrapped.height() > 3 * message.fontMetrics().height()
    assert not dialogs[0].DISMISS_AFTER
    note = notification_manager.records.pop()
    assert note.source == "hushpore"
    ((text, act),) = note.actions
    act(1)
    assert (text, pressed) == ("Go on", [1])


def test_a_note_is_shown_in_full_in_the_corner_for_as_long_as_it_takes_to_read(qtbot):
    parent = QWidget()
    parent.resize(800, 600)
    qtbot.addWidget(parent)
    parent.show()
    long = "The voxel size, 19.8 µm, is taken from rock_rec.log. " * 4
    dialog = NapariQtNotification(long, "info", parent=parent)
    dialog.show()
    viewer = SimpleNamespace(window=SimpleNamespace(main_menu=parent))
    notify_note(viewer, long)
    # the sliders of a new layer make the canvas lower while the box grows
    parent.resize(800, 560)
    assert dialog.property("expanded")
    assert dialog.timer.isActive()
    assert 10_000 < dialog.timer.interval() < 20_000
    qtbot.waitUntil(lambda: dialog.geometry().bottomRight() == QPoint(800 - 9, 560 - 9))
    assert dialog.message.height() >= dialog.message.minimumHeight() > 60
    assert notification_manager.records.pop().message == long
