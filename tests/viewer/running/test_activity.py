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


def test_napari_s_wheel_rests_while_a_job_is_shown_beside_it(make_napari_viewer, qtbot):
    viewer = make_napari_viewer()
    labels = viewer.window.main_menu.window().statusBar().findChildren(QLabel)
    (wheel,) = [label.movie() for label in labels if label.movie() is not None]
    worker = JobWorker(lambda: iter(()), "a job")
    state = RunState(viewer, worker, None, lambda: None)
    state.meter._start -= 10  # as if it had run for long
    state.show_activity()
    assert wheel.state() == QMovie.MovieState.Paused
    state.remove()
    assert wheel.state() != QMovie.MovieState.Paused
