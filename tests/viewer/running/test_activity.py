import pytest
from napari.utils.progress import progress as napari_progress
from qtpy.QtGui import QMovie
from qtpy.QtWidgets import QLabel

from hushpore.base.events import Progress
from hushpore.viewer.running.status import Activity


def test_cancel_in_the_activity_dock_reaches_the_job():
    asked = []
    activity = Activity("Denoise", lambda: asked.append(1))
    assert activity in napari_progress._all_instances
    activity.cancel()
    assert asked == [1]
    activity.close()
    assert activity not in napari_progress._all_instances


def test_the_activity_goes_as_far_as_the_job():
    activity = Activity("Denoise", lambda: None)
    activity.show(Progress("training", 1, 4, "steps", 0.25))
    assert activity.n == 250
    activity.show(Progress("training", 1, 4, "steps", 0.1))
    assert activity.n == 100
    activity.close()
    activity.show(Progress("training", 4, 4, "steps", 1.0))
    assert activity.n == 100


@pytest.fixture
def wheel(make_napari_viewer):
    """Return what napari turns in its status bar while there is progress."""
    labels = make_napari_viewer().window._qt_window.statusBar().findChildren(QLabel)
    (movie,) = [label.movie() for label in labels if label.movie() is not None]
    return movie


def test_the_wheel_in_the_status_bar_moves_with_the_bar_alone_while_a_job_runs(wheel):
    first, second = Activity("Denoise", lambda: None), Activity("Segment", lambda: None)
    assert wheel.state() == QMovie.MovieState.Paused
    before = wheel.currentFrameNumber()
    first.show(Progress("training", 1, 4, "steps", 0.25))
    assert wheel.currentFrameNumber() == before + 1
    first.close()
    assert wheel.state() == QMovie.MovieState.Paused
    second.close()
    assert wheel.state() != QMovie.MovieState.Paused


def test_the_wheel_turns_on_for_the_progress_of_others(wheel):
    other = napari_progress(total=3)
    activity = Activity("Denoise", lambda: None)
    activity.close()
    assert wheel.state() == QMovie.MovieState.Running
    other.close()


def test_the_window_may_be_gone_before_the_activity(wheel, qtbot):
    activity = Activity("Denoise", lambda: None)
    gone = []
    wheel.destroyed.connect(lambda: gone.append(True))
    wheel.deleteLater()
    qtbot.waitUntil(lambda: len(gone) == 1)
    activity.close()
    assert activity not in napari_progress._all_instances
