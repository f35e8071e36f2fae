from types import SimpleNamespace

import pytest
from napari.resources import LOADING_GIF_PATH
from napari.utils.progress import progress as napari_progress
from qtpy.QtGui import QMovie
from qtpy.QtWidgets import QLabel, QMainWindow

from hushpore.base.events import Progress
from hushpore.viewer.activity import WHEEL, Activity


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
def wheel(qtbot):
    """Stand in for the wheel that napari turns in its status bar while there is progress."""
    window, label = QMainWindow(), QLabel()
    qtbot.addWidget(window)
    movie = QMovie(LOADING_GIF_PATH, parent=label)
    label.setMovie(movie)
    window.statusBar().addPermanentWidget(label)
    # Qt takes what is in the window with it
    return SimpleNamespace(window=window, movie=movie)


def test_the_wheel_in_the_status_bar_turns_slowly_while_a_job_runs(wheel):
    first, second = Activity("Denoise", lambda: None), Activity("Segment", lambda: None)
    assert wheel.movie.speed() == WHEEL
    first.close()
    assert wheel.movie.speed() == WHEEL
    second.close()
    assert wheel.movie.speed() == 100
