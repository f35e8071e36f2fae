import gc

import pytest
from qtpy.QtCore import QObject

from hushpore.viewer.running.gc_pause import Unpaused

pytestmark = pytest.mark.usefixtures("nothing_left_alone")


@pytest.fixture
def parent(qapp):
    return QObject()


def test_old_objects_are_left_alone_until_nothing_was_changed_for_a_while(qtbot, parent):
    before = gc.get_freeze_count()
    unpaused = Unpaused(parent)
    unpaused.setInterval(20)
    unpaused.change()
    unpaused.change()
    assert gc.get_freeze_count() > before
    qtbot.waitUntil(lambda: gc.get_freeze_count() <= before, timeout=5000)
    unpaused.change()
    assert gc.get_freeze_count() > before
    unpaused.end()
    assert gc.get_freeze_count() <= before


def test_two_at_once_end_with_the_last(qapp, parent):
    before = gc.get_freeze_count()
    first, second = Unpaused(parent), Unpaused(parent)
    first.change()
    second.change()
    first.end()
    assert gc.get_freeze_count() > before
    second.end()
    assert gc.get_freeze_count() <= before


def test_they_are_looked_at_again_when_what_changes_is_closed_meanwhile(qtbot, parent):
    before = gc.get_freeze_count()
    Unpaused(parent).change()
    assert gc.get_freeze_count() > before
    parent.deleteLater()
    qtbot.waitUntil(lambda: gc.get_freeze_count() <= before, timeout=500)
