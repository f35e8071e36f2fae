from types import SimpleNamespace

import pytest
from napari._qt.dialogs.qt_notification import NapariQtNotification
from napari.utils.notifications import NotificationSeverity, notification_manager
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QWidget

from hushpore import InputError
from hushpore.viewer.running.problem import explain, offer_action


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
    texts = f"{long}\n\n", "Another"
    dialogs = [NapariQtNotification(text, "warning", parent=parent) for text in texts]
    viewer = SimpleNamespace(window=SimpleNamespace(_qt_window=parent))
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
