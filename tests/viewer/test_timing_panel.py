import pytest
from qtpy.QtWidgets import QLabel, QProgressBar

from hushpore.viewer.timing_panel import TimingPanel, in_words


@pytest.fixture
def panel(qtbot):
    panel = TimingPanel()
    qtbot.addWidget(panel)
    return panel


def bars(panel):
    return [bar.value() for bar in panel.findChildren(QProgressBar)]


def test_nothing_is_shown_before_anything_was_timed(panel):
    assert panel.isHidden()
    panel.show_stages({})
    assert panel.isHidden()


def test_stages_are_shown_with_their_shares_and_the_longest_is_named(panel):
    panel.show_stages({"reading": 1.0, "training": 3.0})
    assert not panel.isHidden()
    assert not panel.is_open
    assert bars(panel) == [25, 75]
    assert panel.title() == "Timing: 4 s, 75 % of it training"


def test_a_second_look_updates_the_rows(qtbot, panel):
    panel.show_stages({"reading": 1.0, "training": 1.0})
    panel.show_stages({"training": 3.0, "denoising": 1.0})
    qtbot.waitUntil(lambda: len(panel.findChildren(QProgressBar)) == 2)
    assert sorted(bars(panel)) == [25, 75]
    texts = [label.text() for label in panel.findChildren(QLabel)]
    assert "reading" not in texts


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00237, "2.4 ms"), (0.05, "50 ms"), (0.486, "0.49 s"), (3.14, "3.1 s"), (41.2, "41 s")],
)
def test_times_can_be_read_at_a_glance(seconds, words):
    assert in_words(seconds) == words


def test_long_times_are_in_minutes():
    assert in_words(744) == "12.4 min"
