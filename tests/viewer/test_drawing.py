import pytest

from hushpore.viewer.drawing import LONGEST, DrawingPace


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def changes(seconds, drawing):
    """Count the changes in a time in which each takes `drawing` seconds to be drawn."""
    clock = Clock()
    pace, count = DrawingPace(clock), 0
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


def test_drawing_takes_a_fiftieth_of_the_time():
    assert changes(100, drawing=0.02) * 0.02 == pytest.approx(2, rel=0.2)


def test_however_slow_drawing_is_something_is_seen_every_few_seconds():
    assert changes(100, drawing=0.5) == pytest.approx(100 / (LONGEST + 0.5), rel=0.1)


def test_nothing_is_changed_before_the_last_change_is_drawn():
    pace = DrawingPace(Clock())
    pace.begin()
    assert not pace.is_due()
    pace.end()
    assert pace.is_due()


def test_an_end_without_a_beginning_changes_nothing():
    pace = DrawingPace(Clock())
    pace.end()
    assert pace.is_due()
