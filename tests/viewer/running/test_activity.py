from napari.utils.progress import progress as napari_progress

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
