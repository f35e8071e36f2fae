import napari
import pytest
from napari.utils.progress import progress as napari_progress
from qtpy.QtGui import QMovie
from qtpy.QtWidgets import QLabel

from hushpore.base.events import Progress
from hushpore.viewer.running.progress import RunState
from hushpore.viewer.running.status import Activity
from hushpore.viewer.running.worker import JobWorker


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
    labels = make_napari_viewer().window.main_menu.window().statusBar().findChildren(QLabel)
    (movie,) = [label.movie() for label in labels if label.movie() is not None]
    return movie


def _state_after_a_while():
    state = RunState(napari.current_viewer(), JobWorker(lambda: iter(()), "a job"), None, print)
    state.meter._start -= 10  # as if it had run for long
    return state


def test_napari_s_wheel_rests_while_a_job_is_shown_beside_it(wheel):
    state = _state_after_a_while()
    state.show_activity()
    assert wheel.state() == QMovie.MovieState.Paused
    state.remove()
    assert wheel.state() != QMovie.MovieState.Paused


def test_the_wheel_rests_until_the_last_job_has_ended(wheel):
    first, second = Activity("Denoise", lambda: None), Activity("Segment", lambda: None)
    first.close()
    assert wheel.state() == QMovie.MovieState.Paused
    second.close()
    assert wheel.state() != QMovie.MovieState.Paused


def test_the_wheel_turns_again_after_a_job_that_ended_while_it_was_about_to_be_shown(wheel):
    state = _state_after_a_while()
    state.remove()
    state.show_activity()
    assert wheel.state() != QMovie.MovieState.Paused


def test_the_window_may_be_gone_before_the_activity(wheel, qtbot):
    state = _state_after_a_while()
    state.show_activity()
    gone = []
    wheel.destroyed.connect(lambda: gone.append(True))
    wheel.deleteLater()
    qtbot.waitUntil(lambda: len(gone) == 1)
    state.remove()
    assert not Activity._shown
