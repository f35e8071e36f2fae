import pytest

from hushpore.base.events import Progress
from hushpore.viewer.running.progress import Eta, RateMeter, bar_text, duration, stage_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (41.4, "0:41"), (61, "1:01"), (3723, "1:02:03"), (-1, "0:00")],
)
def test_durations_read_as_a_clock(seconds, text):
    assert duration(seconds) == text


def test_a_stage_says_how_much_is_done():
    assert stage_text(Progress("training", 300, 1500, "steps", 0.2)) == (
        "Training: 300 of 1,500 steps"
    )
    assert stage_text(Progress("preparing", 0, 0, "", 0.0)) == "Preparing …"


def test_the_bar_says_percent_and_time_left():
    progress = Progress("training", 62, 100, "steps", 0.62)
    assert bar_text(progress, 41.0) == "62 % · 0:41 left"
    assert bar_text(progress, None) == "62 %"


def test_the_time_left_follows_the_rate():
    now = [0.0]
    eta = Eta(lambda: now[0])
    assert eta.left(0.0) is None
    assert eta.left(0.1) is None
    now[0] = 10.0
    assert eta.left(0.3) == pytest.approx(35.0)
    now[0] = 45.0
    assert eta.left(1.0) == pytest.approx(0.0)


def test_the_time_left_does_not_count_what_came_before_the_first_progress():
    now = [100.0]
    eta = Eta(lambda: now[0])
    eta.left(0.5)
    now[0] = 110.0
    assert eta.left(0.75) == pytest.approx(10.0)


def test_the_time_left_is_not_spoilt_by_a_slow_start_or_a_pause():
    now = [0.0]
    eta = Eta(lambda: now[0])
    eta.left(0.01)
    # the first step took 20 s, and the computer slept for a minute; else 1 % a second
    for step in range(2, 50):
        now[0] = 20.0 + step + (60.0 if step > 25 else 0.0)
        left = eta.left(0.01 * step)
    assert left == pytest.approx(51.0, rel=0.05)


def test_an_estimate_takes_no_more_memory_in_a_long_job():
    now = [0.0]
    eta = Eta(lambda: now[0])
    for step in range(100_000):
        now[0] = 0.125 * step
        left = eta.left(step / 200_000)
    assert left == pytest.approx(12_500, rel=0.01)
    assert len(eta._seen) <= 65


def test_no_time_is_given_while_the_work_starts_over():
    now = [0.0]
    eta = Eta(lambda: now[0])
    eta.left(0.5)
    now[0] = 5.0
    assert eta.left(0.1) is None


def test_the_rate_is_that_of_the_last_seconds_of_the_stage():
    now = [0.0]
    pace = RateMeter(lambda: now[0])

    def at(seconds, stage, done):
        now[0] = seconds
        return pace.rate(Progress(stage, done, 1000, "steps", 0.5))

    assert at(0, "training", 0) is None
    assert at(0.5, "training", 5) is None
    assert at(2, "training", 20) == pytest.approx(10)
    for second in range(3, 40):
        rate = at(second, "training", 20 + 3 * (second - 2))
    assert rate == pytest.approx(3)
    assert at(41, "denoising", 1) is None


def test_a_stage_that_is_told_of_at_its_end_only_has_no_rate():
    now = [0.0]
    pace = RateMeter(lambda: now[0])
    for now[0] in (0.0, 5.0, 9.0):
        assert pace.rate(Progress("basins", 48, 48, "slices", 0.6)) is None
