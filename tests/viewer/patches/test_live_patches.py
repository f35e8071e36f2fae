import numpy as np
import pytest
from napari.components import ViewerModel

from hushpore.base.events import Attention, Batch, Progress, StopEarly
from hushpore.viewer.patches.layers import LatestBatch, LivePatches
from hushpore.viewer.running.task import capture


def batch(step=1, shift=0):
    corners = np.array([(0, 2, 2), (3, 8, 8)]) + shift
    return Batch(step, corners, (8, 8), np.array([0.5, 2.0]))


@pytest.fixture
def viewer(scan):
    found = ViewerModel()
    found.add_image(scan, name="scan", scale=(2, 0.5, 0.5))
    return found


@pytest.fixture
def live(qtbot, viewer):
    found = LivePatches(viewer)
    qtbot.addWidget(found)
    return found


def test_the_newest_batch_is_shown_while_it_is_ticked(qtbot, live, viewer):
    def job():
        for step in range(1, 4):
            yield batch(step, step)

    running = LatestBatch.watch(job(), capture(viewer.layers["scan"]))
    next(running)
    assert len(viewer.layers) == 1
    live.setChecked(True)
    layer = viewer.layers["scan · batch (live)"]
    assert tuple(layer.scale) == (2, 0.5, 0.5)
    np.testing.assert_array_equal(layer.data[0, 0], (1, 2.5, 2.5))
    # the harder one is brighter
    assert layer.edge_color[4:, :3].sum() > layer.edge_color[:4, :3].sum()
    next(running)
    next(running)
    live.poll()
    assert viewer.layers["scan · batch (live)"] is layer
    np.testing.assert_array_equal(layer.data[0, 0], (3, 4.5, 4.5))
    running.close()
    live.poll()
    assert "scan · batch (live)" not in viewer.layers


def test_unticking_takes_the_boxes_away(live, viewer):
    running = LatestBatch.watch(iter_batches(), capture(viewer.layers["scan"]))
    next(running)
    live.setChecked(True)
    live.setChecked(False)
    assert len(viewer.layers) == 1
    running.close()


def test_deleted_boxes_do_not_come_back(live, viewer):
    running = LatestBatch.watch(iter_batches(), capture(viewer.layers["scan"]))
    next(running)
    live.setChecked(True)
    viewer.layers.remove("scan · batch (live)")
    next(running)
    live.poll()
    assert len(viewer.layers) == 1
    running.close()


def iter_batches():
    for step in range(1, 100):
        yield batch(step)


def test_a_watched_job_is_driven_as_if_it_were_not(viewer):
    said = []

    def job():
        try:
            said.append((yield Progress("training", 1, 2, "steps", 0.5)))
            yield batch()
        except StopEarly:
            return "early"
        finally:
            said.append("closed")

    target = capture(viewer.layers["scan"])
    running = LatestBatch.watch(job(), target)
    next(running)
    running.send(Attention((2,)))
    with pytest.raises(StopIteration) as end:
        running.throw(StopEarly())
    assert end.value.value == "early"
    assert said == [Attention((2,)), "closed"]
    assert LatestBatch.seen is None
    running = LatestBatch.watch(job(), target)
    next(running)
    running.close()
    assert said[-1] == "closed"


def test_an_error_of_a_watched_job_is_not_swallowed(viewer):
    def job():
        yield batch()
        raise RuntimeError("on purpose")

    running = LatestBatch.watch(job(), capture(viewer.layers["scan"]))
    next(running)
    with pytest.raises(RuntimeError, match="on purpose"):
        next(running)
    assert LatestBatch.seen is None


def test_the_boxes_stay_above_a_preview_that_comes_later(live, viewer):
    def job():
        yield batch(1)
        yield batch(2)

    running = LatestBatch.watch(job(), capture(viewer.layers["scan"]))
    next(running)
    live.setChecked(True)
    viewer.add_image(np.zeros((4, 8, 8)), name="scan · denoised (preview)")
    next(running)
    live.poll()
    assert viewer.layers[-1].name == "scan · batch (live)"
    running.close()
